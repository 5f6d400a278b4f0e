# SPDX-License-Identifier: Apache-2.0
"""The file of a running budget: what is left of it, written whole before it is spent, twice with a digest.

The file holds what would be left if a *reserve* had been spent since it was written; a run writes it anew before its
decisions have spent the reserve. So no power cut, and no number of restarts, gives back what was spent: a start after a
cut finds less than there is, by the reserve at most. One run at a time uses a file; a lock beside it sees to that.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from ...base.files import read_bounded, remove_leftovers, sealed, unsealed, write_whole
from ...errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAX_BYTES = 4_096
MOST = 2**84  # a battery of 10^9 mWh has 2^82 micro-units of a nJ
SIZES = {"spending": 2, "forwards": 2, "battery": 2}  # numbers of each part that a ledger may have
_locks: dict[str, int] = {}  # open files of this process; the run of the next bundle goes on with the same lock


def lock_ledger(path: str | Path) -> None:
    """Keep other processes from using a ledger, and remove what writes that were killed have left beside it.

    On a file system without locks, or one that cannot be written, nothing is locked.

    Raises
    ------
    InputError
        Another run uses it.
    """
    name = os.path.abspath(path)
    if name in _locks:
        return
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            file = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise InputError(
                    f"budget file {path} is used by another run; end that run, or name another with --budget-file"
                ) from error
            return
        _locks[name] = file
        remove_leftovers(name)


def unlock_ledger(path: str | Path) -> None:
    """Let others use it again."""
    file = _locks.pop(os.path.abspath(path), None)
    if file is not None:
        os.close(file)


def read_ledger(path: str | Path, plan: str) -> dict[str, list[int]] | None:
    """The parts of a ledger of this plan; none if there is no file, or if it is of another plan.

    Parameters
    ----------
    plan : text that names the budgets; other budgets begin anew

    Returns
    -------
    dict or None
        None if the file is damaged, in both of its copies, so that nobody knows what is left.

    Raises
    ------
    InputError
        The path is something else than a file.
    """
    if not os.path.lexists(path):
        return {}
    if not os.path.isfile(path):  # a pipe would be waited for
        raise InputError(f"budget file {path} is not a file; remove it, and the budget begins anew")
    try:
        data = unsealed(read_bounded(path, MAX_BYTES, "budget file", remedy="remove it"))
        fields = json.loads(b"" if data is None else data)
        parts = {key: fields[key] for key in SIZES if key in fields}
        is_other = fields["plan"] != plan
    except (InputError, ValueError, TypeError, KeyError, RecursionError):
        return None
    if is_other:
        return {}
    for key, numbers in parts.items():
        is_list = isinstance(numbers, list) and len(numbers) == SIZES[key]
        if not is_list or not all(type(x) is int and 0 <= x < MOST for x in numbers):
            return None
    return parts


def write_ledger(path: str | Path, plan: str, parts: dict[str, Sequence[int]]) -> None:
    """Write it whole or not at all.

    Raises
    ------
    InputError
        It cannot be written.
    """
    write_whole(path, sealed(json.dumps({"plan": plan, **parts}, separators=(",", ":")).encode()))
