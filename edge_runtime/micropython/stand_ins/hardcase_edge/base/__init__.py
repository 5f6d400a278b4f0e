# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the base of the device."""
