"""The device: the loop that owns the clocks, and what it has to run with."""
