# SPDX-License-Identifier: Apache-2.0
"""For MicroPython: records by their fields' names, which ``build.py`` has written down."""

from .fields import FIELDS


def record(**settings):
    """Make a class of values."""

    def make(cls):
        names = FIELDS[cls.__name__]
        defaults = {name: getattr(cls, name) for name in names if hasattr(cls, name)}

        class Made:
            def __init__(self, *values):
                for k, name in enumerate(names):
                    setattr(self, name, values[k] if k < len(values) else defaults[name])

            def __repr__(self):
                shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
                return f"{cls.__name__}({shown})"

        return Made

    return make
