# SPDX-License-Identifier: Apache-2.0
"""Hints that end a message about an unknown name: the nearest name that exists, or what to do instead."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest_column"]

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
