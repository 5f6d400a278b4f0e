"""The Python interface: train, export, load and evaluate, by the functions that the command line calls."""
