"""From the plain numbers of a source to a program that gives the same labels."""
