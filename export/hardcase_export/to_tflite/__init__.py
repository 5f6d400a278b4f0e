"""TFLite: parts of a policy, and a model of the user's own."""
