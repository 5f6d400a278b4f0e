# SPDX-License-Identifier: Apache-2.0
"""Decisions for ``tests/export/to_js/replay.mjs``: programs as images, worlds, and what must come of them.

A line is a program. Whole numbers that a double may not hold are texts.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.machine import EVALUATORS, open_machine
from hardcase_edge.program.definition import Program
from hardcase_edge.program.readings import DTYPES
from tests.golden.make_golden import GOLDEN
from tests.helpers.cli.browser import Browser
from tests.helpers.edge.from_spec import World
from tests.helpers.edge.kernel_cases import programs
from tests.helpers.edge.worlds import play
from tests.helpers.places import ROOT

REPLAY = ROOT / "tests" / "export" / "to_js" / "replay.mjs"
STRANGE = (
    0.5,
    -0.0,
    0.1,
    1e308,
    -3.5e38,
    2.0**31,
    -(2.0**31),
    5e-324,
    16777217.0,
)  # also for types that cannot hold them


def exported_golden(places: pytest.TempPathFactory, target: str) -> Path:
    """The folder that a target makes of the golden bundle."""
    folder = places.mktemp(target) / "policy"
    assert main(["export", str(GOLDEN), f"--{target}", str(folder)]) == 0
    return folder


def write_js_cases(path: Path, count: int) -> int:
    """The golden program, stacks that share trees and so many random programs; returns the number of decisions."""
    n = 0
    with path.open("w", encoding="ascii") as file:
        for k, (p, cases) in enumerate(programs(count)):
            rng = random.Random(k)
            odd = [replace(c, readings=_strange(rng, c.readings)) for c in cases]
            entries = [_case(p, case) for case in (*cases, *odd)]
            image = base64.b64encode(make_image(p)).decode()
            types = [[p.features[f].dtype for f in s.features] for s in p.sensors]
            file.write(json.dumps({"image": image, "types": types, "cases": entries}, allow_nan=False) + "\n")
            n += len(entries)
    return n


def replayed_in(browser: Browser, package: Path, lines: list[str], page: Path) -> str:
    """What a browser says of such lines with the kernel of a package: the number of decisions, or what differs.

    ``page`` is the file that it opens.
    """
    data = [*(package / name for name in ("hardcase.js", "hardcase.wasm")), REPLAY]
    wrapper, wasm, replay = (base64.b64encode(path.read_bytes()).decode() for path in data)
    told = base64.b64encode("\n".join(lines).encode()).decode()
    page.write_text(
        f"""<!doctype html><meta charset="utf-8"><script type="module">
        import {{ Policy }} from "data:text/javascript;base64,{wrapper.replace("+", "%2B")}";
        import {{ replay }} from "data:text/javascript;base64,{replay.replace("+", "%2B")}";
        const wasm = Uint8Array.from(atob("{wasm}"), (c) => c.charCodeAt(0));
        try {{
          const kernel = await WebAssembly.compile(wasm);
          document.title = `made ${{replay(Policy, kernel, atob("{told}").split("\\n"))}}`;
        }} catch (error) {{ document.title = `made ${{error}}`; }}
        </script>"""
    )
    browser.open(page.as_uri())
    browser.until("document.title.startsWith('made')")
    return str(browser.evaluate("document.title")).removeprefix("made ")


def _strange(rng: random.Random, readings: Any) -> list[Any]:
    return [rng.choice(STRANGE) if rng.random() < 0.3 else x for x in readings]


def _case(p: Program, case: World) -> dict[str, Any]:
    """A world, and the decision and the request of Python, which C must have made, too."""
    (d, asked), other = (play(open_machine(p, name), p, case) for name in EVALUATORS)
    assert (d, asked) == other
    options = {"budget": None if case.budget is None else str(case.budget), "itemSize": case.size, "cloud": case.cloud}
    return {
        "options": {**options, "dead": sorted(case.dead)},
        "readings": [None if s in case.failing else [case.readings[f] for f in sensor.features]
                     for s, sensor in enumerate(p.sensors)],
        "reply": case.reply and [str(case.reply[0]), case.reply[1]],
        "request": None if asked is None else _request(p, asked),
        "expected": {
            "result": str(d.result), "confidence": d.confidence, "route": d.route, "cost": str(d.cost),
            "sensors": d.sensors, "failed": d.failed, "unpaid": d.unpaid, "trace": d.trace,
        },
    }  # fmt: skip


def _request(p: Program, readings: list[Any]) -> str:
    types = [DTYPES[p.features[f].dtype] for f in p.uplink.features]
    values = [t.missing if x is None else x for x, t in zip(readings, types, strict=True)]
    return struct.pack("<" + "".join(t.code for t in types), *values).hex()
