"""Many simulated devices."""
