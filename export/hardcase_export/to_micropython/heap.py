# SPDX-License-Identifier: Apache-2.0
"""What a policy takes of a 32-bit board's heap: computed from its files, as tests measure it on an emulated board."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

BLOCK = 16  # of MicroPython's collector
# measured by memory.py on the emulated Cortex-M3, which a test repeats
WRAPPER, KERNEL_OBJECTS, POLICY_OBJECTS, DECISION_OBJECTS, SENSOR_OBJECTS = 6_576, 256, 256, 80, 80
IN_HEAP = ("armv6m", "armv7m", "armv7emsp", "rv32imc")  # modules, where a board's heap can hold code


def computed_heap(files: Mapping[str, bytes]) -> dict[str, int]:
    """Bytes for the kernel (of the largest module), the wrapper, the policy, and a decision until the next collection.

    files : what ``micropython_files`` writes, by path

    A decision is one that reads all sensors; what a read itself makes comes on top.
    """
    names = json.loads(files["hardcase/policy.json"])
    readings = max(struct.calcsize(f"@{sensor['types']}") for sensor in names["sensors"])
    image = files["hardcase/image.bin"]
    session = _blocks(int.from_bytes(image[8:12], "little"))  # docs/SPEC-image-v1.md, word 2
    pairs = sum(BLOCK * len(sensor["features"]) + SENSOR_OBJECTS for sensor in names["sensors"])  # of enumerate
    return {
        "kernel": max(len(files[f"native/{name}.mpy"]) for name in IN_HEAP) + KERNEL_OBJECTS,
        "wrapper": WRAPPER,
        "policy": _blocks(len(image)) + session + _blocks(readings) + _heap_of(names) + POLICY_OBJECTS,
        "decision": session + pairs + DECISION_OBJECTS,
    }


def _blocks(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


def _heap_of(value: Any) -> int:
    """Of a value as MicroPython's json makes it: objects of a block, and what they point to; keys are the wrapper's."""
    if isinstance(value, str):
        return BLOCK + _blocks(len(value.encode()) + 1)
    if isinstance(value, list):
        return (
            BLOCK + max(BLOCK, 4 << (len(value) - 1).bit_length()) + sum(map(_heap_of, value)) if value else 2 * BLOCK
        )
    if isinstance(value, dict):
        return BLOCK + _blocks(8 * (len(value) + 1)) + sum(map(_heap_of, value.values()))
    return 0
