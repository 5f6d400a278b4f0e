"""Quantisation: a draft's floats become integers, and parity on rows shows that its decisions stay the same."""
