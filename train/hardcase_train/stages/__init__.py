# SPDX-License-Identifier: Apache-2.0
"""Staged policies (early exit): sensor subsets, nested sets of them, and the thresholds at which rows exit."""
