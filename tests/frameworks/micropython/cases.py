# SPDX-License-Identifier: Apache-2.0
"""The decisions of ``js_cases.py`` as a board reads them: floats as bytes, because MicroPython rounds decimal ones."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from hardcase_edge.program.readings import DTYPES
from tests.helpers.export.js_cases import write_js_cases


def write_cases(path: Path, count: int) -> int:
    """The golden program and so many random ones; returns the number of decisions."""
    n = write_js_cases(path, count)
    path.write_text("".join(_line(json.loads(line)) for line in path.read_text().splitlines()))
    return n


def _line(program: dict[str, Any]) -> str:
    types = program.pop("types")
    sensors = [
        {"name": str(k), "features": [str(f) for f in range(len(t))], "types": "".join(DTYPES[x].code for x in t)}
        for k, t in enumerate(types)
    ]
    program["names"] = {"sensors": sensors, "categories": {}, "classes": [], "steps": 0}
    for case in program["cases"]:
        case["readings"] = [
            None if values is None else [[_exact(x) for x in values], _struct(sensor["types"], values).hex()]
            for sensor, values in zip(sensors, case["readings"], strict=True)
        ]
    return json.dumps(program) + "\n"


def _exact(x: float | None) -> Any:
    return struct.pack("<d", x).hex() if isinstance(x, float) else x


def _struct(kinds: str, values: list[float | None]) -> bytes:
    out = b""
    for kind, x in zip(kinds, values, strict=True):
        if kind == "d":
            out += bytes(-len(out) % 8)
        if kind == "i":
            whole = x is not None and math.isfinite(x) and x == int(x) and abs(x) < 2**31
            out += struct.pack("<i", int(x) if whole and x is not None else -(2**31))
        else:
            try:
                out += struct.pack("<" + kind, math.nan if x is None else x)
            except OverflowError:
                out += struct.pack("<" + kind, math.inf)
    return out
