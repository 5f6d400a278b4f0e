"""Floats to integers, and the proof on rows that decisions stay the same."""
