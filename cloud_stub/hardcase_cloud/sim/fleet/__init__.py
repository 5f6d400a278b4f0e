# SPDX-License-Identifier: Apache-2.0
"""Simulated fleets: their scenarios, and many devices that decide at once over a real broker."""
