# SPDX-License-Identifier: Apache-2.0
"""Histogram trees with feature acquisition costs: boosted ensembles and random forests."""
