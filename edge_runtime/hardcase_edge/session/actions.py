# SPDX-License-Identifier: Apache-2.0
"""What a session asks its owner for, and how it ends; both evaluators say it in these words."""

from __future__ import annotations

from collections.abc import Mapping, Set

from ..base.record import record
from ..program.definition import Number
from ..program.readings import Reading

LOCAL, CLOUD, DEGRADED = "local", "cloud", "degraded"
NOT_READINGS = (str, bytes, bytearray, memoryview, Mapping, Set)  # iterable, but not sequences of numbers


@record(frozen=True, slots=True)
class NeedSensors:
    """Read all these sensors, then call ``feed``."""

    sensors: tuple[int, ...]


@record(frozen=True, slots=True)
class NeedReply:
    """Send these readings (in the uplink's order, None for missing) to the HPC, then ``reply`` or ``no_reply``."""

    readings: tuple[Reading, ...]


@record(frozen=True, slots=True)
class Decision:
    """The end of a session."""

    result: Number  # a class index, or the value in a program of values
    confidence: int  # basis points
    route: str  # LOCAL, CLOUD, or DEGRADED: the program needed the cloud and got no reply
    cost: int  # micro-units, as metered
    sensors: tuple[int, ...]  # sensors bought, failed ones included, in order of index
    trace: tuple[int, ...]  # nodes visited, in order
    failed: tuple[int, ...] = ()  # sensors wanted that are dead or have failed, in order of index
    unpaid: tuple[int, ...] = ()  # sensors wanted that the budget did not allow, in order of index
