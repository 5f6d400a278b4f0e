# SPDX-License-Identifier: Apache-2.0
"""A user's Python function as a source: ``MODULE:FUNCTION`` on the command line, never in a bundle.

    # my_sensors.py, in the folder where hardcase-edge is started
    def read(sensor):            # "PS1", "TS1", ...
        return [...]             # its samples or features; or one number

The sensor bank calls the function on a thread of the sensor's own. If it raises an exception or hangs, the sensor has
failed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InputError, one_line

if TYPE_CHECKING:
    from .bank import Wanted

__all__ = ["Plugin", "checked_name", "is_function_name", "load_function"]

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*):([A-Za-z_][A-Za-z0-9_]*)")


def is_function_name(text: str) -> bool:
    """Whether a text has the form ``MODULE:FUNCTION``.

    >>> is_function_name("my_sensors:read"), is_function_name("replay:data.csv")
    (True, False)
    """
    return _NAME.fullmatch(text) is not None


def checked_name(name: str, what: str) -> tuple[str, str]:
    """Module and function of a ``MODULE:FUNCTION``.

    Raises
    ------
    InputError
        The name has another form.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"{what} {name[:80]!r} is not a MODULE:FUNCTION; correct its spelling")
    return match[1], match[2]


def load_function(name: str, what: str) -> Callable[..., object]:
    """The function that a ``MODULE:FUNCTION`` names; the working directory is searched last.

    Parameters
    ----------
    name : ``MODULE:FUNCTION``
    what : what error messages call it, such as "sensor source"

    Raises
    ------
    InputError
        The name has another form, the module cannot be imported, or it has no such function.
    """
    module, attribute = checked_name(name, what)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that a file there cannot replace an installed module
    try:
        function: Callable[..., object] | None = getattr(import_module(module), attribute, None)
    except KeyboardInterrupt:  # of Ctrl-C or SIGTERM
        raise
    except BaseException as error:  # a module may raise anything when it is imported
        raise InputError(f"module {module} cannot be imported: {type(error).__name__}: {one_line(error)}") from error
    if not callable(function):
        raise InputError(f"module {module} has no function {attribute}; correct the name")
    return function


class Plugin:
    """A Python function as a source.

    Parameters
    ----------
    name : ``MODULE:FUNCTION``
    item : gives the item that the function is called with behind the sensor's name; None: it gets the name alone

    Raises
    ------
    InputError
        The module cannot be imported, or has no such function.
    """

    is_instant = False
    _item: Callable[[], object] | None = None

    def __init__(self, name: str, item: Callable[[], object] | None = None) -> None:
        self._read = load_function(name, "sensor source")
        self._item = item

    def lacks(self, wanted: Wanted) -> str:
        """Empty: a function serves every sensor, and gets the sensor's name."""
        return ""

    def next_item(self) -> bool:
        """True: there is always a next item."""
        return True

    def read(self, sensor: str) -> object:
        """The value that the function returns for this sensor."""
        return self._read(sensor) if self._item is None else self._read(sensor, self._item())

    def close(self) -> None:
        """Do nothing, because no file is open."""
