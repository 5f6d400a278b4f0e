"""Histogram trees that know what sensors cost: boosted ensembles and forests."""
