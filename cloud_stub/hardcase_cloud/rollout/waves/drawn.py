# SPDX-License-Identifier: Apache-2.0
"""Whether devices have kept exactly the audits that their seeds draw, for each start with a published seed.

A device tells the SHA-256 of its seed while it runs and the seed in the last facts of a start. Whoever noted the first
knows that the seed was not chosen afterwards; and from the seed follows which of the local decisions are audited
(``hardcase_edge/more/audits/draws.py``). What a device says is bounded and checked before use.

The last facts also say how many records wait in the outbox, whatever they are of, and those go before all of later
starts. So no more audits of a start can be on their way than waited at its end, and no more than wait now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.more.audits.draws import number

from ...keep.records.database import Database
from ...keep.records.devices import Devices
from ...keep.records.incoming import object_of

MOST_DRAWS = 5_000_000  # of one start: some seconds
MOST_NAMED = 8  # draws that a verdict lists
COMPLETE, RUNNING, LATE, WRONG = "complete", "not told yet", "not all here yet", "wrong"
LOST = ("dropped", "damaged", "too_long", "unsent")  # counters of an outbox


@dataclass(frozen=True, slots=True)
class Checked:
    """One start of a device."""

    device: str
    boot: int
    sha256: str  # of its seed, in hex, as it says; "" where it says none
    draws: int  # local decisions for which a number was drawn
    audits: int  # that the store has
    state: str  # COMPLETE, RUNNING, LATE or WRONG
    missing: int = 0  # audits that were drawn and are not here
    why: str = ""
    share: float | None = None  # of the local decisions, that it was checked with; None: nobody told one


def checked_audits(database: Database, share: float | None, told: Mapping[tuple[str, int], str]) -> Iterator[Checked]:
    """The verdict on each start that the store knows of devices that audit, in order of device and time.

    Parameters
    ----------
    share : of the local decisions that devices audit whose facts tell no share, above 0 and up to 1; None: none do
    told : by device and boot the SHA-256 that was noted while the device ran; what is not there is not compared
    """
    devices = Devices(database)
    for device, text in database.read("SELECT device, facts FROM devices ORDER BY device"):
        last, ends = object_of(text), devices.ends(device)
        starts = [(boot, object_of(facts)) for boot, facts in ends if facts]
        boot = last.get("boot")
        if type(boot) is int and 0 < boot < 2**53 and isinstance(last.get("draws"), dict):
            is_told = boot in {k for k, _ in ends}
            starts = [(k, last if k == boot else facts) for k, facts in starts]
            starts = starts if is_told else [(boot, last), *starts]
        later: list[Mapping[str, Any]] = []
        verdicts = []
        for boot, facts in starts:
            if not later and boot != last.get("boot"):
                later.append(last)
            verdicts.append(_checked(database, device, boot, facts, share, told.get((device, boot)), later))
            later.append(facts)
        yield from reversed(verdicts)


def _checked(
    database: Database, device: str, boot: int, facts: Mapping[str, Any], share: float | None, noted: str | None,
    later: list[Mapping[str, Any]],
) -> Checked:  # fmt: skip
    rows = database.read("SELECT record FROM records WHERE device = ? AND boot = ? AND kind = 'audit'", (device, boot))
    audited = [object_of(row[0]).get("draw") for row in rows]
    name, n = facts["draws"].get("sha256"), facts["draws"].get("n")
    digest = name if isinstance(name, str) and len(name) == 64 else ""
    audits = facts.get("audits")
    own = audits.get("share") if isinstance(audits, dict) else None
    share = float(own) if isinstance(own, int | float) and 0 < own <= 1 else share
    state, missing, why = RUNNING, 0, "its facts tell no share of audits; name it with --audit"
    if share is not None:
        state, missing, why = check(facts, audited, share, noted, later)
    return Checked(device, boot, digest, n if type(n) is int else 0, len(rows), state, missing, why, share)


def check(
    facts: Mapping[str, Any], audited: list[Any], share: float, noted: str | None = None,
    later: Iterable[Mapping[str, Any]] = (),
) -> tuple[str, int, str]:  # fmt: skip
    """The state of a start, how many of its audits are missing, and what is wrong or waited for.

    Parameters
    ----------
    facts : the last facts of the start
    audited : the draw of each audit that the store has of it
    share : of the local decisions that the device audits
    noted : the SHA-256 of the seed as it was told while the device ran; None: nobody noted it
    later : facts of later starts

    Examples
    --------
    >>> facts = {"local": 5, "draws": {"n": 5, "sha256": "3" * 64}}
    >>> check(facts, [], 0.5)
    ('not told yet', 0, '')
    >>> check(facts, [], 0.5, noted="4" * 64)
    ('wrong', 0, 'its seed is another than the one it began with')
    """
    draws = facts["draws"]
    n, digest = draws.get("n"), draws.get("sha256")
    if noted is not None and digest != noted:
        return WRONG, 0, "its seed is another than the one it began with"
    if "seed" not in draws:
        return RUNNING, 0, ""
    try:
        seed = bytes.fromhex(draws["seed"])
    except (TypeError, ValueError):
        return WRONG, 0, "its seed is not one"
    if len(seed) != 32 or sha256(seed).hex() != digest:
        return WRONG, 0, "its seed does not have the SHA-256 that it says"
    if type(n) is not int or n != facts.get("local"):
        return WRONG, 0, "it has not drawn a number for each of its local decisions"
    if n > MOST_DRAWS:
        return WRONG, 0, f"it says that it has drawn {n} numbers, and at most {MOST_DRAWS} can be checked"
    due = {k for k in range(1, n + 1) if number(seed, k) < share}
    numbers = {k for k in audited if type(k) is int}
    missing, beside = sorted(due - numbers), sorted(numbers - due)
    outboxes = [_outbox(facts), *map(_outbox, later)]
    waiting = _most_waiting(outboxes)
    parts = [f"{len(missing)} missing ({_named(missing)})"] if missing else []
    if missing and waiting:
        parts.append(f"{waiting} records wait in its outbox")
    lost = sum(_count(outbox, name) for outbox in outboxes for name in LOST)
    if missing and lost:
        parts.append(f"{lost} records are gone by its own counters")
    wrong = [f"{len(beside)} not drawn ({_named(beside)})"] if beside else []
    if len(numbers) < len(audited):
        wrong.append("audits that come twice or say no draw")
    is_wrong = wrong or len(missing) > waiting
    return WRONG if is_wrong else LATE if missing else COMPLETE, len(missing), ", ".join(parts + wrong)


def _most_waiting(outboxes: list[Mapping[str, Any]]) -> int:
    """How many records of the first of these starts can still come.

    An outbox whose file is not open yet, or cannot be used, does not count what is in it. One with a record that is
    stored or gone has been open, for the records of this start are the first in it.
    """
    waiting = _count(outboxes[0], "waiting")
    for outbox in outboxes[1:]:
        is_counted = sum(_count(outbox, name) for name in ("stored", "dropped", "damaged")) > 0
        if "waiting" in outbox and is_counted and not _count(outbox, "unwritable"):
            waiting = min(waiting, _count(outbox, "waiting"))
    return waiting


def _outbox(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    outbox = facts.get("outbox")
    return outbox if isinstance(outbox, dict) else {}


def _count(outbox: Mapping[str, Any], name: str) -> int:
    value = outbox.get(name)
    return value if type(value) is int and value > 0 else 0


def _named(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:MOST_NAMED])) + (" and more" if len(numbers) > MOST_NAMED else "")
