"""The program: a policy as data. Its nodes and scorers, its readings, its costs, its bytes."""
