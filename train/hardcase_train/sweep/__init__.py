"""Sweeps over the settings of many methods: executors, successive halving, job cache, Pareto fronts."""
