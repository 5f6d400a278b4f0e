"""Which point of a front is exported, by loss, budget or a promised risk."""
