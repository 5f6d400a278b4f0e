# SPDX-License-Identifier: Apache-2.0
"""The file of a running budget: what is left of it, written whole before it is spent.

The file holds what would be left if a *reserve* had been spent since it was written; a run writes it anew before its
decisions have spent the reserve. So no power cut, and no number of restarts, gives back what was spent: a start after a
cut finds less than there is, by the reserve at most.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..base.files import read_bounded, write_whole
from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["MAX_BYTES", "MOST", "SIZES", "read_ledger", "write_ledger"]

MAX_BYTES = 4_096
MOST = 2**84  # a battery of 10^9 mWh has 2^82 micro-units of a nJ
SIZES = {"spending": 2, "forwards": 2, "battery": 2}  # numbers of each part that a ledger may have


def read_ledger(path: str | Path, plan: str) -> dict[str, list[int]]:
    """The parts of a ledger of this plan; none if there is no file, or if it is of another plan.

    Parameters
    ----------
    plan : text that names the budgets; other budgets begin anew

    Raises
    ------
    InputError
        The file cannot be read, or is not a ledger.
    """
    from os.path import isfile, lexists

    if not lexists(path):
        return {}
    remedy = "remove it, and the budget begins anew"
    if not isfile(path):  # a pipe would be waited for
        raise InputError(f"budget file {path} is not a file; {remedy}")
    data = read_bounded(path, MAX_BYTES, "budget file", remedy=remedy)
    try:
        fields = json.loads(data)
        if fields["plan"] != plan:
            return {}
        parts = {key: fields[key] for key in SIZES if key in fields}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"budget file {path} is not one that hardcase-edge wrote; {remedy}") from None
    for key, numbers in parts.items():
        is_list = isinstance(numbers, list) and len(numbers) == SIZES[key]
        if not is_list or not all(type(x) is int and 0 <= x < MOST for x in numbers):
            raise InputError(f"budget file {path} has a wrong {key}; {remedy}")
    return parts


def write_ledger(path: str | Path, plan: str, parts: dict[str, Sequence[int]]) -> None:
    """Write it whole or not at all.

    Raises
    ------
    InputError
        It cannot be written.
    """
    write_whole(path, json.dumps({"plan": plan, **parts}, separators=(",", ":")).encode() + b"\n")
