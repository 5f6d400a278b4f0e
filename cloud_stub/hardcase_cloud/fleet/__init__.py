"""A simulated fleet: many devices that decide at once over a real broker."""
