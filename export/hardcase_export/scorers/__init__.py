"""The parts of a program that other runtimes can run, and the comparison with it."""
