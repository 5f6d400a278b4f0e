# SPDX-License-Identifier: Apache-2.0
"""What all devices of a simulated fleet have in common, so that each of them keeps little of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.link.address import Address
from hardcase_edge.program.readings import Reading
from hardcase_edge.stream.coin import Coin
from hardcase_edge.stream.memory import Memory

from .journal import Journal

__all__ = ["KEEPALIVE_S", "Shared"]

KEEPALIVE_S = 60


@dataclass(slots=True)
class Shared:
    """What all devices of a fleet have in common."""

    loop: asyncio.AbstractEventLoop
    address: Address
    version: int
    prefix: str
    machine: Any
    journal: Journal
    counters: Counter[str]
    hpc: bytes
    dtypes: tuple[str, ...]
    n_classes: int
    deadline_ms: int
    resend_ms: int
    interval_s: float
    budget: int | None
    sensors_of: Callable[[int], Sequence[Sequence[Reading]]]
    lost: Callable[[Any], None]  # a device that has lost its connection
    done: Callable[[], None]  # a device has made its last decision
    new_memory: Callable[[], Memory | None] = lambda: None  # of a device, where the bundle holds labels of streams
    coin: Coin | None = None  # of a bundle that mixes two policies
    coin_seed: int = 0  # of device k: this and k
    stream_of: Callable[[int], object] = lambda item: None  # which stream a row belongs to
    is_stopping: bool = False
