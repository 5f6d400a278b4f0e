# SPDX-License-Identifier: Apache-2.0
"""What all devices of a simulated fleet have in common, so that each of them keeps little of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.device.machine import Decider
from hardcase_edge.link.address import Address
from hardcase_edge.link.requests import RequestFormat
from hardcase_edge.program.readings import Reading

from .journal import Journal

KEEPALIVE_S = 60


@dataclass(slots=True)
class Rows:
    """The readings of each sensor in each row, made when they are first wanted; NaN is a missing reading."""

    rows: NDArray[np.floating]
    features: list[tuple[int, ...]]  # of each sensor
    _made: dict[int, list[list[Reading]]] = field(default_factory=dict)

    def __call__(self, item: int) -> list[list[Reading]]:
        readings = self._made.get(item)
        if readings is None:
            row = self.rows[item].tolist()
            readings = self._made[item] = [[None if (x := row[f]) != x else x for f in some] for some in self.features]
        return readings


@dataclass(slots=True)
class Shared:
    """What all devices of a fleet have in common."""

    loop: asyncio.AbstractEventLoop
    address: Address
    version: int
    prefix: str
    decider: Decider
    form: RequestFormat
    journal: Journal
    counters: Counter[str]
    deadline_ms: int
    resend_ms: int
    interval_s: float
    sensors_of: Callable[[int], Sequence[Sequence[Reading]]]
    lost: Callable[[Any], None]  # a device that has lost its connection
    done: Callable[[], None]  # a device has made its last decision
    coin_seed: int = 0  # of device k: this and k
    stream_of: Callable[[int], object] = lambda item: None  # which stream a row belongs to
    is_stopping: bool = False
