# SPDX-License-Identifier: Apache-2.0
"""Drift in a run: joins promise, monitors and the rule for a broken promise to sensors, link, status and store.

With a store, what is known of a promise goes on from one start to the next (``promise.json`` in its folder); without
one, each start begins anew. What cannot be read or written is told, and decisions go on.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...base.files import read_bounded, remove_leftovers, write_whole
from ...bundle.agreement import above_shipped
from ...device.surroundings import Part
from ...errors import InputError
from ...link.wire import OK
from ...program.cost import Meter, to_micro, to_unit
from ...sensors.trouble import Episode
from ...settings.config import RunConfig
from ...settings.values import ACT, ALARM, FORWARD
from ..audits.bank import AuditedBank
from ..audits.companion import Auditing, agrees, is_told
from ..audits.draws import Draws
from .promise import BROKEN, Promise, promise_of
from .reaction import place_of
from .stability import LARGE, LASTING, WINDOW
from .watch import Watch, wanted_cloud

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...bundle.load import Loaded
    from ...device.surroundings import Case, Surroundings
    from ...link.link import Link
    from ...link.wire import Reply
    from .reaction import Rest

ONE_PART = {"drift": "its monitors and its promise are about decisions of one part"}

FILE = "promise.json"
MAX_BYTES = 32_768
MOST_NAMES = 5  # in a line
BACK_LOOKS = 64  # of 32 decisions, without anything moved, after which all is said to be back
EVERY_S = 600.0  # between two writes of the file, because cards wear out

Record = dict[str, Any]


def check(config: RunConfig) -> None:
    """Refuse a rule for a broken promise that nothing tests."""
    if config.on_broken is not None and config.drift is None:
        raise InputError("--on-broken needs --drift, which tests the promise")
    if config.on_broken == FORWARD and not config.audit:
        raise InputError(f"--on-broken {FORWARD} needs --broker and --audit, by which f0 tests the promise")


def make(run: Surroundings) -> Watching | None:
    """What the settings and the bundle ask for; None if there is nothing to watch."""
    config, loaded, note, auditing = run.config, run.loaded, run.note, run.part(Auditing)
    manifest, program = loaded.manifest, loaded.machine.program
    monitors = manifest.monitors
    if monitors is None:
        note("the bundle says nothing of its readings, so none are watched; export it again with --monitors")
    can_ask = auditing is not None and auditing.promised is not None
    promise = promise_of(manifest.claims if can_ask else {**manifest.claims, "audits": None}, config.on_broken or ALARM)
    if config.on_broken == FORWARD and (reason := _why_idle(loaded, promise)):
        note(f"--on-broken {FORWARD} has no effect: {reason}")
    if promise is None and monitors is None:
        return None
    audited = AuditedBank(run.bank, program, config.item_size) if auditing is None else auditing.bank
    memory = None
    if config.store is not None and promise is not None:
        stored = run.stored
        is_tried = (lambda: False) if stored is None else (lambda: stored.is_trial or stored.has_failed)
        memory = Memory(config.store, loaded.bundle.sha256, promise, note, is_tried)
    if auditing is not None and promise is not None and promise.agreement is not None and config.audit:
        auditing.retest = promise
    watch = None if monitors is None else Watch(monitors, program, manifest.shipped)
    return Watching(config, loaded, audited, run.link, promise, watch, memory, note)


def _why_idle(loaded: Loaded, promise: Promise | None) -> str:
    """Why the rule ``FORWARD`` never forwards anything; "" if it may."""
    if not loaded.manifest.hpc:
        return "the bundle never forwards"
    if loaded.manifest.clock:
        return "decisions by the clock are not forwarded by this rule"
    if promise is None or promise.agreement is None:
        return "the bundle promises nothing of f0's agreement, which audits could test"
    return ""


class Watching(Part):
    """One run's promise and monitors; for the device, a companion of each case (``device.surroundings.Companion``).

    Parameters
    ----------
    config : the command's
    loaded : the bundle that decides
    bank : for the device, in place of its own
    link : to the cloud, where there is one
    promise, watch, memory : each None where there is none
    note : called with each line that a user should read
    """

    bank: AuditedBank

    def __init__(
        self, config: RunConfig, loaded: Loaded, bank: AuditedBank, link: Link | None, promise: Promise | None,
        watch: Watch | None, memory: Memory | None, note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.bank, self._link, self._manifest = bank, link, loaded.manifest
        self._promise, self._watch, self._memory, self._note = promise, watch, memory, note
        self._acts = config.drift == ACT
        self._deadline_s = config.deadline_ms / 1000
        self._request_cost = to_unit(Meter(loaded.machine.program).request_cost)
        self._draws = Draws()  # of probes
        self._moved = Episode(BACK_LOOKS)
        self._own: Record | None = None  # the line before f0 was asked by the rule, where it was
        self._told = ("", frozenset[int]()) if promise is None else (promise.state, frozenset[int]())

    def begin(self, case: Case) -> None:
        """A case comes."""
        self._own = None

    def end(self, case: Case) -> None:
        """Have f0 answer the case after all, where the rule for a broken promise forwards it within its limit."""
        rest, record = None if self._promise is None else self._promise.rest, case.record
        if rest is None or record["route"] != "local" or self._manifest.clock:
            return
        link = self._link
        most = to_micro(record["cost"] + self.bank.request_cost() + self._request_cost)
        if link is None or not (case.can_ask and link.can_ask) or (case.limit is not None and most > case.limit):
            rest.uncovered += 1
            return
        can_learn = is_told(record)
        answer = int(case.decision.result) if self._manifest.value is None else 0
        place = place_of(answer, record["confidence"], len(record["sensors"]))
        if not can_learn or rest.takes(place, self._draws()):
            self._forward(case, link, rest if can_learn else None)

    def _forward(self, case: Case, link: Link, rest: Rest | None) -> None:
        record = case.record
        self._own, case.has_asked = record, True
        began = monotonic()
        readings, cost = self.bank.request_readings()
        reply = link.ask(readings, self._deadline_s, lambda: False)
        names, lacking = self._manifest.sensors, self.bank.request_lacks
        bought = [name for s, name in enumerate(names) if s in self.bank.readings]
        answer = self._answer(reply, [name for s, name in enumerate(names) if s in lacking or name in record["failed"]])
        if rest is not None and answer["route"] == "cloud":
            rest.answered(agrees=agrees(record, answer))
        case.record = record | {
            "cost": record["cost"] + cost + self._request_cost,
            "sensors": record["sensors"] + [name for name in bought if name not in record["sensors"]],
            "latency_ms": round(record["latency_ms"] + 1000 * (monotonic() - began), 3),
            **answer,
        }

    def _answer(self, reply: Reply | None, failed: list[str]) -> Record:
        if reply is None or reply.status != OK:
            return {"route": "degraded"}  # with the confidence of the answer that the device had given
        value, classes = self._manifest.value, self._manifest.classes
        answer = {"value": value.of(reply.result), "interval": None} if value else {"label": classes[reply.result]}
        sure = None if failed else reply.confidence / 10_000
        return {**answer, "confidence": sure, "route": "cloud", "failed": failed}

    def decided(self, record: Record) -> bool:
        """A decision is on its way to its reader; returns whether there is news for the status."""
        line = record if self._own is None else {**self._own, "price": record.get("price")}
        if self._promise is not None:
            may_be_more = above_shipped(line, self._manifest.shipped) < 0  # at a lower price more is forwarded
            self._promise.decided(is_forwarded=None if may_be_more else wanted_cloud(line))
        has_looked = self._watch is not None and self._watch.decided(line, self.bank.readings)
        if has_looked and self._acts and self._watch is not None:
            self.bank.without = self._watch.dead
        if self._memory is not None:
            self._memory.note(monotonic())
        return (has_looked or self._promise is not None) and self._tell()

    def _tell(self) -> bool:
        """Tell the log what is new."""
        suspects = {} if self._watch is None else self._watch.suspects
        has_moved = self._tell_moved()
        state, (last_state, last_suspects) = "" if self._promise is None else self._promise.state, self._told
        if state == last_state and len(suspects) == len(last_suspects):
            return has_moved
        if self._promise is not None and state == BROKEN and last_state != BROKEN:
            end = "f0 answers until it agrees" if self._promise.rest is not None else "have it trained again"
            self._note(f"the bundle's promise is broken since decision {self._promise.broken_since}; {end}")
            if self._memory is not None:
                self._memory.write()  # it stays broken, also if the power is cut now
        together = frozenset[int]() if self._watch is None else self._watch.together
        for s in suspects.keys() - last_suspects - together:
            self._note(self._suspicion(s, suspects[s][0]))
        if together - last_suspects:
            names = [self._manifest.sensors[s] for s in sorted(together)]
            self._note(
                f"{', '.join(names[:-1])} and {names[-1]} changed at the same time: the world or the bundle, not "
                f"{len(names)} broken sensors; all are still read: audit answers, and train again"
            )
        self._told = (state, frozenset(suspects))
        return True

    def _tell_moved(self) -> bool:
        """Tell the log when readings, confidences or forwards begin to be spread otherwise than in training."""
        if self._watch is None:
            return False
        moved = self._watch.moved_for_long(self._manifest.features)
        if not moved:
            is_over = self._moved.good() > 0
            if is_over:
                self._note("readings are spread as in training again")
            return is_over
        if not self._moved.bad():
            return False
        names = sorted(moved, key=lambda name: -moved[name])
        which = ", ".join([f"{name[:40]} {moved[name]:.2g}" for name in names[:MOST_NAMES]])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        self._note(
            f"{len(names)} of {self._watch.n_watched} distributions of the last {LASTING * WINDOW} readings have moved "
            f"since training ({which}{more}; above {LARGE:g} is much): answers may be wrong however sure they look; "
            "audit them, and train again"
        )
        return True

    def _suspicion(self, s: int, why: str) -> str:
        names, doubts = self._manifest.sensors, () if self._watch is None else sorted(self._watch.doubts[s])
        who = " or ".join(names[t] for t in (s, *doubts))
        if doubts:
            return f"sensor {who} seems to fail slowly, or the world has changed ({why}); all are still read"
        end = "it counts as dead" if s in self.bank.without else "it is still read"
        return f"sensor {who} seems to fail slowly ({why}); {end}"

    def facts(self) -> dict[str, Any]:
        """How promise and monitors stand."""
        facts = {} if self._promise is None else {"promise": self._promise.facts()}
        if self._watch is None:
            return facts
        return {**facts, "drift": self._watch.facts(self._manifest.features, self._manifest.sensors, acts=self._acts)}

    def ended(self) -> None:
        """No decision follows."""
        if self._memory is not None:
            self._memory.write()


class Memory:
    """The file in which a promise goes on from one start to the next.

    Parameters
    ----------
    folder : of the store
    sha256 : of the bundle; what is known of another one's promise is forgotten
    promise : which goes on from the file, if there is one for it
    note : called with each line that a user should read
    is_tried : whether the bundle has not passed its trial, so that the file may be of the one that runs if it fails
    """

    def __init__(
        self, folder: str, sha256: str, promise: Promise, note: Callable[[str], None],
        is_tried: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._path, self._sha256, self._promise, self._note = Path(folder) / FILE, sha256, promise, note
        self._is_tried, self._is_other = is_tried, False
        self._next_s = monotonic() + EVERY_S
        remove_leftovers(self._path)
        if self._path.exists():
            self._read()

    def _read(self) -> None:
        try:
            state = json.loads(read_bounded(self._path, MAX_BYTES, "state of a promise", remedy="remove it"))
            is_ours = isinstance(state, dict) and state.get("bundle") == self._sha256
            is_usable = isinstance(state, dict) and isinstance(state.get("promise"), dict)
        except (InputError, ValueError, RecursionError):
            is_ours = is_usable = False
            self._note(f"{self._path} cannot be used; the promise is tested from the beginning")
        self._is_other = is_usable and not is_ours
        if is_ours and is_usable and not self._promise.restore(state["promise"]):
            self._note(f"{self._path} is of another promise; it is tested from the beginning")

    def note(self, now: float) -> None:
        """Write the file if it was long ago."""
        if now >= self._next_s:
            self.write()

    def write(self) -> None:
        """Write the file."""
        self._next_s = monotonic() + EVERY_S
        if self._is_other and self._is_tried():
            return
        state = {"bundle": self._sha256, "promise": self._promise.to_json()}
        try:
            write_whole(self._path, json.dumps(state, separators=(",", ":")).encode())
        except InputError as error:
            self._note(f"{error}; decisions go on")
