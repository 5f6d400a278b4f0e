# SPDX-License-Identifier: Apache-2.0
"""The policies of a page: the bundle's, and points of its build's front that are small enough to be tried beside it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from hardcase_edge.base.files import read_bounded
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.value import Value
from hardcase_edge.errors import HardcaseError
from hardcase_edge.more.fronts.front import staircase
from hardcase_edge.program.definition import Acquire, Forward
from hardcase_export.drafts.front import Point
from hardcase_export.integers.point import Build

from ..measuring.labelled_rows import LabelledRows, rows_for
from ..measuring.measure import measure, node_figures, quality_of, steps_of
from ..reports.front_chart import front_svg
from ..reports.page import amount, figure
from ..reports.policy_boxes import flow_of
from ..reports.policy_picture import draw

MOST_TRIED = 8
MAX_IMAGES = 96 * 1024  # bytes of all their images, deflated
MAX_DRAFT = 120 * 1024  # bytes of a packed draft; an image has a third of them or more
MIN_AGREEMENT = 0.999  # of integers with floats, as of an export
MAX_FRONT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Tried:
    """A policy of the page, with its picture; ``name`` is empty for the bundle's own."""

    loaded: Loaded
    flow: Markup
    name: str = ""


def bought(loaded: Loaded) -> list[int]:
    """The sensors that some node buys."""
    nodes = loaded.bundle.program.nodes
    return sorted({s for node in nodes if isinstance(node, Acquire | Forward) for s in node.sensors})


def tried_points(folder: Path, loaded: Loaded) -> dict[int, Tried]:
    """Points of the front by their number, the cheapest first, spread evenly over those that are small enough.

    Left out are the bundle's own point, those whose names or scale differ from the bundle's, those that no export
    would write, and what makes the page too large.
    """
    from hardcase_export.to_js.folder import model_values

    build, model = Build(folder), model_values(loaded)
    points, own = build.front.points, _own(build.front.points, loaded)
    small = {k for k, p in enumerate(points) if p.program and k != own and _bytes_of(folder / p.program) <= MAX_DRAFT}
    best = [k for k in staircase([(p.valid.cost, p.valid.quality) for p in points]) if k in small]
    if len(best) < MOST_TRIED:  # a short front leaves room for what lies below it
        known = sorted(small, key=lambda k: (k not in best, points[k].valid.cost))
        unlike = {(points[k].valid.cost, points[k].valid.quality): k for k in reversed(known)}
        best = sorted(unlike.values(), key=lambda k: (k not in best, points[k].valid.cost))[:MOST_TRIED]
        best.sort(key=lambda k: points[k].valid.cost)
    n, left, found = min(len(best), MOST_TRIED), MAX_IMAGES, dict[int, Tried]()
    for k in dict.fromkeys(best[round(i * (len(best) - 1) / max(n - 1, 1))] for i in range(n)):
        try:
            other = _loaded(build, points[k])
            values = model_values(other)
            rows = rows_for(other.bundle.program, other.manifest, folder / "test.npz", None, [folder])
        except HardcaseError:
            continue
        size = len(zlib.compress(values["image"].encode(), 9)) * 3 // 4
        same = all(values[key] == model[key] for key in ("features", "sensors", "classes", "reads", "types", "costs"))
        if same and steps_of(other.manifest) == steps_of(loaded.manifest) and size <= left:
            left -= size
            found[k] = Tried(other, flow_with(other, rows), _name(points[k], build.front.unit, build.front.quality))
    return found


def _bytes_of(draft: Path) -> int:
    """Of its file; 0 if there is none, which is told where it is read."""
    return draft.stat().st_size if draft.is_file() else 0


def _loaded(build: Build, point: Point) -> Loaded:
    """The point as a device would load it, without golden cases."""
    made = build.integers(point, MIN_AGREEMENT)
    manifest, steps = made.manifest, made.quantised.steps
    if steps is not None:
        unit = "" if manifest.value is None else manifest.value.unit
        manifest = replace(manifest, value=Value(unit, steps, made.intervals))
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), made.quantised.program, ())))


def _name(point: Point, unit: str, quality: str) -> str:
    return f"{point.method}: {amount(point.test.cost)} {unit}, {quality} {point.test.quality:.4f} on test rows"


def _own(points: Sequence[Point], loaded: Loaded) -> int | None:
    """The number of the bundle's point; None if it is none, such as a mix."""
    trained = loaded.manifest.trained
    wanted = trained.get("method"), trained.get("params")
    return next((k for k, p in enumerate(points) if (p.method, p.params) == wanted), None)


# ---------------------------------------------------------------- pictures


def flow_with(loaded: Loaded, rows: LabelledRows | None) -> Markup:
    """The policy's picture, with shares of rows where there are any."""
    program, manifest = loaded.bundle.program, loaded.manifest
    figures, note = None, ""
    if rows is not None:
        decided = measure(program, rows, quality_of(manifest), steps=steps_of(manifest)).decisions
        sizes = () if rows.sizes is None else rows.sizes.tolist()
        figures, note = node_figures(program, decided, rows.y.tolist(), sizes), f"{len(rows.y):,} test rows"
    return figure(draw(flow_of(program, manifest, figures), f"{manifest.name}: {manifest.target}", note))


def front_with(folder: Path, loaded: Loaded, tried: Sequence[int]) -> tuple[Markup, int | None]:
    """The front of the build, with the bundle's point marked if it is one of them, and the number of that point.

    Circles of the points that the page can try, and of the bundle's own, have their number.
    """
    front = Build(folder).front  # which checks all that is drawn below
    entries = json.loads(read_bounded(folder / "front.json", MAX_FRONT_BYTES, "front", remedy="train again"))["points"]
    own = _own(front.points, loaded)
    numbered = [*tried, *([] if own is None else [own])]
    svg = front_svg(front.unit, entries, loaded.manifest.name, picked=own, quality=front.quality, numbered=numbered)
    return figure(svg), own
