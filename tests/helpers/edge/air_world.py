# SPDX-License-Identifier: Apache-2.0
"""Lives of a device that is updated over the air, in virtual time, over the machines that devices and clouds run.

To the lives of a store come the cloud's ``Campaign``, metadata, and a network, which loses all that is under way;
somebody replays old offers and forges chunks.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hardcase_cloud.rollout.updates.campaign import GOOD, ROLLED_BACK, Campaign
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.store import metadata
from hardcase_edge.fleet.store.slots import MOST_WORKED, NAMES, START, Slots
from hardcase_edge.fleet.store.trust import first_trust, trust_from
from hardcase_edge.fleet.update.messages import Chunk, name_of, pack_chunk, pack_offer

from . import store_lives
from .repository import NOW, Repository

MOST_ROOTS = 8  # of an offer


@cache
def is_signed(message: bytes, signature: bytes, public: bytes) -> bool:
    """As the device's own check, by OpenSSL."""
    with suppress(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return True
    return False


DEVICE = "pump-7"
KINDS = ("good", "good", "good", "damaged", "crashes", "crashes", "fat", "slow", "elsewhere", "differs")  # of bundles
FAULTS = (
    "offer", "offer", "rotation", "cut", "connect", "connect", "connect", "power", "power", "power", "power",
    "cut at a write", "full disk", "lost cloud", "replay", "forged chunk", "twice", "stop",
)  # fmt: skip


@contextmanager
def world() -> Iterator[None]:
    """Bundles are those of the simulation, and signatures are checked fast."""
    with store_lives.world(), patch.object(metadata, "is_signed", is_signed):
        yield


class Life(store_lives.Life):
    """One device, its broker and its cloud; ``step`` makes one random event happen and checks what must hold."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng, self.fleet = random.Random(seed), Repository()
        self.offers: list[bytes] = []  # that were ever sent, for replays
        self.to_device: deque[bytes] = deque()
        self.to_cloud: deque[tuple[str, bytes]] = deque()
        self.retained = {"status": b'{"state":"offline"}', "facts": b"{}"}
        self.campaign: Any = None
        self.known, self.versions = Slots(), (0, 0, 0)
        self.reported: set[tuple[str, str]] = set()  # what ran at a report, and its state
        self.failed: set[str] = set()  # what had failed at a report
        super().__init__(root, wall=lambda: NOW + self.now, key=None)
        self.publish("good")
        self.store.put(self.campaign.bundle, b"", (1, 1))
        self.go()

    def _begin(self, tmp_path: Path) -> None:
        self.store.make()
        self.store.write_trust(first_trust(self.fleet.roots[0]).to_bytes())

    # ------------------------------------------------------------ the cloud

    def publish(self, kind: str) -> None:
        """A new bundle, and a campaign for it."""
        data = f"{kind} {len(self.bundles)} ".encode() + self.rng.randbytes(self.rng.randrange(1, 30_000))
        files = self.fleet.publish(data)
        offer = self.offer_of(data, files._replace(roots=files.roots[-MOST_ROOTS:]))
        release = len(self.fleet.roots), self.fleet.version
        self.bundles[sha256(data).hex()] = data
        self.offers.append(pack_offer(offer))
        self.restart_cloud(Campaign(data, offer, release, frozenset({DEVICE})))

    def restart_cloud(self, campaign: Campaign | None = None) -> None:
        """The cloud forgets all; the broker gives it what is retained."""
        old = self.campaign
        self.campaign = campaign or Campaign(old.bundle, old.offer, old.release, old.named)
        self.to_cloud.clear()
        self.to_cloud.extend(self.retained.items())

    def cloud_step(self) -> None:
        if self.to_cloud:
            what, payload = self.to_cloud.popleft()
            if what == "facts":
                self.campaign.facts(DEVICE, payload)
            else:
                getattr(self.campaign, what)(self.now, DEVICE, payload)
            self.check_campaign()
        elif (outgoing := self.campaign.outgoing(self.now)) is not None and self.is_up:
            self.to_device.append(outgoing[1])

    # ------------------------------------------------------------ the device

    def go(self) -> None:
        self.cut()
        super().go()
        if self.run is not None:
            self.connect()

    def die(self) -> None:
        self.cut()
        super().die()

    def connect(self) -> None:
        self.is_up = True
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
        if self.run is None or not self.is_up:
            return
        sha, facts = self.run.started.slot.sha256, {**self.run.facts(), **self.updater.facts()}
        self.check_report(sha, facts["store"])
        self.reported.add((sha, facts["store"]["state"]))
        self.say("facts", json.dumps({"bundle": sha, **facts}).encode())

    def send(self, payload: bytes) -> bool:
        if self.is_up:
            self.to_cloud.append(("fetch", payload))
        return self.is_up

    def receive(self) -> None:
        if self.is_on:
            if self.to_device:
                self.updater.handle(self.now, self.to_device.popleft())
            self.updater.act(self.now)
            self.take_over()

    def decide(self) -> None:
        self._decide(0)
        self.report()

    # ------------------------------------------------------------ one step

    def step(self) -> None:
        """One event."""
        x = self.rng.random()
        if x < 0.45:
            self.cloud_step()
        elif x < 0.85:
            self.guarded(self.receive)
        elif x < 0.92:
            self.guarded(self.decide)
        elif x < 0.95:
            self.now += self.rng.choice([0.1, 1.0, 5.0, 15.0, 700.0])
        else:
            self.guarded(self.fault, self.rng.choice(FAULTS))
        self.check()

    def fault(self, what: str) -> None:
        """Something that goes wrong, or is done on purpose."""
        rng = self.rng
        self.seen[what] += 1
        if what == "offer" and rng.random() < 0.6:
            self.publish(rng.choice(KINDS))
        elif what == "rotation" and rng.random() < 0.3:
            self.fleet.rotate(rng.choice(("root", "timestamp", "targets", "snapshot")))
        elif what == "cut":
            self.cut()
        elif what == "connect" and self.run is not None and not self.is_up:
            self.connect()
        elif what == "power":
            self.is_full = False
            if not self.is_on:
                self.go()
            elif rng.random() < 0.1:
                self.die()
        elif what == "cut at a write":
            self.cut_in = rng.randrange(6)
        elif what == "full disk":
            self.is_full = rng.random() < 0.3
        elif what == "lost cloud":
            self.restart_cloud()
        elif what == "replay" and self.is_up:
            self.to_device.append(rng.choice(self.offers))
        elif what == "forged chunk" and self.is_up:
            name = name_of(self.campaign.offer.sha256)
            self.to_device.append(pack_chunk(Chunk(name, rng.randrange(9), rng.randbytes(rng.choice([9, 4096])))))
        elif what == "twice" and self.to_device:
            self.to_device.append(rng.choice(list(self.to_device)))
        elif what == "stop" and self.run is not None:
            self._stop(0)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        before, slots = self.known, self.store.slots()
        states = [slots[name].state for name in NAMES]
        assert states.count("trial") <= 1
        assert {"good", "trial", "ready"} & set(states), states  # something can always run
        assert slots.newest >= before.newest
        if name := before.current:  # however often it starts, only a newer bundle takes the place of a good one
            assert slots.current
            assert slots[name] == before[name] or slots.current != name
        assert all(START * slots[n].starts + slots[n].worked <= MOST_WORKED + START for n in NAMES)
        self.known, versions = slots, trust_versions(self.store.trust() or b"")
        is_rotated = versions[0] > self.versions[0]  # then what the new keys have not signed is forgotten
        assert is_rotated or all(new >= old for new, old in zip(versions, self.versions, strict=True))
        self.versions = versions
        assert self.wrong == []

    def check_report(self, sha: str, store: dict[str, Any]) -> None:
        """What is reported is what runs, and its state is what is on the disk."""
        slot = self.store.slots()[store["slot"]]
        if "failed" in store:
            assert store["failed"]["sha256"] != sha
            self.failed.add(store["failed"]["sha256"])
        if slot.sha256 == sha:  # no newer bundle is in its place
            assert store["state"] == slot.state or slot.state == "ready"  # its start could not be written down

    def check_campaign(self) -> None:
        """The cloud calls good what has reported that it runs for good, and nothing else."""
        ((state, _),) = self.campaign.states().values()
        sha = self.campaign.offer.sha256.hex()
        assert state != GOOD or (sha, "good") in self.reported
        assert state != ROLLED_BACK or sha in self.failed

    def settle(self) -> int:
        """No more faults: a good bundle that is offered now runs for good; returns the steps that it took."""
        self.is_full, self.cut_in = False, -1
        self.to_device.clear()
        self.publish("good")
        for n in range(5_000):
            if self.run is None:
                self.go()
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
            if self.campaign.is_done:
                ((state, _),) = self.campaign.states().values()
                assert state == GOOD
                assert self.run is not None
                assert self.run.started.slot.sha256 == self.campaign.offer.sha256.hex()
                return n + 1
        raise AssertionError("the last bundle did not arrive")


_TRUSTS: dict[bytes, tuple[int, int, int]] = {}


def trust_versions(data: bytes) -> tuple[int, int, int]:
    """The versions of root, timestamp and targets that a trust file holds."""
    if data not in _TRUSTS:
        _TRUSTS.clear()
        trust = trust_from(data)
        parts = (trust.timestamp, trust.targets)
        _TRUSTS[data] = (trust.root.version, *[m.version if m else 0 for m in parts])  # type: ignore[assignment]
    return _TRUSTS[data]


def live(root: Path, seed: int, steps: int) -> Life:
    """One life of so many steps in an empty folder, and its calm end; call it within ``world``."""
    life = Life(root / f"life {seed}", seed)
    with life.disk():
        for _ in range(steps):
            life.step()
        life.seen["settled"] = life.settle()
    return life
