"""Linear models and polynomials on codes that a device computes exactly."""
