"""Linear models and polynomials over codes that a device computes exactly."""
