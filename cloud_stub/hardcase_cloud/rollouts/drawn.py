# SPDX-License-Identifier: Apache-2.0
"""Whether a device has kept exactly the audits that its seed draws, checked when the seed is told.

A device tells the SHA-256 of its seed while it runs and the seed in the last facts of a start. Whoever noted the first
knows that the seed was not chosen afterwards; and from the seed follows which of the local decisions are audited
(``hardcase_edge/device/draws.py``). What a device says is bounded and checked before use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.device.draws import number

from ..records.database import Database

__all__ = ["MOST_DRAWS", "Checked", "check", "checked_audits"]

MOST_DRAWS = 5_000_000  # of one start: some seconds
MOST_NAMED = 8  # draws that a verdict lists
COMPLETE, RUNNING, WRONG = "complete", "not told yet", "wrong"


@dataclass(frozen=True, slots=True)
class Checked:
    """One device's last start."""

    device: str
    boot: int
    sha256: str  # of its seed, in hex, as it says; "" where it says none
    draws: int  # local decisions for which a number was drawn
    audits: int  # that the store has
    state: str  # COMPLETE, RUNNING or WRONG
    why: str = ""


def checked_audits(database: Database, share: float, told: Mapping[tuple[str, int], str]) -> Iterator[Checked]:
    """The verdict on each device that audits, in order of device.

    Parameters
    ----------
    share : of the local decisions that devices audit, above 0 and up to 1
    told : by device and boot the SHA-256 that was noted while the device ran; what is not there is not compared
    """
    for device, text in database.read("SELECT device, facts FROM devices ORDER BY device"):
        facts = _object(text)
        draws, boot = facts.get("draws"), facts.get("boot")
        if not isinstance(draws, dict) or type(boot) is not int or not 0 < boot < 2**53:
            continue
        rows = database.read(
            "SELECT record FROM records WHERE device = ? AND boot = ? AND kind = 'audit'", (device, boot)
        )
        audited = [_object(row[0]).get("draw") for row in rows]
        name = draws.get("sha256")
        digest, n = name if isinstance(name, str) and len(name) == 64 else "", draws.get("n")
        state, why = check(facts, audited, share, told.get((device, boot)))
        yield Checked(device, boot, digest, n if type(n) is int else 0, len(rows), state, why)


def check(facts: Mapping[str, Any], audited: list[Any], share: float, noted: str | None = None) -> tuple[str, str]:
    """The state of a start, and what is wrong.

    Parameters
    ----------
    facts : the last facts of the start
    audited : the draw of each audit that the store has of it
    share : of the local decisions that the device audits
    noted : the SHA-256 of the seed as it was told while the device ran; None: nobody noted it

    Examples
    --------
    >>> facts = {"local": 5, "draws": {"n": 5, "sha256": "3" * 64}}
    >>> check(facts, [], 0.5)
    ('not told yet', '')
    >>> check(facts, [], 0.5, noted="4" * 64)
    ('wrong', 'its seed is another than the one it began with')
    """
    draws = facts["draws"]
    n, digest = draws.get("n"), draws.get("sha256")
    if noted is not None and digest != noted:
        return WRONG, "its seed is another than the one it began with"
    if "seed" not in draws:
        return RUNNING, ""
    try:
        seed = bytes.fromhex(draws["seed"])
    except (TypeError, ValueError):
        return WRONG, "its seed is not one"
    if len(seed) != 32 or sha256(seed).hex() != digest:
        return WRONG, "its seed does not have the SHA-256 that it says"
    if type(n) is not int or n != facts.get("local"):
        return WRONG, "it has not drawn a number for each of its local decisions"
    if n > MOST_DRAWS:
        return WRONG, f"it says that it has drawn {n} numbers, and at most {MOST_DRAWS} can be checked"
    due = {k for k in range(1, n + 1) if number(seed, k) < share}
    known = {k for k in audited if type(k) is int}
    missing, beside = sorted(due - known), sorted(known - due)
    parts = [
        f"{len(some)} {what} ({_named(some)})" for some, what in ((missing, "missing"), (beside, "not drawn")) if some
    ]
    if len(known) < len(audited):
        parts.append("audits that come twice or say no draw")
    return (WRONG, ", ".join(parts)) if parts else (COMPLETE, "")


def _named(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:MOST_NAMED])) + (" and more" if len(numbers) > MOST_NAMED else "")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
