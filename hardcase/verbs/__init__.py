"""The verbs of the command ``hardcase``, one module each."""
