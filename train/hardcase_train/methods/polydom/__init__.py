# SPDX-License-Identifier: Apache-2.0
"""Poly-Dom: an index of sensor sets by item size and budget (Battle et al. 2014), greedy sequences, and any-time."""
