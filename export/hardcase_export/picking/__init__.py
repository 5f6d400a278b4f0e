"""The choice of a point of the Pareto front: by a loss of accuracy, a budget, or a risk shown on held-out rows."""
