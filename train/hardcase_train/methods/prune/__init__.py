"""Random forests pruned for what their sensors cost (Nan, Wang and Saligrama 2016)."""
