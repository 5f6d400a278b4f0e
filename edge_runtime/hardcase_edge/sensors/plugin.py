"""Your own Python as a source: ``MODULE:FUNCTION``, from the command line only, never from a bundle.

    # my_sensors.py, in the folder where hardcase-edge is started
    def read(sensor):            # "PS1", "TS1", ...
        return [...]             # its samples or features; or one number

The function is called on a thread of the sensor's own. It may raise, and may hang: then the sensor has failed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module

from ..errors import InputError
from .bank import Wanted

__all__ = ["Plugin", "is_function_name", "load_function"]

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*):([A-Za-z_][A-Za-z0-9_]*)")


def is_function_name(text: str) -> bool:
    """Does this read ``MODULE:FUNCTION``?"""
    return _NAME.fullmatch(text) is not None


def load_function(name: str, what: str) -> Callable[..., object]:
    """The function of this ``MODULE:FUNCTION``; ``what``: what errors call it.

    Raises
    ------
    InputError
        The module cannot be imported, or has no such function.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"{what} {name[:80]!r} is no module:function")
    module, function = match.groups()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: nothing here may stand in for an installed module
    try:
        found: Callable[..., object] | None = getattr(import_module(module), function, None)
    except (Exception, SystemExit) as error:  # a module may do anything when imported
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"module {module} cannot be imported: {type(error).__name__}: {reason}") from error
    if not callable(found):
        raise InputError(f"module {module} has no function {function}")
    return found


class Plugin:
    """A Python function as a source.

    Raises
    ------
    InputError
        The module cannot be imported, or has no such function.
    """

    is_instant = False

    def __init__(self, name: str) -> None:
        self._read = load_function(name, "sensor source")

    def lacks(self, wanted: Wanted) -> str:
        """A function serves every sensor; it sees which from the name."""
        return ""

    def next_item(self) -> bool:
        """Time goes on by itself."""
        return True

    def read(self, sensor: str) -> object:
        """What the function returns."""
        return self._read(sensor)

    def close(self) -> None:
        """Nothing is kept open."""
