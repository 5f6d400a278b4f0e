# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet: many devices that decide at once over a real broker."""
