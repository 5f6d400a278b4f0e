"""Bundles: a program and all it needs in one file, loaded only when all of it is proved."""
