# SPDX-License-Identifier: Apache-2.0
"""Random lives of a device's store from an empty folder on: is a bundle that has worked here ever lost?

``Store``, ``Run``, ``Updater`` and ``Incoming`` are the real ones, on a real folder; only sensors, clock and network
are here, and the checks of a bundle, whose kind is the first word of its bytes. Before each write, and behind it, the
state is judged as the one that a power cut leaves there: what would the next start run, and what stands behind it? What
has worked is counted here, from the decisions that were made, and not taken from the store.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import BundleError, HardcaseError, InputError, NoBundleError
from hardcase_edge.fleet.store import folder, slots
from hardcase_edge.fleet.store import run as running
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.trial import Rules
from hardcase_edge.fleet.update import incoming
from tests.helpers.edge.update_rig import Rig

RULES = Rules(decisions=3, deadline_s=600, memory_bytes=1_000, audits=3)
Event = tuple[str, int]
KINDS = (  # of bundles
    "good",  # f0 answers its audits, and it passes
    "waits",  # nobody answers its audits
    "partly",  # one of its sensors is not here
    "dumb",  # none of its sensors is here
    "crashes",  # at its first decision
    "tires",  # crashes from its fifth decision on
    "differs",  # f0 does not agree
    "fat", "slow",  # takes too much memory, or too much time
    "elsewhere",  # cannot be loaded when it is to run
    "damaged",  # is refused by its check
    "kills",  # its check kills the process
)  # fmt: skip
EVENTS = (
    *["offer"] * 3, *["put"] * 2, *["decide"] * 6, *["start"] * 2, "stop", *["kill"] * 2, *["cut"] * 4, "wait", "audit",
    "cloud", "full disk",
)  # fmt: skip
CUT = "power cut at a write, or killed by a check"
STUCK = "the last bundle, which is good, does not come to stay"


class PowerCutError(BaseException):
    """The power goes, or the process is killed."""


def kind_of(data: bytes) -> str:
    return data.split(b" ", 1)[0].decode()


def load(data: bytes, **more: object) -> None:
    """In place of the bundle's own checks."""
    if kind_of(data) == "kills":
        raise PowerCutError
    if kind_of(data) not in KINDS or kind_of(data) == "damaged":
        raise BundleError("it does not replay its golden cases")


class Power:
    """When the power goes, and whether the disk is full."""

    is_full = False
    cut_in = -1  # writes until the power goes; below 0: not soon

    def before_a_write(self) -> None:
        """Nothing, a power cut, or a refusal."""
        if self.cut_in == 0:
            self.cut_in = -1
            raise PowerCutError
        self.cut_in -= self.cut_in > 0
        if self.is_full:
            raise InputError("no space left on the device")


@contextmanager
def world() -> Iterator[None]:
    """Bundles are those of these lives, whose signatures are right, and folders in memory are not flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.fleet.store.receive.load_bytes", load)
        patch.setattr("hardcase_edge.fleet.store.receive.check_signature", lambda *args: None)
        patch.setattr("hardcase_edge.fleet.store.receive.read_bounded", lambda *args, **more: b"")
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(os, "posix_fallocate", lambda *args: None, raising=False)
        yield


class Life(Rig, Power):
    """One device.

    Attributes
    ----------
    wrong : list of str
        States in which a bundle had worked, and none that had would run or stand behind the one on trial.
    n_states : int
        States that were judged: before and behind each write.
    seen : Counter
        What happened.
    """

    def __init__(self, root: Path, **more: object) -> None:
        self.root, self.number = root, 0
        self.bundles: dict[str, bytes] = {}
        self.worked: set[str] = set()  # bundles that have worked here, by their SHA-256
        self.working = ""  # the one whose decision is being judged, which may be the one by which it has worked
        self.cut_while_working: set[str] = set()  # those whose such decision was the last before the power went
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        self.n_states = 0
        self.is_up = self.is_on = False
        self.n_good = 0  # decisions of this start, with readings
        self.run: Run | None = None
        super().__init__(root, **({"wall": lambda: 0.0, "key": "key"} | more))

    def _begin(self, tmp_path: Path) -> None:
        """The folder is empty."""

    # ------------------------------------------------------------ the disk

    def write(self, real, path: Path, data: bytes) -> None:
        """In place of a file's write."""
        self.judge(f"before {path.name}")
        self.before_a_write()
        real(path, data)
        self.judge(f"behind {path.name}")

    @contextmanager
    def disk(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name in ((folder, "_write"), (incoming, "write_whole")):
                real = getattr(module, name)
                patch.setattr(module, name, lambda path, data, real=real: self.write(real, path, data))
            yield

    def judge(self, where: str) -> None:
        """What the next start would find here."""
        self.n_states += 1
        if not self.worked:
            return
        try:
            known = self.store.slots()
            after = slots.started(known)
        except HardcaseError as error:
            self.wrong.append(f"{where}: {error}")
            return
        names = [name for name in (after.runs, after.current or after.behind) if name and self.is_whole(after, name)]
        if not {after[name].sha256 for name in names} & (self.worked | self.cut_while_working | {self.working}):
            self.wrong.append(f"{where}: {known}")

    def is_whole(self, known: slots.Slots, name: str) -> bool:
        path = self.root / "store" / name / "bundle.hcb"
        return path.exists() and sha256(path.read_bytes()).hex() == known[name].sha256

    # ------------------------------------------------------------ the process

    def restart(self) -> None:
        self.fetched.clear()
        super().restart()

    def die(self) -> None:
        """The process is no more; the disk is as it is."""
        self.cut_while_working |= {self.working} - {""}
        self.working = ""
        self.run, self.is_on = None, False
        self.incoming.close()
        self.store = Store(self.root / "store")
        self.restart()

    def go(self) -> None:
        """What ``running.run`` does until a bundle decides, or the device waits for one."""
        self.restart()
        while True:
            try:
                started = self.store.start()
            except NoBundleError:
                self.seen["no bundle"] += 1
                self.run, self.is_on = None, True  # it waits
                self.store.make()
                return
            except HardcaseError:
                assert self.is_full
                self.run, self.is_on = None, False
                return
            self.run = Run(self.store, started, RULES, lambda line: None)
            if kind_of(self.bundles[started.slot.sha256]) != "elsewhere":
                break
            self.run.fail("it cannot be loaded", is_useless=True)
            if not self.run.has_failed:
                self.run.stop()
                self.run, self.is_on = None, False  # the process ends with status 2
                return
        self.n_good, self.is_on = 0, True
        self.run.begin(self.now, has_broker=True, promised=0.9)

    # ------------------------------------------------------------ what happens

    def do(self, event: Event) -> None:
        """One event."""
        what, number = event
        self.seen[what] += 1
        self.guarded(getattr(self, f"_{what.replace(' ', '_')}"), number)
        self.judge(f"after {what}")

    def guarded(self, part: Callable[..., object], *args: object) -> None:
        """A part of the device's process, which a power cut may end."""
        try:
            part(*args)
        except PowerCutError:
            self.seen[CUT] += 1
            self.die()

    def new_bundle(self, number: int) -> bytes:
        """One of some kind; now and then one that was there before."""
        if number % 7 == 0 and self.bundles:
            return self.bundles[sorted(self.bundles)[number % len(self.bundles)]]
        self.number += 1
        data = f"{KINDS[number % len(KINDS)]} {self.number} ".encode() + b"x" * (4 * number)
        self.bundles[sha256(data).hex()] = data
        return data

    def _offer(self, number: int) -> None:
        """A bundle comes over the air, to the device that runs or waits; sometimes the power goes on the way."""
        data = self.new_bundle(number)
        if not self.is_on:
            self.go()
        if self.is_on:
            self.bring(data, most=number % 5 if number % 11 == 0 else 100)

    def bring(self, data: bytes, most: int = 100) -> None:
        self.now += 3_700
        self.fetched.clear()
        self.offer(self.offer_of(data, signature=b"s" * 64))
        self.feed(data, most)
        self.take_over()

    def take_over(self) -> None:
        """What has come over the air runs, if it is ready."""
        if self.updater.is_ready:
            self.seen["taken over the air"] += 1
            if self.run is not None:
                self.run.stop()
            self.go()

    def _put(self, number: int) -> None:
        """A bundle comes by hand; it is tried at the next start, or at once by SIGHUP."""
        data = self.new_bundle(number)
        if kind_of(data) not in ("damaged", "kills"):
            try:
                self.store.put(data)
            except HardcaseError:
                assert self.is_full
        if self.run is not None and number % 3 == 0:
            self.run.stop()
            self.go()

    def _decide(self, number: int) -> None:
        """Some decisions, in the way of the bundle that runs."""
        for _ in range(1 + number % 8):
            run = self.run
            if run is None:
                return
            sha = run.started.slot.sha256
            kind = kind_of(self.bundles[sha])
            self.now += 250 if kind == "slow" else 1
            if kind == "crashes" or (kind == "tires" and self.n_good >= 5):
                raise PowerCutError
            failed = {"dumb": ["x", "y"], "partly": ["y"]}.get(kind, [])
            record = {"route": "local", "sensors": ["x", "y"], "failed": failed}
            if self.is_up and run.wants_audit and kind != "waits":
                run.audited(kind != "differs")
            self.n_good += kind not in ("dumb", "fat")
            self.working = sha if self.n_good >= RULES.decisions else ""
            is_on = run.decided(
                self.now, is_connected=self.is_up, memory_bytes=lambda kind=kind: 5_000 if kind == "fat" else 9,
                record=record,
            )  # fmt: skip
            self.working = ""
            if is_on and self.n_good >= RULES.decisions and not self.is_full:
                is_broken = kind == "differs" and run._agreement is not None and run._agreement.is_broken
                if not is_broken and sha not in self.worked:
                    self.seen["worked"] += 1
                    self.worked.add(sha)
            if not is_on:
                self.seen["rolled back"] += 1
                self.go()

    def _audit(self, number: int) -> None:
        if self.run is not None:
            for _ in range(number % 6):
                self.run.audited(number % 3 > 0)

    def _wait(self, number: int) -> None:
        """Time goes by, perhaps beyond the deadline."""
        self.now += (10, 310, 700)[number % 3]
        if self.run is not None and not self.run.waited(self.now):
            self.go()

    def _start(self, number: int) -> None:
        """The device is switched on; if it was on, the power was cut."""
        self.die()
        self.go()

    def _stop(self, number: int) -> None:
        if self.run is not None:
            self.run.stop()
        self.die()

    def _kill(self, number: int) -> None:
        self.die()

    def _cut(self, number: int) -> None:
        """The power will go at one of the next writes."""
        self.cut_in = number % 6

    def _cloud(self, number: int) -> None:
        self.is_up = number % 3 > 0

    def _full_disk(self, number: int) -> None:
        self.is_full = number % 4 == 0

    def calm(self) -> bool:
        """No more faults: whether a good bundle that is offered now runs for good."""
        self.is_full, self.is_up, self.cut_in = False, True, -1
        data = f"good at last {self.number}".encode()
        self.bundles[sha256(data).hex()] = data
        self.go()
        self.bring(data)
        for _ in range(20):
            if self.run is not None:
                self._decide(0)
        known = self.store.slots()
        return bool(known.current) and known[known.current].sha256 == sha256(data).hex()


def random_events(seed: int) -> list[Event]:
    """A sequence of 5 to 40 events."""
    rng = random.Random(seed)
    return [(rng.choice(EVENTS), rng.randrange(2_000)) for _ in range(rng.randint(5, 40))]


def live(root: Path, events: list[Event]) -> Life:
    """A life of these events in an empty folder, and its calm end; call it within ``world``."""
    life = Life(root / "life")
    with life.disk():
        for event in events:
            life.do(event)
        if not life.calm():
            life.wrong.append(STUCK)
    shutil.rmtree(root / "life", ignore_errors=True)
    return life


# ---------------------------------------------------------------- stores that lose bundles


def gives_up_its_rival(known: slots.Slots) -> slots.Slots:
    """What is on trial is given up for what is ready."""
    if known.ready:
        rival = {"a": "b", "b": "a"}[known.ready]
        if known[rival].state == "trial":
            known = known.put(rival, slots._bad(known[rival], "a newer bundle came before it passed its trial"))
    return STARTED(known)


def fails_at_once(known: slots.Slots, sha256: str, reason: str, **more: object) -> slots.Slots:
    name = slots.is_on_trial(known, sha256)
    return known.put(name, slots._bad(known[name], reason)) if name else known


STARTED = slots.started
WORSE = {
    "a bundle on trial is given up for a newer one": ("started", gives_up_its_rival),
    "a trial fails whatever is behind it": ("failed", fails_at_once),
    "what has worked is not noted": ("worked", lambda known, sha256: known),
}


@contextmanager
def worse(name: str) -> Iterator[None]:
    """One transition of a store is another one."""
    function = next(function for known, function in WORSE.values() if known == name)
    with pytest.MonkeyPatch.context() as patch:
        for module in (slots, folder, running):
            patch.setattr(module, name, function, raising=False)
        yield
