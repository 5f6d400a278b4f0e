# SPDX-License-Identifier: Apache-2.0
"""A device's identity: its key, its certificate, and how it gets the next one."""
