# SPDX-License-Identifier: Apache-2.0
"""Costs from measurements, and what must change in a hardcase.toml for them: a patch, never the file itself.

A cost is an energy where the unit of costs is one, and the median time where it is a time. For any other unit, such as
euros, nothing follows from a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...base.toml import parse_toml, toml_value
from ...errors import InputError

ENERGIES = {"J": 1.0, "kJ": 1e3, "mJ": 1e-3, "uJ": 1e-6, "\u00b5J": 1e-6, "\u03bcJ": 1e-6, "Wh": 3600.0, "mWh": 3.6}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6}
DIGITS = 3  # of a proposed cost; no measurement here has more
LEAST = 1e-5  # of a proposed cost: a program has whole millionths, by which a smaller one would be wrong or free
LINE = re.compile(r"[^\n]*\n|[^\n]+")
HEADER = re.compile(r"\s*\[")
SENSOR = re.compile(r"\s*\[\[\s*sensor\s*\]\]\s*(#.*)?")
NAME = re.compile(r"\s*name\s*=")
ORIGIN = re.compile(r"""(\s*cost_origin\s*=\s*)(?:"[^"]*"|'[^']*')""")
COST = re.compile(r"(\s*cost\s*=\s*)(?:[0-9eE+._-]+|\[[0-9eE+._,\s-]*\])(\s*(?:#.*)?)")


def rounded(cost: float) -> float:
    """A cost with as many digits as it can have.

    >>> rounded(0.0123456), rounded(98765.0)
    (0.0123, 98800.0)
    """
    return float(f"{cost:.{DIGITS}g}")


def lines_of(costs: Mapping[str, float], features: Mapping[str, Iterable[str]]) -> str:
    """The lines of a hardcase.toml that give these sensors these costs."""
    blocks = [
        f"[[sensor]]\nname = {toml_value(name)}\nfeatures = {toml_value(list(features[name]))}\ncost = {cost!r}\n"
        f'cost_origin = "measured"\n'
        for name, cost in costs.items()
    ]
    return "\n".join(blocks)


def patch_of(path: str, data: bytes, costs: Mapping[str, float]) -> str:
    """A unified diff that gives the sensors of a hardcase.toml these costs and changes nothing else; empty for none.

    The ``cost_origin`` of these sensors becomes measured.

    Raises
    ------
    InputError
        The file is not TOML, or is written in a way that this cannot change line by line.
    """
    import difflib

    text = data.decode(errors="strict")
    old = LINE.findall(text)
    new = LINE.findall("".join(_with_costs(path, old, costs)))
    before, after = parse_toml(path, data), parse_toml(path, "".join(new).encode())
    for sensor in before.get("sensor", []):
        if sensor.get("name") in costs:
            sensor |= {"cost": costs[sensor["name"]], "cost_origin": "measured"}
    if before != after:
        raise InputError(f"the costs in {path} cannot be changed line by line; write each as a line of its own")
    diff = difflib.unified_diff(old, new, path, path)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)


def _with_costs(path: str, lines: list[str], costs: Mapping[str, float]) -> list[str]:
    """The lines with other costs, where a block of a sensor has its name and its cost on lines of their own."""
    new = list(lines)
    name: Any = None
    at: int | None = None
    origin: int | None = None
    is_sensor = False
    for k, line in enumerate([*lines, "["]):
        text = line.rstrip("\r\n")
        if HEADER.match(text):
            if isinstance(name, str) and name in costs and at is not None:
                ending = lines[at][len(lines[at].rstrip("\r\n")) :]
                match = COST.fullmatch(lines[at].rstrip("\r\n"))
                assert match is not None
                new[at] = f"{match[1]}{costs[name]!r}{match[2]}{ending}"
                if origin is None:
                    indent = match[1][: -len(match[1].lstrip())]
                    new[at] += f'{"" if ending else chr(10)}{indent}cost_origin = "measured"{ending}'
                else:
                    new[origin] = ORIGIN.sub(r'\g<1>"measured"', lines[origin])
            name, at, origin, is_sensor = None, None, None, SENSOR.fullmatch(text) is not None
        elif is_sensor and NAME.match(text):
            name = parse_toml(path, text.encode()).get("name")
        elif is_sensor and COST.fullmatch(text):
            at = k
        elif is_sensor and ORIGIN.match(text):
            origin = k
    return new
