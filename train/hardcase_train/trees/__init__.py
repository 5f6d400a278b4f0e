"""Histogram trees with feature acquisition costs: boosted ensembles and random forests."""
