# SPDX-License-Identifier: Apache-2.0
"""Readers of a build folder: the Pareto front, and labelled rows with f0's answers."""
