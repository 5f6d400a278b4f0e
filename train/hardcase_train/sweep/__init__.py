"""Many settings of many methods: where they run, which go on, and the points that are kept."""
