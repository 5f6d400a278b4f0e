"""The proof, before anything runs, that a program ends, reads only what it has, and costs what it says."""
