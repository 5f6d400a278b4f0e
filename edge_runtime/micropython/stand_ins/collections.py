# SPDX-License-Identifier: Apache-2.0
"""For MicroPython, whose deque takes no keyword: what the exchange asks of one."""


class deque:  # noqa: N801  # its name in Python
    """The last ``maxlen`` values."""

    def __init__(self, maxlen):
        self._values, self._most = [], maxlen

    def append(self, value):
        """Add a value, and drop the oldest of too many."""
        self._values.append(value)
        if len(self._values) > self._most:
            self._values.pop(0)

    def __contains__(self, value):
        return value in self._values
