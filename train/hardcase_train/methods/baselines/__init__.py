"""The honest baselines: fixed sensor subsets, a confidence cascade, and a model of the user."""
