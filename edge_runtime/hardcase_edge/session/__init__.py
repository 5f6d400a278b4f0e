"""One decision, from the first sensor to the answer, without I/O and without a clock."""
