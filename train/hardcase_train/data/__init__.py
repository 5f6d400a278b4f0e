"""From a table or arrays to a problem: plain arrays of rows, sensors with costs, and the answers of f0."""
