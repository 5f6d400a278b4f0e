"""Workers: requests in, answers of f0 out."""
