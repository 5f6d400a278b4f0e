# SPDX-License-Identifier: Apache-2.0
"""The two slots of a store as a state machine without I/O: each function gives the state after one event.

    empty, good, bad, loading, ready, trial -- offered --> loading -- received --> ready -- started --> trial
    trial -- passed --> good        trial -- failed --> bad        good -- broken --> bad

One slot may be ``current``: its bundle has passed a trial, and it runs unless the other slot is on trial. A new bundle
always goes into another slot than that. Only a trial counts its starts, so no number of power cuts turns a good slot
bad; and a bundle that has no good one behind it stays on trial, because the device would have nothing else to run. Its
writer has every state on the disk before it acts on it. docs/SPEC-store-v1.md is normative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.record import field, record
from ..errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "EMPTY", "MAX_STARTS", "NAMES", "Slot", "Slots", "broken", "failed", "is_known", "offered", "passed", "received",
    "saw_cloud", "slots_from", "started", "stopped",
]  # fmt: skip

NAMES = ("a", "b")
STATES = ("empty", "loading", "ready", "trial", "good", "bad")
MAX_STARTS = 3  # of a trial: one for the trial itself, and two for power cuts in its time
MAX_REASON = 200  # characters of what is kept of a failure
_OTHER = {"a": "b", "b": "a"}


@record(frozen=True, slots=True)
class Slot:
    """One slot: its state, the bundle that it holds or awaits, and why it is bad."""

    state: str = "empty"
    sha256: str = ""  # of the bundle file, in hex
    release: tuple[int, int] = (0, 0)  # versions of root and targets that allowed it; (0, 0): no metadata were asked
    starts: int = 0  # of a trial
    reason: str = ""


EMPTY = Slot()


@record(frozen=True, slots=True)
class Slots:
    """All that a store remembers."""

    a: Slot = field(default_factory=Slot)
    b: Slot = field(default_factory=Slot)
    current: str = ""  # the slot whose bundle passed last; "": none has
    newest: tuple[int, int] = (0, 0)  # release; nothing older is received
    has_seen_cloud: bool = False

    def __getitem__(self, name: str) -> Slot:
        return self.a if name == "a" else self.b

    def put(self, name: str, slot: Slot, **changes: Any) -> Slots:
        """These slots with another one in this place."""
        values = {"a": self.a, "b": self.b, "current": self.current, "newest": self.newest}
        return Slots(**{**values, "has_seen_cloud": self.has_seen_cloud, name: slot, **changes})

    @property
    def runs(self) -> str:
        """The slot that a running device runs: the one on trial, else the current one; "" if neither is."""
        return next((name for name in NAMES if self[name].state == "trial"), self.current)

    @property
    def idle(self) -> str:
        """The slot for a new bundle: never the one that runs when no other can."""
        return _OTHER.get(self.current or self.runs or self.ready, "a")

    @property
    def ready(self) -> str:
        """The slot whose bundle is tried at the next start; "" if there is none."""
        return next((name for name in NAMES if self[name].state == "ready"), "")

    def to_json(self) -> dict[str, Any]:
        """The state as JSON has it."""
        slots = {
            name: {k: getattr(self[name], k) for k in ("state", "sha256", "release", "starts", "reason")}
            for name in NAMES
        }
        rest = {"current": self.current, "newest": self.newest, "has_seen_cloud": self.has_seen_cloud}
        return {"format": 1, **slots, **rest}


def slots_from(value: Mapping[str, Any]) -> Slots:
    """The state that ``to_json`` gave.

    Raises
    ------
    StoreError
        The object does not hold one.
    """
    try:
        if value["format"] != 1:
            raise ValueError("it has another format")
        a, b = (_slot(value[name]) for name in NAMES)
        slots = Slots(a, b, str(value["current"]), _release(value["newest"]), value["has_seen_cloud"] is True)
        if slots.current and (slots.current not in NAMES or slots[slots.current].state != "good"):
            raise ValueError("its current slot is not good")
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the store's state cannot be used ({error}); put a bundle into a new store") from error
    return slots


def _slot(value: Mapping[str, Any]) -> Slot:
    starts, reason = _whole(value["starts"]), str(value["reason"])
    slot = Slot(value["state"], value["sha256"], _release(value["release"]), starts, reason)
    if slot.state not in STATES or (slot.state != "empty" and len(bytes.fromhex(slot.sha256)) != 32):
        raise ValueError("a slot has an unknown state or no digest")
    return slot


def _release(value: Any) -> tuple[int, int]:
    root, targets = value
    return _whole(root), _whole(targets)


def _whole(number: object) -> int:
    if type(number) is not int or number < 0:
        raise ValueError("a number in it is not a whole one from 0 on")
    return number


# ---------------------------------------------------------------- a new bundle


def is_known(slots: Slots, sha256: str) -> bool:
    """Whether this bundle is the current one already, or will be tried at the next start."""
    return any(slots[n].sha256 == sha256 for n in NAMES if n == slots.current or slots[n].state in ("ready", "trial"))


def offered(slots: Slots, sha256: str, release: tuple[int, int] = (0, 0)) -> Slots:
    """A bundle that has been checked is about to be written; what the idle slot held is given up, a trial too.

    Raises
    ------
    StoreError
        The bundle is older than one that the store has had.
    """
    if release < slots.newest:
        new, old = (".".join(map(str, r)) for r in (release, slots.newest))
        raise StoreError(f"the bundle has release {new}, and the store has had {old}; sign it again in newer metadata")
    return slots.put(slots.idle, Slot("loading", sha256, release))


def received(slots: Slots, sha256: str) -> Slots:
    """The bundle is on the disk and reads back right.

    Raises
    ------
    StoreError
        Another bundle was offered meanwhile.
    """
    name = next((n for n in NAMES if slots[n].state == "loading" and slots[n].sha256 == sha256), "")
    if not name:
        raise StoreError("another bundle was put into the store meanwhile; put this one again")
    slot = slots[name]
    if slots.ready:  # the only bundle so far, which never ran
        slots = slots.put(slots.ready, EMPTY)
    return slots.put(name, Slot("ready", sha256, slot.release), newest=max(slots.newest, slot.release))


# ---------------------------------------------------------------- starts and trials


def started(slots: Slots) -> Slots:
    """The device starts: ``runs`` of the result is the slot to run.

    A ready slot goes on trial; a trial counts this start, and fails at the one beyond ``MAX_STARTS``.

    Raises
    ------
    StoreError
        No slot holds a bundle that may run.
    """
    ready = slots.ready
    if ready:
        rival = _OTHER[ready]
        if slots[rival].state == "trial":  # the only bundle so far, which never passed
            slots = slots.put(rival, _bad(slots[rival], "a newer bundle came before it passed its trial"))
        slot = slots[ready]
        return slots.put(ready, Slot("trial", slot.sha256, slot.release, 1))
    name = slots.runs
    if not name:
        reasons = [f"slot {n} is {slots[n].state} {slots[n].reason}".strip() for n in NAMES]
        raise StoreError(f"the store has no bundle to run ({'; '.join(reasons)}); put one into it")
    slot = slots[name]
    if slot.state == "good":
        return slots
    if slot.starts >= MAX_STARTS:
        if slots.current:
            return failed(slots, slot.sha256, f"{MAX_STARTS} starts did not end well")
        return slots
    return slots.put(name, Slot("trial", slot.sha256, slot.release, slot.starts + 1))


def stopped(slots: Slots, sha256: str) -> Slots:
    """The device was told to end, or ran out of items: this start does not count against a trial."""
    name = _on_trial(slots, sha256)
    slot = slots[name] if name else EMPTY
    return slots.put(name, Slot("trial", sha256, slot.release, slot.starts - 1)) if slot.starts else slots


def passed(slots: Slots, sha256: str) -> Slots:
    """The bundle on trial has passed: it is the current one from now on."""
    name = _on_trial(slots, sha256)
    return slots.put(name, Slot("good", sha256, slots[name].release), current=name) if name else slots


def failed(slots: Slots, sha256: str, reason: str) -> Slots:
    """The bundle on trial has failed, and the current one runs again; nothing changes if there is none."""
    name = _on_trial(slots, sha256)
    return slots.put(name, _bad(slots[name], reason)) if name and slots.current else slots


def broken(slots: Slots, name: str, reason: str) -> Slots:
    """The slot's files are not what was received, so nothing can run them; the other slot, if it is good, is current.

    The other slot is current also if it was so before: then this was a trial, or a ready slot.
    """
    other = _OTHER[name]
    return slots.put(name, _bad(slots[name], reason), current=other if slots[other].state == "good" else "")


def saw_cloud(slots: Slots) -> Slots:
    """A device of this store has been connected to its broker: from now on, a trial must be, too."""
    return slots.put("a", slots.a, has_seen_cloud=True)


def _on_trial(slots: Slots, sha256: str) -> str:
    """The slot with this bundle on trial; "" if a newer bundle has taken its place meanwhile."""
    return next((n for n in NAMES if slots[n].state == "trial" and slots[n].sha256 == sha256), "")


def _bad(slot: Slot, reason: str) -> Slot:
    return Slot("bad", slot.sha256, slot.release, slot.starts, reason[:MAX_REASON])
