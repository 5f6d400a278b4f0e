# SPDX-License-Identifier: Apache-2.0
"""One bundle offered to devices, as a state machine without I/O and without a clock.

    status  --> what a device runs, and whether to offer it the bundle
    fetch   --> chunks for a device
    outgoing --> the next message to publish, the devices in turn

All that it knows of a device is what the device's retained status says, so it may end and start again at any time. A
device gets the offer again after a pause that doubles until it fetches. What one device may ask for is bounded: a
window of chunks at once, and a few copies of the bundle an hour.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.bundle.compatible import OTHER_PROGRAM, Identity, differences_told
from hardcase_edge.errors import WireError
from hardcase_edge.fleet.store.slots import DAMAGED
from hardcase_edge.fleet.update.messages import MOST_WANTED, Chunk, Offer, name_of, pack_chunk, pack_offer, unpack_fetch

FIRST_PAUSE_S, MOST_PAUSE_S = 5.0, 3_600.0  # between two offers to a device that does not fetch
SCAN_S = 0.25  # how often to look through all devices for those that are to get the offer
FACTS_S = 3.0  # how long a device's facts may take to come, before it counts as one that does not say what it runs
ACTIVE_S = 30.0  # a device that has fetched so recently is not offered the bundle again
MOST_AT_ONCE = 256  # devices whose chunks wait to be sent; the others ask again later
MOST_DEVICES = 100_000
COPIES = 4  # of the bundle that a device may fetch in a row; one more each hour
LEAST_CHUNKS = 256  # that it may fetch in a row, however small the bundle is
MAX_STATUS_BYTES = 65_536
GOOD, TRIAL, ROLLED_BACK, REFUSED = "good", "trial", "rolled back", "refused"
OTHER = f"refused here: {OTHER_PROGRAM}"  # nothing is sent to it
FINAL = (GOOD, ROLLED_BACK, REFUSED, OTHER)


@dataclass
class _Device:
    state: str = "unknown"  # what a person wants to know of it
    reason: str = ""
    is_online: bool = False
    has_facts: bool = False
    online_at: float = 0.0
    next_offer_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    fetched_at: float = float("-inf")
    tokens: float = 0.0  # chunks that it may fetch
    filled_at: float = float("-inf")


@dataclass
class Campaign:
    """A bundle, its offer, and the devices that are to run it.

    Parameters
    ----------
    bundle : the file's bytes
    offer : Offer
        May be replaced by one of the same bundle with newer metadata.
    release : versions of root and targets in the offer; (0, 0) without metadata
    named : the devices; None: every device that the broker knows
    may_have : whether a device may be offered the bundle and fetch it now
    identity : of the bundle: devices whose facts say that they run another program get nothing, unless the offer says
        that it replaces that; None: nobody compares
    """

    bundle: bytes
    offer: Offer
    release: tuple[int, int] = (0, 0)
    named: frozenset[str] | None = None
    may_have: Callable[[str], bool] = lambda device: True
    identity: Identity | None = None
    dropped: int = 0  # messages that no device of ours should have sent
    sent_chunks: int = 0
    sent_offers: int = 0
    _devices: dict[str, _Device] = field(default_factory=dict)
    _queues: OrderedDict[str, deque[int]] = field(default_factory=OrderedDict)
    _to_offer: deque[str] = field(default_factory=deque)
    _scan_at: float = float("-inf")

    def __post_init__(self) -> None:
        for name in self.named or ():
            self._devices[name] = _Device()

    # ------------------------------------------------------------ what devices say

    def status(self, now: float, device: str, payload: bytes) -> None:
        """A device's state; ``now`` is seconds of any clock that only rises."""
        entry = self._known(device)
        if entry is None:
            return
        try:
            status = json.loads(payload[: MAX_STATUS_BYTES + 1])
            was_online, entry.is_online = entry.is_online, status["state"] == "online"
        except (ValueError, TypeError, KeyError, RecursionError):
            self.dropped += 1
            return
        if entry.is_online != was_online:
            self._queues.pop(device, None)  # it asks again
        if entry.is_online and not was_online:
            entry.next_offer_at, entry.pause_s, entry.fetched_at = now, FIRST_PAUSE_S, float("-inf")
            entry.online_at = self._scan_at = now

    def facts(self, device: str, payload: bytes) -> None:
        """What a device runs and fetches."""
        entry = self._known(device)
        if entry is None:
            return
        entry.has_facts = True
        try:
            self._judge(entry, json.loads(payload[: MAX_STATUS_BYTES + 1]))
        except (ValueError, TypeError, AttributeError, RecursionError):
            self.dropped += 1

    def _judge(self, known: _Device, facts: dict[str, Any]) -> None:
        sha, store, update = self.offer.sha256.hex(), facts.get("store") or {}, facts.get("update") or {}
        failures = [store.get(key) or {} for key in ("failed", "failed_before")]
        failed: dict[str, Any] = next((one for one in failures if one.get("sha256") == sha), {})
        # of before this campaign: it failed no trial, and the device takes it again
        is_lost = failed.get("reason") == DAMAGED and known.state not in (GOOD, TRIAL, ROLLED_BACK)
        is_run = sha in (facts.get("bundle"), store.get("sha256"))  # a release has the digest of its archive
        if is_run and store.get("state", "good") == "good":
            known.state, known.reason = GOOD, ""
        elif is_run:
            known.state, known.reason = TRIAL, _waits(store.get("waits_for"))
        elif failed and not is_lost and _release(failed.get("release")) >= self.release:
            known.state, known.reason = ROLLED_BACK, _words(failed.get("reason", ""))
        elif update.get("state") == "refused" and update.get("sha256") == sha:
            known.state, known.reason = REFUSED, _words(update.get("reason", ""))
        elif found := self._differences(facts):
            known.state, known.reason = OTHER, _words("; ".join(found))
        elif update.get("sha256") == sha:
            known.state, known.reason = _words(f"{update.get('state')} {update.get('have')}/{update.get('of')}", 60), ""
        elif known.state in (*FINAL, TRIAL):  # it has something else now
            known.state, known.reason = "unknown", ""

    def _differences(self, facts: dict[str, Any]) -> tuple[str, ...]:
        """Why the bundle cannot take the place of the one that a device runs; nothing if it can, or is to."""
        if self.identity is None or self.offer.replaces:
            return ()
        return differences_told(self.identity, facts.get("program"))

    def fetch(self, now: float, device: str, payload: bytes) -> None:
        """A device asks for chunks."""
        entry = self._known(device)
        if entry is None or not self.may_have(device) or entry.state == OTHER:
            return
        try:
            fetch = unpack_fetch(payload)
            if fetch.bundle != name_of(self.offer.sha256) or max(fetch.wanted) >= self.offer.n_chunks:
                raise WireError("other_offer", "it is not of this bundle")
        except WireError:
            self.dropped += 1
            return
        if device not in self._queues and len(self._queues) >= MOST_AT_ONCE:
            return
        entry.fetched_at, entry.pause_s = now, FIRST_PAUSE_S
        n = self.offer.n_chunks
        refill = max(n, LEAST_CHUNKS / COPIES) * (now - entry.filled_at) / 3600
        entry.tokens = min(max(COPIES * n, LEAST_CHUNKS), entry.tokens + refill)
        entry.filled_at = now
        chunks = list(dict.fromkeys(fetch.wanted))[: int(entry.tokens)]
        entry.tokens -= len(chunks)
        if chunks:
            queue = self._queues.setdefault(device, deque())
            queue.extend([index for index in chunks if index not in queue])
            while len(queue) > MOST_WANTED:
                queue.popleft()

    # ------------------------------------------------------------ what to publish

    def outgoing(self, now: float) -> tuple[str, bytes] | None:
        """A device and the next message for it; None if there is none now."""
        if self._queues:
            device, queue = self._queues.popitem(last=False)
            index = queue.popleft()
            if queue:
                self._queues[device] = queue  # the others first
            self.sent_chunks += 1
            size = self.offer.chunk_bytes
            data = self.bundle[index * size : (index + 1) * size]
            return device, pack_chunk(Chunk(name_of(self.offer.sha256), index, data))
        if now >= self._scan_at:
            self._scan_at = now + SCAN_S
            self._to_offer = deque(name for name, d in self._devices.items() if self._wants_offer(name, d, now))
        while self._to_offer:
            device = self._to_offer.popleft()
            entry = self._devices[device]
            if self._wants_offer(device, entry, now):
                entry.next_offer_at = now + entry.pause_s
                entry.pause_s = min(2 * entry.pause_s, MOST_PAUSE_S)
                if entry.state == "unknown":
                    entry.state = "offered"
                self.sent_offers += 1
                return device, pack_offer(self.offer)
        return None

    def _wants_offer(self, device: str, known: _Device, now: float) -> bool:
        is_running = known.state in (*FINAL, TRIAL)
        is_time = now >= max(known.next_offer_at, known.fetched_at + ACTIVE_S)
        takes_any = self.identity is None or self.offer.replaces
        is_known = takes_any or known.has_facts or now >= known.online_at + FACTS_S
        return known.is_online and is_known and not is_running and is_time and self.may_have(device)

    def connected(self) -> None:
        """A new connection: devices ask again, and the broker says anew which are there; it may have lost some."""
        self._queues.clear()
        for known in self._devices.values():
            known.is_online = False

    # ------------------------------------------------------------ how it stands

    @property
    def is_done(self) -> bool:
        """Whether every device that is to run the bundle runs it for good, or has shown that it cannot."""
        return bool(self._devices) and all(d.state in FINAL for d in self._devices.values())

    def is_online(self, device: str) -> bool:
        """Whether a device is connected."""
        entry = self._devices.get(device)
        return entry is not None and entry.is_online

    def has_facts(self, device: str) -> bool:
        """Whether a device's facts have come, without which its state says nothing."""
        entry = self._devices.get(device)
        return entry is not None and entry.has_facts

    def states(self) -> dict[str, tuple[str, str]]:
        """Each device's state and, where it has not taken the bundle, the reason."""
        return {name: (d.state, d.reason) for name, d in sorted(self._devices.items())}

    def state_of(self, device: str) -> tuple[str, str]:
        """One device's state and reason, as in ``states``."""
        entry = self._devices[device]
        return entry.state, entry.reason

    def _known(self, device: str) -> _Device | None:
        entry = self._devices.get(device)
        if entry is None and self.named is None and len(self._devices) < MOST_DEVICES:
            entry = self._devices[device] = _Device()
        return entry


def _words(text: object, most: int = 200) -> str:
    """What a device says, with nothing in it that a database, a log or a terminal could not take."""
    return terminal(str(text)[:most])


def _waits(words: object) -> str:
    """What a device's trial waits for, as the device says it; "" if it does not say so.

    >>> _waits("30 answers of f0, has 0"), _waits(None)
    ('waits for 30 answers of f0, has 0', '')
    """
    return f"waits for {_words(words)}" if words else ""


def _release(text: object) -> tuple[int, int]:
    root, _, targets = str(text or "0.0").partition(".")
    return int(root), int(targets)
