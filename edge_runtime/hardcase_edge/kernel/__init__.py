"""The C kernel, the image of a program that it runs, and the choice between it and pure Python."""
