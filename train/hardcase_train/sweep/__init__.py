# SPDX-License-Identifier: Apache-2.0
"""Sweeps over the settings of many methods: executors, successive halving, job cache, Pareto fronts."""
