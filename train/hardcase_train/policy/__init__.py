"""A policy while it is trained: draft programs, what they do with many rows, and what is chosen among them."""
