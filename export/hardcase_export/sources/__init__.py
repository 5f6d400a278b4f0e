"""Models trained elsewhere, read into plain numbers that are believed only after checks."""
