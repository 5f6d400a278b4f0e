# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of stored records: ranges of sequences, as JSON ``[[boot, first, last], ...]``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ...errors import WireError

MAX_ACK_BYTES = 16_384
MAX_RANGES = 256
MOST = 2**53 - 1

Range = tuple[int, int, int]


def pack_acks(keys: Iterable[tuple[int, int]]) -> list[bytes]:
    """Messages that acknowledge these pairs of boot and sequence.

    >>> pack_acks([(1, 3), (1, 1), (1, 2), (2, 7)])
    [b'[[1,1,3],[2,7,7]]']
    """
    ranges: list[list[int]] = []
    for boot, sequence in sorted(set(keys)):
        if ranges and ranges[-1][0] == boot and ranges[-1][2] == sequence - 1:
            ranges[-1][2] = sequence
        else:
            ranges.append([boot, sequence, sequence])
    parts = [ranges[k : k + MAX_RANGES] for k in range(0, len(ranges), MAX_RANGES)]
    return [json.dumps(part, separators=(",", ":")).encode() for part in parts]


def unpack_acks(payload: bytes) -> list[Range]:
    """The ranges in a message.

    Raises
    ------
    WireError
        Drop the message; ``reason`` is ``oversized`` or ``malformed``.
    """
    if len(payload) > MAX_ACK_BYTES:
        raise WireError("oversized", f"an acknowledgement has {len(payload)} bytes, at most {MAX_ACK_BYTES} are read")
    try:
        ranges = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", "an acknowledgement is not JSON in UTF-8") from error
    if not isinstance(ranges, list) or len(ranges) > MAX_RANGES or not all(map(_is_range, ranges)):
        raise WireError("malformed", f"an acknowledgement is not a list of up to {MAX_RANGES} ranges")
    return [(boot, first, last) for boot, first, last in ranges]


def _is_range(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3 or not all(type(x) is int and 1 <= x <= MOST for x in value):
        return False
    return bool(value[1] <= value[2])
