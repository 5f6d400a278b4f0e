# SPDX-License-Identifier: Apache-2.0
"""Baselines: fixed sensor subsets, a confidence cascade (early exit), and a user's own model."""
