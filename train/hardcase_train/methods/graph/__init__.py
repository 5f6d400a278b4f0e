# SPDX-License-Identifier: Apache-2.0
"""Policies on a graph of sensor subsets (Wang, Trapeznikov and Saligrama 2015)."""
