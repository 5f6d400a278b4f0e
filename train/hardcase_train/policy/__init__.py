# SPDX-License-Identifier: Apache-2.0
"""Policies in training: draft programs, their outcomes on many rows, and the Pareto front of policies."""
