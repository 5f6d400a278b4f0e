# SPDX-License-Identifier: Apache-2.0
"""A device in virtual time: a real device's machine, requests, outbox and slots, over a disk in memory.

Everything but its disk is lost when its power is cut; it then makes the decision under way again. A bundle that crashes
ends the process at its first decision, which is a start that its trial counts.
"""

from __future__ import annotations

import json
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.device.machine import Deciding, Read
from hardcase_edge.device.surroundings import Case
from hardcase_edge.exchange.exchange import Exchange, Over
from hardcase_edge.fleet.outbox.records import Made, Recorder
from hardcase_edge.fleet.store.slots import failed, passed
from hardcase_edge.fleet.store.trial import PASSED, Rules, Trial
from hardcase_edge.link.requests import Requests

from .disk import Disk, DiskQueue, DiskStore, Rows
from .keeper import WALL_S

if TYPE_CHECKING:
    from .surroundings import Surroundings

FIRST = b"the first bundle"
RESTART_MS = 1_000  # of a process
CONNECT_MS = 200  # at least, and up to five times as long
REPORT_EVERY = 10  # decisions
RETRY_MS = 1_500  # the longest pause between two attempts, as of ``ConnectionConfig``


class Device:
    """One device; it is the ``Channel`` of its outbox, too.

    Parameters
    ----------
    shared : Surroundings
        What all devices share.
    number : int
    """

    __slots__ = (
        "_boot", "_deciding", "_disk", "_is_loading", "_is_ready", "_is_trying", "_process", "_queue", "_recorder",
        "_requests", "_rows", "_store", "_trial", "_wake_at", "battery", "bundle", "connection", "dead", "drift",
        "is_away", "is_on", "n_connects", "n_done", "number", "shared", "skew_s",
    )  # fmt: skip

    make_exchange: Any = Exchange
    make_disk: Any = Disk
    make_rows: Any = Rows

    def __init__(self, shared: Surroundings, number: int) -> None:
        self.shared, self.number = shared, number
        self.n_done = self.n_connects = self.connection = 0
        self.is_on, self.is_away = True, False
        self.dead: frozenset[int] = frozenset()
        self.drift = self.skew_s = 0.0
        self.battery = inf  # decisions
        self.bundle = FIRST
        self._disk = self.make_disk(shared.clock)
        self._rows = self.make_rows(
            lambda made: shared.referee.durable(self._key(made)), lambda made: shared.referee.forgotten(self._key(made))
        )
        self._store: DiskStore | None = None  # made when there is more than the first bundle
        self._process = 0  # how often its process was started
        self._start()

    # ------------------------------------------------------------ starts and ends

    def _start(self) -> None:
        """Start the process: everything in memory is new."""
        shared = self.shared
        self._process += 1
        self._boot = int(self._disk.files.get("boot", b"0")) + 1
        self._disk.write_whole("boot", b"%d" % self._boot)
        exchange = self.make_exchange(shared.fleet.resend_ms, shared.counters)
        self._requests = Requests(shared.form, shared.names[self.number], exchange, shared.counters)
        self._deciding: Deciding | None = None
        self._queue: DiskQueue | None = None  # made with the first record, or if the disk has some
        self._recorder: Recorder | None = None
        self._trial: Trial | None = None
        self._is_loading = self._is_ready = self._is_trying = False
        self._wake_at = inf
        if self._store is not None:
            started = self._store.start()
            self.bundle = self._disk.files[f"{started.name}/bundle"]
            if started.slot.state == "trial":
                rules = Rules(decisions=shared.trial_decisions, deadline_s=600)
                self._trial = Trial(rules, shared.clock.seconds)
            shared.started(self.number, self.bundle)
        if self._rows.rows:
            self._open_outbox()
        jitter_ms = 1 + int(shared.draw() * 4 * CONNECT_MS)
        shared.clock.after(CONNECT_MS + jitter_ms, self._connect, self._process)
        shared.clock.after(jitter_ms, self.decide, self._process)

    def lose_power(self, for_ms: int) -> None:
        """The power goes, and comes back."""
        if self.is_on:
            self._disk.cut()
            self._end()
            self.is_on = False
            self.shared.clock.after(for_ms, self._power_up)

    def _power_up(self) -> None:
        if self.battery > 0:
            self.is_on = True
            self._start()

    def _end(self) -> None:
        """The process ends, and its memory is gone."""
        self._process += 1
        self.connection = 0
        self.shared.referee.interrupted(self.number)
        self.shared.gone(self.number)

    def _restart(self) -> None:
        self._end()
        self.shared.clock.after(RESTART_MS, self._start_again, self._process)

    def _start_again(self, process: int) -> None:
        if process == self._process and self.is_on:
            self._start()

    # ------------------------------------------------------------ the connection

    def _connect(self, process: int) -> None:
        if process != self._process or not self.is_on:
            return
        if self.is_away or not self.shared.broker.is_up:
            self._is_trying = True
            return
        self.n_connects += 1
        self.connection = self.n_connects
        self._requests.exchange.connected()
        self.shared.came(self.number)
        self.report()
        self._act()
        self._step()

    def try_again(self) -> None:
        """The way to the broker is free again; the next attempt is due within the pause between two of them."""
        if self._is_trying:
            self._is_trying = False
            self.shared.clock.after(1 + int(self.shared.draw() * RETRY_MS), self._connect, self._process)

    def disconnect(self) -> None:
        """The connection breaks; the device tries again."""
        if self.connection:
            self.connection = 0
            self.shared.gone(self.number)
            self.shared.clock.after(CONNECT_MS + int(self.shared.draw() * 4 * CONNECT_MS), self._connect, self._process)

    # ------------------------------------------------------------ decisions

    def decide(self, process: int) -> None:
        """Begin the next decision."""
        shared = self.shared
        if process != self._process or self._deciding is not None or self.n_done >= shared.fleet.decisions:
            return
        now = shared.clock.now
        shared.referee.asked(now, self.number, self.n_done)
        if self._trial is not None and self.bundle.startswith(b"crashing"):
            self._restart()
            return
        can_ask = self.connection != 0 and self._requests.exchange.can_ask(now)
        self._deciding = shared.decider.decide(shared.clock.seconds, dead=self.dead, can_ask=can_ask)
        self._walk(None)

    def _walk(self, event: tuple[float, Any] | None) -> None:
        """Do what the machine says, until it waits for the cloud or has decided."""
        deciding, shared = self._deciding, self.shared
        assert deciding is not None
        try:
            while isinstance(effect := deciding.send(event), Read):  # type: ignore[arg-type]
                row = shared.row(self.number, self.n_done)
                x = row[0] + self.drift
                event = shared.clock.seconds, {s: (x if s == 0 else row[1],) for s in effect.sensors}
        except StopIteration as end:
            self._decided(end.value)
            return
        id_, deadline_ms = shared.random_id(), shared.fleet.deadline_ms
        self._requests.ask(shared.clock.now, id_, effect.readings, deadline_ms, effect.may_resend)
        self._act()

    def _act(self) -> None:
        """Do what the requests say."""
        shared, requests = self.shared, self._requests
        while requests.is_asking:
            now = shared.clock.now
            action = requests.poll(now, self.connection)
            if action is None:
                waiting = requests.exchange.waiting
                shared.clock.after(requests.exchange.due(now) or 0, self._timer, self._process, waiting)
                return
            if isinstance(action, Over):
                self._walk((shared.clock.seconds, None if action.reply is None else action.reply.answer))
                return
            shared.broker.request(self.number, action.payload, now + action.deadline_ms, self.refused)
            requests.exchange.sent()

    def _timer(self, process: int, id_: bytes) -> None:
        if process == self._process and self._requests.exchange.waiting == id_:
            self._act()

    def replied(self, payload: bytes) -> None:
        """A reply arrives."""
        if self.connection:
            self._requests.received(self.shared.clock.now, payload)
            self._act()

    def refused(self, why: str) -> None:
        """The broker says that nobody takes the request."""
        if self.connection:
            self._requests.exchange.refused(self.shared.clock.now, why)
            self._act()

    def _decided(self, case: Case) -> None:
        shared, now, decision = self.shared, self.shared.clock.now, case.decision
        shared.referee.decided(now, self.number, self.n_done, decision.route, decision.result)
        self._deciding = None
        draw = shared.draw
        self._publish(case)
        self.n_done += 1
        self.battery -= 1
        if self.battery <= 0:
            shared.retired.add(self.number)
            self._end()
            self.is_on = False
            return
        if self._trial is not None:
            self._judge(self._trial.decided(now / 1000, is_connected=self.connection != 0, memory_bytes=0))
        elif self._is_ready:
            self._restart()
            return
        if shared.director is not None and self.n_done % REPORT_EVERY == 0:
            self.report()  # the last report may have been lost
        interval = shared.interval_ms
        shared.clock.after(interval - interval // 10 + int(draw() * (interval // 5 + 1)), self.decide, self._process)

    # ------------------------------------------------------------ records

    def _publish(self, case: Case) -> None:
        shared = self.shared
        is_audit = shared.draw() < shared.fleet.audit
        if not is_audit and shared.draw() >= shared.fleet.publish:
            return
        if self._recorder is None:
            self._recorder = Recorder(
                shared.names[self.number], sha256(self.bundle).hex(), self._boot, now=self.wall,
                monotonic=lambda: self.shared.clock.seconds,
            )  # fmt: skip
        line = shared.decider.finish(case, shared.clock.seconds, self.wall())
        row = shared.row(self.number, self.n_done)
        record = self._recorder.audit(line, row, 0.0) if is_audit else self._recorder.decision(line)
        if record is None:
            return
        shared.referee.made(self._key(record), record.payload)
        if self._queue is None:
            self._open_outbox()
        assert self._queue is not None
        self._queue.add(record, shared.clock.seconds)
        self._step()

    def wall(self) -> float:
        """The time that its clock shows, in seconds."""
        return WALL_S + self.shared.clock.seconds + self.skew_s

    def _open_outbox(self) -> None:
        self._queue = DiskQueue(self._rows, self.wall)
        self._step()

    def acknowledged(self, payload: bytes) -> None:
        """The store says what it has."""
        if self.connection and self._queue is not None:
            self._queue.acknowledged(payload, self.shared.clock.seconds)
            self._step()

    def _step(self) -> None:
        """Let the outbox send and write, and call again when it wants to."""
        if self._queue is None:
            return
        shared = self.shared
        wake_at = self._queue.step(self, shared.clock.seconds)
        if wake_at < inf and not (shared.clock.seconds < self._wake_at <= wake_at):
            self._wake_at = wake_at
            wait_ms = max(1, ceil((wake_at - shared.clock.seconds) * 1000))
            shared.clock.after(wait_ms, self._wake, self._process, wake_at)

    def _wake(self, process: int, at: float) -> None:
        if process == self._process and at == self._wake_at:  # not one that an earlier one has replaced
            self._wake_at = inf
            self._step()

    @property
    def is_connected(self) -> bool:
        """Whether something can be sent now."""
        return self.connection != 0

    @property
    def connects(self) -> int:
        """How many times the connection has come up."""
        return self.n_connects

    @property
    def is_asking(self) -> bool:
        """Whether a request waits for its reply."""
        return self._requests.is_asking

    def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
        """Send a record."""
        self.shared.broker.publish("record", self.number, payload)
        return True

    def waiting(self) -> list[tuple[str, int, int]]:
        """The records that its disk still has."""
        return [self._key(made) for made in self._rows.rows.values()]

    def _key(self, made: Made) -> tuple[str, int, int]:
        return self.shared.names[self.number], made.boot, made.sequence

    # ------------------------------------------------------------ a new bundle

    def offered(self, bundle: bytes) -> None:
        """An offer arrives; the bundle is loaded after a while."""
        is_here = self._is_loading or self._is_ready or bundle == self.bundle
        if self.connection and not is_here:
            self._is_loading = True
            self.report("loading")
            self.shared.clock.after(self.shared.load_ms, self._loaded, self._process, bundle)

    def _loaded(self, process: int, bundle: bytes) -> None:
        if process != self._process:
            return
        self._is_loading = False
        if not self.connection:
            return
        if self._store is None:
            self._store = DiskStore(self._disk)
            self._store.put(FIRST)
            self._store.start()
            self._store.apply(lambda slots: passed(slots, sha256(FIRST).hex()))
        slots = self._store.slots()
        digest = sha256(bundle).hex()
        if all((slots[name].sha256, slots[name].state) != (digest, "bad") for name in ("a", "b")):
            self._is_ready = bool(self._store.put(bundle))

    def _judge(self, verdict: str) -> None:
        store, digest = self._store, sha256(self.bundle).hex()
        assert store is not None
        if verdict == PASSED:
            self._trial = None
            store.apply(lambda slots: passed(slots, digest))
            self.report()
        elif verdict:
            store.apply(lambda slots: failed(slots, digest, verdict))
            self._trial = None
            self._restart()

    def report(self, state: str = "") -> None:
        """Publish the facts: what runs, in which state, and what failed here."""
        director = self.shared.director
        if not self.connection or director is None:
            return
        facts: dict[str, Any] = {"bundle": sha256(self.bundle).hex()}
        if state:
            facts["update"] = {"state": state, "sha256": director.target, "have": 0, "of": 1}
        if self._store is not None:
            slots = self._store.slots()
            facts["store"] = {"state": "trial" if self._trial is not None else "good"}
            for name in ("a", "b"):
                if slots[name].state == "bad":
                    facts["store"]["failed"] = {"sha256": slots[name].sha256, "reason": slots[name].reason}
        self.shared.broker.publish("facts", self.number, json.dumps(facts, separators=(",", ":")).encode())
