"""The way in from Python: train, export, load and evaluate, on the functions that the command line calls."""
