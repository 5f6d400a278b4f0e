"""What export writes beside bundles, and the labelled rows it reads."""
