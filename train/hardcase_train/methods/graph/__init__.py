"""Policies on a graph of sensor subsets (Wang, Trapeznikov and Saligrama 2015)."""
