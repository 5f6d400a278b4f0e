# SPDX-License-Identifier: Apache-2.0
"""Unknown names: the nearest name that exists or what to do instead, and tables of TOML whose keys are all known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..errors import InputError

MOST_SHOWN = 20  # columns that a message lists


def did_you_mean(name: object, names: Iterable[str], otherwise: str, *, cutoff: float = 0.6) -> str:
    """``did you mean 'x'?`` for the nearest of ``names``; ``otherwise`` if none is near.

    ``cutoff`` is the least similarity, from 0 to 1, as ``difflib`` measures it.

    >>> did_you_mean("targte", ["file", "target"], "known keys are file, target")
    "did you mean 'target'?"
    >>> did_you_mean("zzz", ["file", "target"], "known keys are file, target")
    'known keys are file, target'
    """
    from difflib import get_close_matches  # a device needs it for this message alone

    near = get_close_matches(str(name), list(names), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise


def nearest_column(name: object, columns: Iterable[str]) -> str:
    """The hint for a column that a table lacks.

    >>> nearest_column("ids", ["id", "sky"])
    "did you mean 'id'?"
    """
    columns = list(columns)
    return did_you_mean(name, columns, f"columns are {', '.join(columns[:MOST_SHOWN])}")


def check_keys(what: str, table: Any, known: Collection[str]) -> None:
    """See that ``table``, which messages call ``what``, is a table, and that each of its keys is known.

    >>> check_keys("[data]", {"targte": 1}, ("file", "target"))
    Traceback (most recent call last):
    hardcase_edge.errors.InputError: [data] has the unknown key 'targte'; did you mean 'target'?

    Raises
    ------
    InputError
        It is none, or a key is not.
    """
    if not isinstance(table, dict):
        raise InputError(f"{what} is {table!r:.80}, a table is expected")
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known, f"known keys are {', '.join(known)}", cutoff=0.5)
            raise InputError(f"{what} has the unknown key {key[:60]!r}; {hint}")
