# SPDX-License-Identifier: Apache-2.0
"""Drift: whether a bundle's promise still holds, which sensor's readings have moved, and which sensor fails slowly."""
