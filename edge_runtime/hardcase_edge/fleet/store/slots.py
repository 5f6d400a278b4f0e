# SPDX-License-Identifier: Apache-2.0
"""The two slots of a store as a state machine without I/O: each function gives the state after one event.

    empty, good, bad, loading, ready, trial -- offered --> loading -- received --> ready -- started --> trial
    trial -- passed --> good     trial -- failed --> bad     trial -- a newer one started --> ready, behind it
    good -- broken --> bad       ready, behind -- what is before it failed, started --> trial

A bundle rises in three ranks: it is tried, it has *worked* (it has decided as often as its trial asks, with readings
and without breaking a rule), and it is good. One slot may be ``current``: its bundle is good, and it runs unless the
other slot is on trial. Until there is one, the slot *behind* the one on trial has what the device goes back to. A new
bundle goes into the slot of the lower rank, so the only bundle that has worked is never given up; and it cannot fail,
because the device would have nothing else to run. Its writer has every state on the disk before it acts on it.
docs/SPEC-store-v1.md is normative, and has a table of all pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.record import field, record
from ...errors import NoBundleError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMES = ("a", "b")
STATES = ("empty", "loading", "ready", "trial", "good", "bad")
START = 3  # points of a start of a trial that has not ended well; one point if the bundle had worked in it
MOST, MOST_WORKED = 3 * START, 5 * START  # points from which on a trial fails; the second once the bundle has worked
MAX_REASON = 200  # characters of what is kept of a failure
DAMAGED = "its file is damaged"  # why a slot is bad that failed no trial
_OTHER = {"a": "b", "b": "a"}


@record(frozen=True, slots=True)
class Slot:
    """One slot: its state, the bundle that it holds or awaits, and why it is bad."""

    state: str = "empty"
    sha256: str = ""  # of the bundle file, in hex
    release: tuple[int, int] = (0, 0)  # versions of root and targets that allowed it; (0, 0): no metadata were asked
    starts: int = 0  # of a trial, in which the bundle has not worked; at least 1 in a slot behind
    reason: str = ""
    worked: int = 0  # starts of a trial in which the bundle has worked; 1 stays of those that ended well

    @property
    def has_worked(self) -> bool:
        """Whether its bundle is good, or has worked here."""
        return self.state == "good" or (self.worked > 0 and self.state in ("trial", "ready"))

    @property
    def is_spent(self) -> bool:
        """Whether so many of its starts did not end well that a trial has failed."""
        return START * self.starts + self.worked >= (MOST_WORKED if self.worked else MOST)


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
        """The slot that a running device runs: the one on trial, else what it goes back to; "" if there is none."""
        return next((name for name in NAMES if self[name].state == "trial"), self.current or self.behind)

    @property
    def idle(self) -> str:
        """The slot for a new bundle: of the lower rank, and of two of one rank the one that does not run."""
        if self.current:
            return _OTHER[self.current]
        return min(NAMES, key=lambda name: (self._rank(name), name == self.runs, name == self.ready))

    def _rank(self, name: str) -> int:
        slot = self[name]
        return 2 if slot.has_worked else slot.state == "trial" or name == self.behind

    @property
    def ready(self) -> str:
        """The slot whose bundle is new and tried at the next start; "" if there is none."""
        return next((n for n in NAMES if self[n].state == "ready" and not self[n].starts and not self[n].worked), "")

    @property
    def behind(self) -> str:
        """The slot whose bundle was on trial when a newer one began its own; "" if there is none."""
        return next((n for n in NAMES if self[n].state == "ready" and n != self.ready), "")

    def to_json(self) -> dict[str, Any]:
        """The state as JSON has it."""
        slots = {
            name: {k: getattr(self[name], k) for k in ("state", "sha256", "release", "starts", "reason", "worked")}
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
    starts, reason, worked = _whole(value["starts"]), str(value["reason"]), _whole(value.get("worked", 0))
    slot = Slot(value["state"], value["sha256"], _release(value["release"]), starts, reason, worked)
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
    """Whether this bundle is the current one already, runs, or will be tried at the next start."""
    names = (slots.current, slots.ready, slots.runs)
    return any(name and slots[name].sha256 == sha256 for name in names)


def mended(slots: Slots, sha256: str, digest_of: Callable[[str], str]) -> Slots:
    """As ``slots``, but a slot is bad whose files should be this bundle and are not, so that it can be put again.

    digest_of : SHA-256 of what a slot's files hold, "" if they are damaged
    """
    for name in NAMES:
        is_held = slots[name].state in ("ready", "trial", "good") and slots[name].sha256 == sha256
        if is_held and digest_of(name) != sha256:
            slots = broken(slots, name)
    return slots


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

    A ready slot goes on trial, and one on trial stays behind it; a trial counts this start, and fails at the one beyond
    its points. The start that goes back to a slot counts nothing against it.

    Raises
    ------
    NoBundleError
        No slot holds a bundle that may run.
    """
    ready = slots.ready
    if ready:
        rival, slot = _OTHER[ready], slots[ready]
        if slots[rival].state == "trial":
            slots = slots.put(rival, _with(slots[rival], "ready", starts=max(1, slots[rival].starts)))
        return slots.put(ready, _with(slot, "trial", starts=1))
    name = slots.runs
    if not name:
        reasons = [f"slot {n} is {slots[n].state} {slots[n].reason}".strip() for n in NAMES]
        raise NoBundleError(f"the store has no bundle to run ({'; '.join(reasons)}); put one into it")
    slot = slots[name]
    if slot.state == "good":
        return slots
    if slot.state == "ready":
        return slots.put(name, _with(slot, "trial"))
    if slot.is_spent:
        after = failed(slots, slot.sha256, f"{slot.starts + slot.worked} starts did not end well")
        return started(after) if after != slots else slots
    return slots.put(name, _with(slot, "trial", starts=slot.starts + 1))


def without_trial(old: Slots, new: Slots) -> tuple[Slots, str]:
    """As the ``new`` state of a start that cannot be written, and the slot to run: what a trial would go back to."""
    name = old.current or old.behind
    if not name or not old[name].has_worked:
        return new, new.runs
    slot = old[name]
    return (new.put(name, slot if slot.state == "good" else _with(slot, "trial")), name)


def worked(slots: Slots, sha256: str) -> Slots:
    """In this start, the bundle on trial has decided as often as its trial asks, with readings, and broken no rule."""
    slots = _begun(slots, sha256)
    name = is_on_trial(slots, sha256)
    if not name:
        return slots
    slot = slots[name]
    return slots.put(name, _with(slot, starts=max(0, slot.starts - 1), worked=min(slot.worked + 1, MOST_WORKED)))


def stopped(slots: Slots, sha256: str, *, has_worked: bool = False) -> Slots:
    """The device was told to end, or ran out of items: this start does not count against a trial.

    ``has_worked``: whether ``worked`` was noted of this start.
    """
    name = is_on_trial(slots, sha256)
    if not name:
        return slots
    slot = slots[name]
    if has_worked:
        return slots.put(name, _with(slot, worked=max(1, slot.worked - 1)))
    return slots.put(name, _with(slot, starts=max(0, slot.starts - 1)))


def passed(slots: Slots, sha256: str) -> Slots:
    """The bundle on trial has passed: it is the current one from now on."""
    slots = _begun(slots, sha256)
    name = is_on_trial(slots, sha256)
    return slots.put(name, Slot("good", sha256, slots[name].release), current=name) if name else slots


def failed(slots: Slots, sha256: str, reason: str, *, is_useless: bool = False) -> Slots:
    """The bundle on trial has failed, and the device goes back to the current slot, or to the one behind.

    Nothing changes if the device would lose by it: if it has nothing to go back to, or if this bundle has worked and
    what is behind it has not. ``is_useless``: the bundle can decide nothing here, so nothing to run is better.
    """
    name = is_on_trial(slots, sha256)
    if not name:
        return slots
    back = slots.current or slots.behind
    is_lower = slots[name].has_worked and not (back and slots[back].has_worked)
    return slots if is_lower or not (back or is_useless) else slots.put(name, _bad(slots[name], reason))


def broken(slots: Slots, name: str) -> Slots:
    """The slot's files are not what was received, so nothing can run them; the other slot, if it is good, is current.

    The other slot is current also if it was so before: then this was a trial, or a ready slot.
    """
    other = _OTHER[name]
    return slots.put(name, _bad(slots[name], DAMAGED), current=other if slots[other].state == "good" else "")


def saw_cloud(slots: Slots) -> Slots:
    """A device of this store has been connected to its broker: from now on, a trial must be, too."""
    return slots.put("a", slots.a, has_seen_cloud=True)


def is_on_trial(slots: Slots, sha256: str) -> str:
    """The slot with this bundle on trial; "" if there is none, as when a newer bundle has taken its place."""
    return next((n for n in NAMES if slots[n].state == "trial" and slots[n].sha256 == sha256), "")


def _begun(slots: Slots, sha256: str) -> Slots:
    """The slots with this bundle on trial, which runs, also if its start could not be written."""
    return started(slots) if slots.ready and slots[slots.ready].sha256 == sha256 else slots


def _bad(slot: Slot, reason: str) -> Slot:
    return Slot("bad", slot.sha256, slot.release, slot.starts, reason[:MAX_REASON])


def _with(slot: Slot, state: str = "trial", *, starts: int | None = None, worked: int | None = None) -> Slot:
    """A slot in another state, with the bundle that it has."""
    starts, worked = slot.starts if starts is None else starts, slot.worked if worked is None else worked
    return Slot(state, slot.sha256, slot.release, starts, "", worked)
