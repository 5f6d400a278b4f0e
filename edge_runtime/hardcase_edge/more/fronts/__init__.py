# SPDX-License-Identifier: Apache-2.0
"""The Pareto front of trained policies, and the pick of a point by a wish; training, export and reports share both."""
