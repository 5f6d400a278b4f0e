# SPDX-License-Identifier: Apache-2.0
"""For MicroPython: levels, and a logger that prints."""

INFO, WARNING = 20, 30


class _Logger:
    def log(self, level, line):
        """Print the line."""
        print(line)


def getLogger(name):  # noqa: N802  # its name in Python
    """One logger for all."""
    return _Logger()
