# SPDX-License-Identifier: Apache-2.0
"""A user's Python function as a source: ``MODULE:FUNCTION`` on the command line, never in a bundle.

    # my_sensors.py, in the folder where hardcase-edge is started
    def read(sensor):            # "PS1", "TS1", ...
        return [...]             # its samples or features; or one number
    def evidence(sensor):        # may be missing
        return b"..."            # a picture or a sound of it, for people who label audits

The sensor bank calls the function on a thread of the sensor's own. If it raises an exception or hangs, the sensor has
failed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InputError, one_line, type_and_line

if TYPE_CHECKING:
    import ast
    from pathlib import Path

    from .bank import Wanted

MAX_SOURCE_BYTES = 16 * 1024 * 1024
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
        raise InputError(f"module {module} cannot be imported: {type_and_line(error)}") from error
    if not callable(function):
        raise InputError(f"module {module} has no function {attribute}; correct the name")
    return function


def look_for_function(name: str, what: str, folders: Sequence[Path]) -> None:
    """Look whether ``load_function`` would find a function of another machine, whose modules lie in these folders.

    The module is parsed and not imported; of a compiled one, its file is all that is looked for.

    Raises
    ------
    InputError
        The name has another form, no folder has the module, it is not Python, or it has no such function.
    """
    import ast

    from ..base.files import read_bounded

    module, attribute = checked_name(name, what)
    *above, last = module.split(".")
    for folder in (f.joinpath(*above) for f in folders):
        for path in (folder / f"{last}.py", folder / last / "__init__.py"):
            if not path.is_file():
                continue
            try:
                tree = ast.parse(read_bounded(path, MAX_SOURCE_BYTES, "module", remedy="name a small one"), path.name)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise InputError(f"module {module} cannot be imported: {one_line(error)}; mend it") from error
            if not {attribute, "*", "__getattr__"} & set(_bound(tree.body)):
                raise InputError(f"module {module} has no function {attribute}; correct the name")
            return
        if any(folder.glob(f"{last}.*so")):
            return
    raise InputError(f"{what} {name[:80]} needs the module {module}, which is not there; give its file with --file")


def _bound(body: Sequence[ast.AST]) -> Iterator[str]:
    """The names that statements bind in a module; ``*`` for what nobody can tell without importing it."""
    import ast

    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        else:  # assignments, and the statements inside ``if``, ``try`` and ``with``
            yield from _bound(list(ast.iter_child_nodes(statement)))
            if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
                yield statement.id


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
        given = getattr(sys.modules[name.partition(":")[0]], "evidence", None)
        self.evidence: Callable[[str], object] | None = given if callable(given) else None  # fleet/outbox/evidence.py
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
