"""Readers of a build folder: the Pareto front, and labelled rows with f0's answers."""
