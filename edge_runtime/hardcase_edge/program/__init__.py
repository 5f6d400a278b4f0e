"""The program, which is a policy as data: its nodes, scorers, readings, costs and bytes."""
