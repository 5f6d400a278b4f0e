# SPDX-License-Identifier: Apache-2.0
"""The store of decisions and audits: keeps each record once, and acknowledges what is on the disk."""
