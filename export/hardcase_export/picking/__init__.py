# SPDX-License-Identifier: Apache-2.0
"""The choice of a point of the Pareto front: by a loss of accuracy, a budget, or a risk bounded on held-out rows."""
