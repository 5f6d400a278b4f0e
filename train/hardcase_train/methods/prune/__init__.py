"""Random forests pruned for sensor costs (Nan, Wang and Saligrama 2016)."""
