# SPDX-License-Identifier: Apache-2.0
"""The page of ``hardcase playground``: a template, one script with the kernel before it, and all data as packed text.

The script is the only one that the page's policy lets run: its head has the script's digest. What a bundle says of
itself reaches the page in a block of base64, which no name can leave, and is shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import decide
from hardcase_edge.program.definition import Forward
from hardcase_edge.program.readings import Reading
from hardcase_edge.session.actions import Decision
from hardcase_export.drafts.rows import read_rows
from hardcase_export.to_js.folder import PACKAGE, model_values
from hardcase_export.to_js.wasm import wasm_kernel

from ..measuring.labelled_rows import rows_for
from ..measuring.measure import steps_of
from ..reports.page import render
from .packing import Blobs, image_of, split_bytes
from .points import Tried, bought, flow_with, front_with, tried_points
from .typical import typical_rows

SCRIPT = Path(__file__).parent / "playground.js"
MAX_PAGE = 150_000  # bytes with other points, where the bundle alone takes less
MAX_ROWS = 40  # of training, of a build
MAX_READINGS = 16_000  # of all these rows, of features that some policy uses
MAX_CONTROLS = 400  # readings that have one; those of the other sensors stay as in the case
F32_MAX = 3.4028234663852886e38
Json = dict[str, Any]


def playground_page(loaded: Loaded, build: Path | None = None) -> str:
    """The page, of a bundle that has passed every check.

    Parameters
    ----------
    build : the folder of its training, from which typical training rows with their truth, shares of test rows and the
        front are taken; without it the cases are the golden ones

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        Zig is missing, the build is of another table, or there is no case to begin with.
    """
    program, manifest = loaded.bundle.program, loaded.manifest
    rows = None if build is None else rows_for(program, manifest, build / "test.npz", None, [build])
    own = Tried(loaded, flow_with(loaded, rows))
    if build is None:
        return _page(own, {})
    others, page = tried_points(build, loaded), _page(own, {}, build)
    if len(page) > MAX_PAGE:
        return _page(own, others, build)
    fit: list[int] = []
    for k in sorted(others, key=lambda k: len(image_of(others[k].loaded))):
        larger = _page(own, {j: others[j] for j in others if j in (*fit, k)}, build)
        if len(larger) <= MAX_PAGE:
            fit, page = [*fit, k], larger
    return page


def _page(own: Tried, others: Mapping[int, Tried], build: Path | None = None) -> str:
    """The page of a bundle and of these points of its build."""
    loaded = own.loaded
    program, manifest = loaded.bundle.program, loaded.manifest
    front, number = ("", None) if build is None else front_with(build, loaded, list(others))
    points = [own, *others.values()]
    used = {f for point in points for s in bought(point.loaded) for f in program.sensors[s].features}
    cases = _golden_rows(loaded, used) if build is None else _training_rows(build, loaded, used)
    if not cases:
        raise InputError("the bundle has no golden case to begin with; name its build with --build")
    blobs = Blobs()
    model = model_values(loaded)
    del model["image"]
    values = {
        "wasm": blobs.add(wasm_kernel()),
        "model": model,
        "rows": cases,
        "ranges": _ranges(loaded, cases),
        "front": str(front),
        "points": [
            {
                "name": point.name or "this bundle",
                "number": k,
                "golden": _by_rows(point.loaded, cases) if point.name else _golden(loaded, used),
                "image": blobs.add(split_bytes(image_of(point.loaded))),
                "flow": None if not point.name else str(point.flow),
                **_controls(point.loaded),
            }
            for k, point in zip([number, *others], points, strict=True)
        ],
    }
    kernel = re.sub(r"^export ", "", (PACKAGE / "hardcase.js").read_text(encoding="utf-8"), flags=re.M)
    script = f"\n{kernel}\n{SCRIPT.read_text(encoding='utf-8')}"
    return render(
        "playground",
        heading=manifest.name,
        target=manifest.target,
        unit=manifest.unit,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        script=Markup(script),
        packed=Markup(blobs.packed(values)),
        flow=points[0].flow,
        has_front=bool(front),
        has_build=build is not None,
    )


# ---------------------------------------------------------------- cases


def _reading(x: Reading, dtype: str) -> Reading:
    """As short as JSON has it without a loss; an infinity is missing, as it is to the kernel."""
    if x is None or not isfinite(x):
        return None
    if dtype == "i32" and x == x // 1:
        return int(x)
    return float(str(np.float32(x))) if dtype == "f32" and abs(x) <= F32_MAX else float(x)


def _typed(row: Any, loaded: Loaded, used: set[int]) -> list[Reading]:
    """The readings of features that some policy uses; of the others none, because nobody asks for them."""
    features = loaded.bundle.program.features
    return [_reading(x, f.dtype) if k in used else None for k, (x, f) in enumerate(zip(row, features, strict=True))]


def _training_rows(build: Path, loaded: Loaded, used: set[int]) -> list[Json]:
    """Typical rows of training, of all classes or of the whole range of values, with their truth and f0's answers."""
    rows, steps = read_rows(build / "train.npz", loaded.manifest), steps_of(loaded.manifest)
    n_rows = max(1, min(MAX_ROWS, MAX_READINGS // max(1, len(used))))

    def answer(value: Any) -> int:
        return int(value) if steps is None else round(float(value) * 2**steps)

    return [
        {
            "readings": _typed(rows.X[k].tolist(), loaded, used),
            "truth": answer(rows.y[k]),
            "f0": [str(answer(rows.hpc[k])), int(rows.confidence[k])],
        }
        for k in typical_rows(rows.X[:, sorted(used)], rows.y, n_rows)
    ]


def _golden_rows(loaded: Loaded, used: set[int]) -> list[Json]:
    """The golden cases' readings, with f0's answer where the case has one."""
    return [
        {"readings": _typed(c.readings, loaded, used), "truth": None, "f0": c.reply and [str(c.reply[0]), c.reply[1]]}
        for c in loaded.bundle.golden
    ]


def _golden(loaded: Loaded, used: set[int]) -> list[Json]:
    """The golden cases with what Python decides."""
    return [
        {
            "readings": _typed(c.readings, loaded, used),
            "failed": c.failed,
            "budget": None if c.budget is None else str(c.budget),
            "itemSize": c.item_size,
            "cloud": c.cloud,
            "reply": c.reply and [str(c.reply[0]), c.reply[1]],
            "expected": _said(c.expected),
        }
        for c in loaded.bundle.golden
    ]


def _by_rows(loaded: Loaded, cases: list[Json]) -> list[Json]:
    """What Python decides on the cases, for a policy that has no golden ones."""
    made = []
    for k, case in enumerate(cases):
        reply = case["f0"] and (int(case["f0"][0]), case["f0"][1])
        made.append({"row": k, "expected": _said(decide(loaded.machine, case["readings"], reply))})
    return made


def _said(d: Decision) -> list[Any]:
    return [str(d.result), d.confidence, d.route, str(d.cost), list(d.sensors), list(d.trace)]


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
    program, sensors, left = loaded.bundle.program, bought(loaded), MAX_CONTROLS
    shown: list[list[int]] = [[] for _ in program.sensors]
    for s in sensors:
        shown[s] = list(program.sensors[s].features[: max(left, 0)])
        left -= len(shown[s])
    forwards = any(isinstance(node, Forward) for node in program.nodes)
    return {"bought": sensors, "shown": shown, "worst": loaded.report.worst_cost, "forwards": forwards}
