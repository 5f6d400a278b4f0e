"""Committed bytes of format 1 and the script that makes them."""
