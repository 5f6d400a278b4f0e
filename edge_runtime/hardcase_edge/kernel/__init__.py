"""The evaluator in C, the image it runs, and the machine that chooses between it and pure Python."""
