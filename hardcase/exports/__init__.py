"""Outputs of ``hardcase export`` other than bundles, and the labelled rows that it reads."""
