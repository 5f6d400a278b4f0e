# SPDX-License-Identifier: Apache-2.0
"""Lives of a device that is updated over the air, in virtual time, over the machines that devices and clouds run.

``Store``'s logic, ``Run``, ``Updater``, ``Transfer``, the trust and ``Campaign`` are the real ones; only the disk, the
network and the clock are here. A power cut may come at any write, chunks that were not flushed are lost, the network
loses all that is under way, and somebody replays old offers and forges chunks.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from hardcase_cloud.rollout.updates.campaign import GOOD, ROLLED_BACK, Campaign
from hardcase_cloud.sim.replay.disk import DiskStore
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import InputError, StoreError
from hardcase_edge.fleet.store.run import Run
from hardcase_edge.fleet.store.slots import NAMES
from hardcase_edge.fleet.store.trust import first_trust, trust_from
from hardcase_edge.fleet.update.incoming import GROUP, Refused
from hardcase_edge.fleet.update.messages import Chunk, name_of, pack_chunk, pack_offer
from hardcase_edge.fleet.update.updater import Updater

from .fast_fleet import FastFleet, fast_signatures
from .store_lives import RULES, Power, PowerCutError, kind_of, load

__all__ = ["Life", "live", "world"]

DEVICE = "pump-7"
KINDS = ("good", "good", "good", "damaged", "crashes", "crashes", "fat", "slow", "elsewhere", "differs")  # of bundles
WALL = 1_800_000_000.0


class Disk(Power):
    """What survives a power cut."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write_whole(self, name: str, data: bytes) -> None:
        self.before_a_write()
        self.files[name] = data


class MemoryStore(DiskStore):
    """The store's logic over such a disk, which may be full."""

    def check_space(self, n_bytes: int) -> None:
        if self._disk.is_full:  # type: ignore[attr-defined]
            raise StoreError("the disk is full")


class MemoryIncoming:
    """As ``Incoming``, over such a disk; chunks that no flush has reached are lost with the power."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.offer: Any = None
        self._fresh: dict[int, bytes] = {}

    def _key(self, index: int) -> str:
        return f"incoming/{self.offer.sha256.hex()}/{index}"

    def begin(self, offer: Any) -> frozenset[int]:
        if self.disk.is_full:
            raise StoreError("the disk is full")
        self.flush()
        here = f"incoming/{offer.sha256.hex()}/"
        for name in [n for n in self.disk.files if n.startswith("incoming/") and not n.startswith(here)]:
            if name not in ("incoming/refused", "incoming/trying"):
                del self.disk.files[name]
        self.offer = offer
        return frozenset(k for k in range(offer.n_chunks) if offer.is_right(k, self.disk.files.get(self._key(k), b"")))

    def write(self, index: int, data: bytes) -> None:
        if self.disk.is_full:
            raise InputError("no space left on the device")
        self._fresh[index] = data
        if len(self._fresh) >= GROUP:
            self.flush()

    def flush(self) -> None:
        for index, data in self._fresh.items():
            self.disk.write_whole(self._key(index), data)
        self._fresh.clear()

    def read(self) -> bytes:
        self.flush()
        return b"".join(self.disk.files.get(self._key(k), b"") for k in range(self.offer.n_chunks))

    def clear(self) -> None:
        offer, self.offer = self.offer, None
        self._fresh.clear()
        if offer is not None:
            for k in range(offer.n_chunks):
                self.disk.files.pop(f"incoming/{offer.sha256.hex()}/{k}", None)

    def tries(self, sha: str) -> int:
        known, times = json.loads(self.disk.files.get("incoming/trying", b'["", 0]'))
        return times if known == sha else 0

    def begin_check(self, sha: str, release: tuple[int, int]) -> None:
        self.disk.write_whole("incoming/trying", json.dumps([sha, self.tries(sha) + 1]).encode())

    def end_check(self) -> None:
        self.disk.files.pop("incoming/trying", None)

    def refuse(self, refused: Refused) -> None:
        self.disk.files["incoming/refused"] = json.dumps([refused.sha256, refused.release, refused.reason]).encode()

    def refused(self) -> Refused:
        sha, release, reason = json.loads(self.disk.files.get("incoming/refused", b'["", [0, 0], ""]'))
        return Refused(sha, tuple(release), reason)


@contextmanager
def world():
    """Signatures and bundles are those of the simulation."""
    with pytest.MonkeyPatch.context() as patch, fast_signatures():
        patch.setattr("hardcase_edge.fleet.store.receive.load_bytes", load)
        yield


class Life:
    """One device, its broker and its cloud; ``step`` makes one random event happen and checks what must hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.events: Counter[str] = Counter()
        self.now, self.disk, self.fleet = 0.0, Disk(), FastFleet(random.Random(seed + 1))
        self.store = MemoryStore(self.disk)
        self.published: dict[str, bytes] = {}
        self.offers: list[bytes] = []  # that were ever sent, for replays
        self.to_device: deque[bytes] = deque()
        self.to_cloud: deque[tuple[str, bytes]] = deque()
        self.retained = {"status": b'{"state":"offline"}', "facts": b"{}"}
        self.run: Run | None = None
        self.updater: Updater | None = None
        self.is_up = False  # the connection
        self.campaign: Campaign | None = None
        self.newest, self.versions = (0, 0), (0, 0, 0)
        self.reported: set[tuple[str, str]] = set()  # what ran at a report, and its state
        self.failed: set[str] = set()  # what had failed at a report
        self.store.write_trust(first_trust(self.fleet.roots[0]).to_bytes())
        self.publish("good")
        first = self.campaign
        assert first is not None
        self.store.put(first.bundle, b"", (1, 1))
        self.newest = (1, 1)
        self.power_on()

    # ------------------------------------------------------------ the cloud

    def publish(self, kind: str) -> None:
        """A new bundle, and a campaign for it."""
        size = self.rng.randrange(1, 30_000)
        data = f"{kind} {len(self.published)} ".encode() + self.rng.randbytes(size)
        offer, release = self.fleet.offer(data)
        self.published[sha256(data).hex()] = data
        self.offers.append(pack_offer(offer))
        self.restart_cloud(Campaign(data, offer, release, frozenset({DEVICE})))

    def restart_cloud(self, campaign: Campaign | None = None) -> None:
        """The cloud forgets all; the broker gives it what is retained."""
        old = self.campaign
        if campaign is None and old is not None:
            campaign = Campaign(old.bundle, old.offer, old.release, old.named)
        self.campaign = campaign
        self.to_cloud.clear()
        self.to_cloud.extend(self.retained.items())

    def cloud_step(self) -> None:
        campaign = self.campaign
        assert campaign is not None
        if self.to_cloud:
            what, payload = self.to_cloud.popleft()
            if what == "facts":
                campaign.facts(DEVICE, payload)
            else:
                getattr(campaign, what)(self.now, DEVICE, payload)
            self.check_campaign()
        else:
            outgoing = campaign.outgoing(self.now)
            if outgoing is not None and self.is_up:
                self.to_device.append(outgoing[1])

    # ------------------------------------------------------------ the device

    def power_on(self) -> None:
        """The process starts, as ``running`` starts it: a slot is chosen and its bundle loaded."""
        try:
            while True:
                started = self.store.start()
                run = Run(self.store, started, RULES, lambda line: None)
                bundle = self.disk.files[f"{started.name}/bundle"]
                assert started.slot.sha256 in self.published  # never a part of a bundle, nor a forged one
                if kind_of(bundle) != "elsewhere":
                    break
                run.fail("its sensors are not here")
                if not run.has_failed:
                    break
        except PowerCutError:
            self.power_off()
            return
        run.begin(self.now, has_broker=True, promised=0.95)
        self.run, self.bundle = run, bundle
        self.updater = Updater(
            self.store,
            MemoryIncoming(self.disk),
            self.send,
            wall=lambda: WALL + self.now,  # type: ignore[arg-type]
        )
        self.connect()

    def power_off(self) -> None:
        self.run = self.updater = None
        self.cut()

    def connect(self) -> None:
        self.is_up = True
        assert self.updater is not None
        self.say("status", b'{"state":"online"}')
        self.updater.connected()
        self.report()

    def cut(self) -> None:
        if self.is_up:
            self.is_up = False
            self.to_device.clear()
            self.to_cloud.clear()
            self.say("status", b'{"state":"offline"}')

    def say(self, what: str, payload: bytes) -> None:
        self.retained[what] = payload
        self.to_cloud.append((what, payload))

    def report(self) -> None:
        """The facts, as ``Device`` makes them."""
        assert self.run is not None
        assert self.updater is not None
        sha = sha256(self.bundle).hex()
        facts = {**self.run.facts(), **self.updater.facts()}
        store = facts["store"]
        self.check_report(sha, store)
        self.reported.add((sha, store["state"]))
        self.say("facts", json.dumps({"bundle": sha, **facts}).encode())

    def send(self, payload: bytes) -> bool:
        if self.is_up:
            self.to_cloud.append(("fetch", payload))
        return self.is_up

    def guarded(self, what: Any, *args: Any) -> None:
        """A part of the device's process, which a power cut may end."""
        try:
            what(*args)
        except PowerCutError:
            self.events["power cut at a write"] += 1
            self.power_off()

    def receive(self) -> None:
        updater = self.updater
        if updater is None:
            return
        if self.to_device:
            updater.handle(self.now, self.to_device.popleft())
        updater.act(self.now)
        if updater.is_ready:
            self.events["switched"] += 1
            self.switch()

    def switch(self) -> None:
        self.run = self.updater = None
        self.cut()
        self.power_on()

    def decide(self) -> None:
        run = self.run
        if run is None:
            return
        kind = kind_of(self.bundle)
        self.now += 200 if kind == "slow" else 1
        if kind == "crashes" and self.rng.random() < 0.7:
            self.events["crash"] += 1
            assert self.updater is not None
            with suppress(InputError):
                self.updater._incoming.flush()  # the system writes what a process has left
            self.power_off()
            return
        was_trial = run.is_trial
        memory = 2_000 if kind == "fat" else 10
        if self.is_up and run.wants_audit:
            run.audited(kind != "differs")
        if not run.decided(self.now, is_connected=self.is_up, memory_bytes=lambda: memory):
            self.events["rolled back"] += 1
            failed = run.started.slot.sha256
            self.switch()
            assert self.run is None or self.run.started.slot.sha256 != failed
        elif was_trial and not run.is_trial:
            self.events["passed"] += 1
            if self.is_up:
                self.report()

    # ------------------------------------------------------------ one step

    def step(self) -> None:
        """One event."""
        rng = self.rng
        x = rng.random()
        if x < 0.45:
            self.cloud_step()
        elif x < 0.85:
            self.guarded(self.receive)
        elif x < 0.92:
            self.guarded(self.decide)
        elif x < 0.95:
            self.now += rng.choice([0.1, 1.0, 5.0, 15.0, 700.0])
        else:
            self.fault(rng.choice(FAULTS))
        self.check()

    def fault(self, what: str) -> None:
        """Something that goes wrong, or is done on purpose."""
        rng = self.rng
        self.events[what] += 1
        if what == "offer" and rng.random() < 0.6:
            self.publish(rng.choice(KINDS))
        elif what == "rotation" and rng.random() < 0.3:
            self.fleet.rotate(rng.choice(("root", "timestamp", "targets", "snapshot")))
        elif what == "cut":
            self.cut()
        elif what == "connect" and self.run is not None and not self.is_up:
            self.guarded(self.connect)
        elif what == "power":
            self.disk.is_full = False
            if self.run is None:
                self.power_on()
            elif rng.random() < 0.1:
                self.power_off()
        elif what == "cut at a write":
            self.disk.cut_in = rng.randrange(6)
        elif what == "full disk":
            self.disk.is_full = rng.random() < 0.3
        elif what == "lost cloud":
            self.restart_cloud()
        elif what == "replay" and self.is_up:
            self.to_device.append(rng.choice(self.offers))
        elif what == "forged chunk" and self.is_up and self.campaign is not None:
            name = name_of(self.campaign.offer.sha256)
            self.to_device.append(pack_chunk(Chunk(name, rng.randrange(9), rng.randbytes(rng.choice([9, 4096])))))
        elif what == "twice" and self.to_device:
            self.to_device.append(rng.choice(list(self.to_device)))
        elif what == "stop" and self.run is not None:
            self.guarded(self.run.stop)
            self.power_off()

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        slots = self.store.slots()
        states = [slots[name].state for name in NAMES]
        assert states.count("trial") <= 1
        assert {"good", "trial", "ready"} & set(states), states  # something can always run
        assert slots.newest >= self.newest
        self.newest = slots.newest
        trust = trust_versions(self.disk.files["trust"])
        if trust is not None:
            is_rotated = trust[0] > self.versions[0]  # then what the new keys have not signed is forgotten
            assert is_rotated or all(new >= old for new, old in zip(trust, self.versions, strict=True))
            self.versions = trust
        if self.run is not None:
            assert self.run.started.slot.sha256 == sha256(self.bundle).hex()

    def check_report(self, sha: str, store: dict[str, Any]) -> None:
        """What is reported is what runs, and its state is what is on the disk."""
        assert self.run is not None
        slot = self.store.slots()[store["slot"]]
        assert sha == self.run.started.slot.sha256
        if "failed" in store:
            assert store["failed"]["sha256"] != sha
            self.failed.add(store["failed"]["sha256"])
        if slot.sha256 == sha:  # no newer bundle is in its place
            assert store["state"] == slot.state or slot.state == "ready"  # its start could not be written down

    def check_campaign(self) -> None:
        """The cloud calls good what has reported that it runs for good, and nothing else."""
        assert self.campaign is not None
        ((state, _),) = self.campaign.states().values()
        sha = self.campaign.offer.sha256.hex()
        if state == GOOD:
            assert (sha, "good") in self.reported
        if state == ROLLED_BACK:
            assert sha in self.failed

    def calm(self) -> int:
        """No more faults: a good bundle that is offered now runs for good; returns the steps that it took."""
        self.disk.is_full, self.disk.cut_in = False, -1
        self.to_device.clear()
        self.publish("good")
        for n in range(5_000):
            if self.run is None:
                self.power_on()
            elif not self.is_up:
                self.connect()
            elif n < 50 and n % 7 == 6:  # all that is under way is lost, and asked for again
                self.cut()
            self.cloud_step()
            self.guarded(self.receive)
            if n % 10 == 0:
                self.guarded(self.decide)
            self.now += 0.5
            self.check()
            assert self.campaign is not None
            if self.campaign.is_done:
                ((state, _),) = self.campaign.states().values()
                assert state == GOOD
                assert self.campaign.bundle == self.bundle
                return n + 1
        raise AssertionError("the last bundle did not arrive")


FAULTS = (
    "offer", "offer", "rotation", "cut", "connect", "connect", "connect", "power", "power", "power", "power",
    "cut at a write", "full disk", "lost cloud", "replay", "forged chunk", "twice", "stop",
)  # fmt: skip
_TRUSTS: dict[bytes, tuple[int, int, int]] = {}


def trust_versions(data: bytes) -> tuple[int, int, int] | None:
    """The versions of root, timestamp and targets that a trust file holds."""
    if data not in _TRUSTS:
        _TRUSTS.clear()
        trust = trust_from(data)
        parts = (trust.timestamp, trust.targets)
        _TRUSTS[data] = (trust.root.version, *[m.version if m else 0 for m in parts])  # type: ignore[assignment]
    return _TRUSTS[data]


def live(seed: int, steps: int) -> Life:
    """One life of so many steps, and its calm end."""
    life = Life(seed)
    for _ in range(steps):
        life.step()
    life.events["calm"] = life.calm()
    return life
