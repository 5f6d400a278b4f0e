"""The methods, a room for each paper; no room imports another."""
