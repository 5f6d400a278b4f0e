# SPDX-License-Identifier: Apache-2.0
"""The page of ``hardcase playground``: a template, one script with the kernel before it, and all data as packed text.

The script is the only one that the page's policy lets run: its head has the script's digest. What a bundle says of
itself reaches the page in a block of base64, which no name can leave, and is shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.load import Loaded
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Acquire, Forward
from hardcase_edge.program.readings import Reading
from hardcase_export.drafts.front import read_front
from hardcase_export.drafts.rows import read_rows
from hardcase_export.to_js.folder import PACKAGE, model_values
from hardcase_export.to_js.wasm import wasm_kernel

from ..measuring.labelled_rows import LabelledRows, rows_for
from ..measuring.measure import measure, node_figures, quality_of, steps_of
from ..reports.front_chart import front_svg
from ..reports.page import figure, render
from ..reports.policy_boxes import flow_of
from ..reports.policy_picture import draw

__all__ = ["playground_page"]

SCRIPT = Path(__file__).parent / "playground.js"
MAX_ROWS = 40  # real cases of a build
MAX_CONTROLS = 400  # readings that have one; those of the other sensors stay as in the case
F32_MAX = 3.4028234663852886e38
MAX_FRONT_BYTES = 16 * 1024 * 1024
Json = dict[str, Any]


def playground_page(loaded: Loaded, build: Path | None = None) -> str:
    """The page, of a bundle that has passed every check.

    Parameters
    ----------
    build : the folder of its training, from which cases with their truth, shares of rows and the front are taken

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        Zig is missing, the build is of another table, or there is no case to begin with.
    """
    program, manifest = loaded.bundle.program, loaded.manifest
    rows = None if build is None else rows_for(program, manifest, build / "test.npz", None, [build])
    cases = _golden_rows(loaded) if rows is None or build is None else _build_rows(rows, build, loaded)
    if not cases:
        raise InputError("the bundle has no golden case to begin with; name its build with --build")
    values = {
        "wasm": base64.b64encode(wasm_kernel()).decode("ascii"),
        "model": model_values(loaded),
        "worst": loaded.report.worst_cost,
        "rows": cases,
        "golden": _golden(loaded),
        "ranges": _ranges(loaded, cases),
        "forwards": any(isinstance(node, Forward) for node in program.nodes),
        **_controls(loaded),
    }
    kernel = re.sub(r"^export ", "", (PACKAGE / "hardcase.js").read_text(encoding="utf-8"), flags=re.M)
    script = f"\n{kernel}\n{SCRIPT.read_text(encoding='utf-8')}"
    packed = zlib.compress(json.dumps(values, allow_nan=False, separators=(",", ":")).encode(), 9)
    return render(
        "playground",
        heading=manifest.name,
        target=manifest.target,
        unit=manifest.unit,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        script=Markup(script),
        packed=Markup(base64.b64encode(packed).decode("ascii")),
        flow=_flow(loaded, rows),
        front="" if build is None else _front(loaded, build),
    )


# ---------------------------------------------------------------- cases


def _reading(x: Reading, dtype: str) -> Reading:
    """As short as JSON has it without a loss; an infinity is missing, as it is to the kernel."""
    if x is None or not isfinite(x):
        return None
    if dtype == "i32" and x == x // 1:
        return int(x)
    return float(str(np.float32(x))) if dtype == "f32" and abs(x) <= F32_MAX else float(x)


def _typed(row: Any, loaded: Loaded) -> list[Reading]:
    """The readings of sensors that some node buys; of the others none, because nobody asks for them."""
    program = loaded.bundle.program
    used = {f for s in _bought(loaded) for f in program.sensors[s].features}
    return [
        _reading(x, f.dtype) if k in used else None for k, (x, f) in enumerate(zip(row, program.features, strict=True))
    ]


def _bought(loaded: Loaded) -> list[int]:
    nodes = loaded.bundle.program.nodes
    return sorted({s for node in nodes if isinstance(node, Acquire | Forward) for s in node.sensors})


def _build_rows(rows: LabelledRows, build: Path, loaded: Loaded) -> list[Json]:
    """Some rows of all classes or values, with their truth and f0's answers."""
    order = np.argsort(rows.y, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, MAX_ROWS).astype(int))]
    steps, f0 = steps_of(loaded.manifest), list(rows.replies)
    if not loaded.manifest.hpc:  # a policy that never forwards names no f0, but its build has one
        stored = read_rows(build / "test.npz", loaded.manifest)
        f0 = list(zip(stored.hpc.tolist(), stored.confidence.tolist(), strict=True))

    def answer(value: Any) -> int:
        return int(value) if steps is None else round(float(value) * 2**steps)

    return [
        {
            "readings": _typed(rows.X[k].tolist(), loaded),
            "truth": answer(rows.y[k]),
            "f0": [str(answer(f0[k][0])), int(f0[k][1])],
        }
        for k in chosen.tolist()
    ]


def _golden_rows(loaded: Loaded) -> list[Json]:
    """The golden cases' readings, with f0's answer where the case has one."""
    return [
        {"readings": _typed(c.readings, loaded), "truth": None, "f0": c.reply and [str(c.reply[0]), c.reply[1]]}
        for c in loaded.bundle.golden
    ]


def _golden(loaded: Loaded) -> list[Json]:
    return [
        {
            "readings": _typed(c.readings, loaded),
            "failed": c.failed,
            "budget": None if c.budget is None else str(c.budget),
            "itemSize": c.item_size,
            "cloud": c.cloud,
            "reply": c.reply and [str(c.reply[0]), c.reply[1]],
            "expected": [
                str(d.result), d.confidence, d.route, str(d.cost), list(d.sensors), list(d.trace),
            ],
        }
        for c in loaded.bundle.golden
        for d in [c.expected]
    ]  # fmt: skip


def _ranges(loaded: Loaded, cases: list[Json]) -> list[list[float]]:
    """By feature, the lowest and the highest reading of the cases, and of training rows if the bundle knows them."""
    known = loaded.manifest.ranges or (None,) * len(loaded.manifest.features)
    found = []
    for k, pair in enumerate(known):
        values = [row["readings"][k] for row in cases if row["readings"][k] is not None] + list(pair or ())
        found.append([min(values), max(values)] if values else [0, 1])
    return found


def _controls(loaded: Loaded) -> Json:
    """The sensors that some node buys, and of each sensor the features that have a control."""
    program, bought, left = loaded.bundle.program, _bought(loaded), MAX_CONTROLS
    shown: list[list[int]] = [[] for _ in program.sensors]
    for s in bought:
        shown[s] = list(program.sensors[s].features[: max(left, 0)])
        left -= len(shown[s])
    return {"bought": bought, "shown": shown}


# ---------------------------------------------------------------- pictures


def _flow(loaded: Loaded, rows: LabelledRows | None) -> Markup:
    """The policy's picture, with shares of rows where there are any."""
    program, manifest = loaded.bundle.program, loaded.manifest
    figures, note = None, ""
    if rows is not None:
        decided = measure(program, rows, quality_of(manifest), steps=steps_of(manifest)).decisions
        sizes = () if rows.sizes is None else rows.sizes.tolist()
        figures, note = node_figures(program, decided, rows.y.tolist(), sizes), f"{len(rows.y):,} test rows"
    return figure(draw(flow_of(program, manifest, figures), f"{manifest.name}: {manifest.target}", note))


def _front(loaded: Loaded, build: Path) -> Markup:
    """The front of the build, with the bundle's point marked if it is one of them."""
    path = build / "front.json"
    points = read_front(path)  # which checks all that is drawn below
    entries = json.loads(read_bounded(path, MAX_FRONT_BYTES, "front", remedy="train again"))["points"]
    trained = loaded.manifest.trained
    same = [
        k for k, p in enumerate(points.points) if (p.method, p.params) == (trained.get("method"), trained.get("params"))
    ]
    svg = front_svg(
        points.unit, entries, loaded.manifest.name, picked=same[0] if same else None, quality=points.quality
    )
    return figure(svg)
