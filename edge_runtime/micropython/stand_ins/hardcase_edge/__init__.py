# SPDX-License-Identifier: Apache-2.0
"""The package as MicroPython sees it: the exchange, and what it stands on."""
