"""Policies in stages: sensor subsets, nested sets of them, and the thresholds at which rows leave."""
