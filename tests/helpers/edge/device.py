# SPDX-License-Identifier: Apache-2.0
"""A small bundle for the device's tests, and people to ask: a linear gate on ``x``, hard cases go to the cloud.

Sensor ``x`` (1 mJ) decides alone where |x| >= 1: class "high" if x > 0, else "low". Otherwise sensor ``vib`` (10 mJ, a
window of five samples) is bought too and the HPC asked (100 mJ and 1 mJ per byte).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardcase_cloud.sim.replay import toy
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.link import wire
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.program.definition import MICRO, Costs, Feature, Program, Sensor, Uplink
from hardcase_edge.program.readings import Reading, request_bytes
from hardcase_edge.sensors.items import Item

HPC = bytes(range(32))
FEATURES = ("x", "vib_mean", "vib_deviation", "vib_slope", "vib_roughness")
REQUEST_BYTES = request_bytes(["f32"] * 5)
FORWARD_COST = 1 + 10 + 100 + REQUEST_BYTES  # mJ
EASY, HARD = 3.0, 0.25
LABELS = ("low", "high")
EASY_LINE = {
    "t": 1000.0, "label": "high", "confidence": 0.95, "route": "local", "cost": 1.0, "sensors": ["x"], "failed": [],
    "out_of_range": [], "latency_ms": 0.0,
}  # fmt: skip  # what a device says of the easy case at that time


def make_program() -> Program:
    """The replay's, with other sensors and prices."""
    return replace(
        toy.make_program(),
        features=tuple(Feature("f32", nullable=k == 4) for k in range(5)),
        sensors=(Sensor((0,), (MICRO,)), Sensor((1, 2, 3, 4), (10 * MICRO,))),
        uplink=Uplink(REQUEST_BYTES, (0, 1, 2, 3, 4)),
        costs=Costs(per_request=100 * MICRO, per_byte=MICRO),
    )


def make_manifest(**more: Any) -> Manifest:
    """Names for it, and further keys."""
    names = {"name": "toy", "unit": "mJ", "features": FEATURES, "sensors": ("x", "vib"), "classes": LABELS}
    return Manifest(**{**names, "hpc": HPC.hex(), "windows": {"vib": 5}, **more})


def make_bundle_bytes(*, name: str = "", **more: Any) -> bytes:
    """The whole, as a file's bytes; ``name`` tells builds of one program apart, which is always called toy.

    ``program`` in place of it makes another program.
    """
    if name:
        more["trained"] = {**more.get("trained", {}), "build": name}
    if "program" in more:
        more["name"] = more.pop("program")
    return pack_bundle(Bundle(make_manifest(**more).to_json(), make_program(), ()))


def make_loaded(**more: Any) -> Loaded:
    """The whole, loaded."""
    return load_bytes(make_bundle_bytes(**more))


class Cloud(AbstractContextManager["Cloud"]):
    """A worker in a few lines on a real broker: answers class 1 at 90 % to whatever asks, or as ``respond`` says.

    ``respond(request, device)`` returns the payloads to publish as replies; None takes the usual one.
    """

    def __init__(
        self,
        url: str,
        respond: Callable[[wire.Request, str], Sequence[bytes] | None] | None = None,
        *,
        retry_first_s: float = 0.1,
    ) -> None:
        self.requests: list[wire.Request] = []
        self.messages: list[Message] = []
        self._respond = respond
        self._connection = Connection(
            ConnectionConfig(address=parse_address(url), client_id="worker", retry_first_s=retry_first_s),
            subscribe=wire.request_topic("+"),
            on_message=self._on_message,
        )
        assert self._connection.start(60.0)

    def _on_message(self, message: Message) -> None:
        request = wire.unpack_request(message.payload, ["f32"] * 5, HPC)
        device = wire.device_of_topic(message.topic)
        self.messages.append(message)
        self.requests.append(request)
        payloads = self._respond(request, device) if self._respond else None
        for payload in [usual_reply(request)] if payloads is None else payloads:
            self.publish(wire.reply_topic(device), payload, message.correlation)

    def publish(self, topic: str, payload: bytes, correlation: bytes | None = None) -> None:
        """Anything, to anyone."""
        assert self._connection.publish(topic, payload, correlation=correlation)

    def __exit__(self, *_: object) -> None:
        self._connection.stop()


@contextmanager
def awaiting_f0() -> Iterator[None]:
    """Meanwhile, runs of this process decide on only when f0 has answered the audit of the decision before."""
    import pytest

    from hardcase_edge.more.audits.companion import Auditing
    from tests.helpers.cloud.brokers import until

    decided = Auditing.decided

    def and_wait(auditing: Auditing, decision: Mapping[str, Any]) -> None:
        decided(auditing, decision)
        if auditing._audits.open is not None:
            until(lambda: auditing._replies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Auditing, "decided", and_wait)
        yield


def usual_reply(request: wire.Request, **changes: Any) -> bytes:
    """Class 1 at 90 %, with these fields changed."""
    fields = {"id": request.id, "hpc": HPC, "status": wire.OK, "result": 1, "confidence": 9_000, **changes}
    return wire.pack_reply(wire.Reply(**fields))


class FakeLink:
    """A link without a network: gives these replies in turn, None for silence."""

    def __init__(self, replies: Sequence[wire.Reply | None] = (), *, can_ask: bool = True, resends: int = 0) -> None:
        self.can_ask = can_ask
        self.counters: Counter[str] = Counter()
        self.asked: list[tuple[Sequence[Reading], float]] = []
        self.facts: list[dict[str, Any]] = []
        self.cancelled = threading.Event()
        self._replies = list(replies)
        self._resends = resends

    def ask(self, readings: Sequence[Reading], deadline_s: float, may_resend: Callable[[], bool]) -> wire.Reply | None:
        self.asked.append((readings, deadline_s))
        for _ in range(self._resends):
            self.counters["resent"] += may_resend()
        return self._replies.pop(0)

    def publish_facts(self, fields: Mapping[str, Any]) -> bool:
        self.facts.append(dict(fields))
        return True

    def cancel(self) -> None:
        self.cancelled.set()


class FakeBank:
    """Items from a list: x, or None where that sensor fails; vib works unless it is ``broken``."""

    def __init__(
        self, xs: Sequence[float | None], *, dead: Sequence[int] = (), broken: Sequence[int] = (),
        vib: Sequence[Reading] = (1.0, 2.0, 3.0, 4.0), item: Item | None = None,
    ) -> None:  # fmt: skip
        self.asked: list[list[int]] = []
        self.dead = frozenset(dead)
        self._broken = broken
        self.counters: Counter[str] = Counter()
        self.pause_s = 0.0
        self.busy: frozenset[int] = frozenset()
        self.item, self._vib = item, list(vib)
        self._xs = list(xs)
        self._at = -1

    def next_item(self) -> bool:
        self._at += 1
        return self._at < len(self._xs)

    def read(self, sensors: Sequence[int]) -> dict[int, Sequence[Reading] | None]:
        x = self._xs[self._at]
        self.asked.append(list(sensors))
        everything: dict[int, Sequence[Reading] | None] = {0: None if x is None else [x], 1: self._vib}
        return {k: None if k in self._broken else everything[k] for k in sensors}

    def read_in_turn(self, sensors: Sequence[int], until: float) -> dict[int, Sequence[Reading] | None]:
        return self.read(sensors)


def write_replay(path: Path, xs: Sequence[float | str]) -> Path:
    """A replay file with samples for ``vib``."""
    header = "x," + ",".join(f"vib[{k}]" for k in range(5))
    path.write_text("\n".join([header, *(f"{x},1,2,3,4,5" for x in xs)]) + "\n")
    return path
