# SPDX-License-Identifier: Apache-2.0
"""The page of ``hardcase playground`` in Chromium: its size, and when its first decision stands there; its picture.

python -m benchmarks run playground [--build FOLDER]
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier

from benchmarks.pages import ROOT, markdown
from hardcase.cli import main
from hardcase.playground.packing import image_of
from hardcase.playground.page import playground_page
from hardcase_edge.bundle.load import Loaded, load_bundle
from tests.helpers.cli.browser import Browser
from tests.helpers.cli.hostile_bundles import faults_of, hostile_bundle

RIG = ROOT / "examples" / "hydraulic" / "accumulator.hcb"
READY = "document.documentElement.dataset.ready"
WITH_BUILD, FOREST = "the rig's policy with `--build`", "a forest of 150 trees"
OPENS, MOST_MS = 15, 300


def forest(folder: Path) -> Loaded:
    """A forest of 150 trees on made-up rows of 12 readings, imported from ONNX."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 12)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] + X[:, 2] > 0.3).astype(int) + (X[:, 3] > 1)
    model = RandomForestClassifier(150, max_depth=10, random_state=0).fit(X, y)
    (folder / "forest.onnx").write_bytes(to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString())
    names = ",".join(f"x{k}" for k in range(12))
    np.savetxt(folder / "rows.csv", X, delimiter=",", header=names, comments="")
    words = ["export", "--model", folder / "forest.onnx", "--rows", folder / "rows.csv", "--out", folder / "f.hcb"]
    assert main([*map(str, words)]) == 0
    return load_bundle(folder / "f.hcb")


def trained(build: Path) -> Path:
    """The rig's build, for cases with their truth, the front and other points of it."""
    words = ["train", RIG.with_name("hardcase.toml"), "--effort", "quick", "--out", build, "--quiet"]
    assert main([*map(str, words)]) == 0
    return build


def measured(browser: Browser, page: Path, loaded: Loaded, opens: int, build: Path | None) -> dict[str, Any]:
    """Bytes of the page and of the policy's image, golden cases, and milliseconds from navigation to first decision."""
    page.write_text(playground_page(loaded, build), encoding="utf-8")
    ms = []
    for _ in range(opens):
        browser.open("about:blank#")
        browser.open(page.as_uri())
        browser.until(READY)
        ms.append(float(browser.evaluate(READY)))
    checked = browser.evaluate("document.getElementById('checked').textContent").split(":")[0]
    points = browser.evaluate("document.getElementById('point')?.options.length ?? 1")
    size = {"bytes": page.stat().st_size, "image": len(image_of(loaded)), "points": points}
    return {**size, "ms": ms, "checked": checked}


def arguments(parser: Any) -> None:
    """The flags of its own."""
    parser.add_argument("--opens", type=int, default=OPENS)
    parser.add_argument("--hostile", type=int, default=200)
    parser.add_argument("--build", type=Path, help="of the rig with --effort quick; without it, it is trained first")


def run(args: Any) -> dict[str, Any]:
    """Open the page of the rig's policy and that of a large forest."""
    with tempfile.TemporaryDirectory() as name, Browser(Path(name)) as browser:
        folder = Path(name)
        build, rig = args.build or trained(folder / "build"), load_bundle(RIG)
        cases = {"the rig's policy": (rig, None), WITH_BUILD: (rig, build), FOREST: (forest(folder), None)}
        return {
            "pages": {
                what: measured(browser, folder / f"{k}.html", loaded, args.opens, with_build)
                for k, (what, (loaded, with_build)) in enumerate(cases.items())
            },
            "hostile": [faults_of(browser, hostile_bundle(k), folder) for k in range(args.hostile)],
            "browser": browser.call("Browser.getVersion")["product"],
        }


def page(m: dict[str, Any]) -> str:
    """The figures."""
    head = (
        "page",
        "bytes",
        "policies",
        "bytes of the first one's image",
        "ms to the first decision: median, most",
        "checked",
    )
    rows = [
        (
            what,
            f"{p['bytes']:,}",
            str(p["points"]),
            f"{p['image']:,}",
            f"{statistics.median(ms):.0f}, {max(ms):.0f}",
            p["checked"],
        )
        for what, p in m["pages"].items()
        for ms in [p["ms"]]
    ]
    n = len(next(iter(m["pages"].values()))["ms"])
    slow = sum(t > MOST_MS for p in m["pages"].values() for t in p["ms"])
    return (
        f"{slow} of {n * len(m['pages'])} openings took more than {MOST_MS} ms.\n\n"
        f"{markdown(head, rows)}\n\nThe browser is {m['browser'].replace('/', ' ')} without a window, which opened "
        f"each page {n} times from a file.\nTime counts from the start of the navigation; before the first decision "
        "the page has played all golden cases.\nThe forest's page has its 150 trees in full, whose learned numbers "
        "hardly deflate; the build is of `--effort quick`.\n\n"
        f"Of {len(m['hostile'])} bundles whose names are markup, script or the end of a block, "
        f"{sum(map(bool, m['hostile']))} had a name that was more than text on the page.\n"
    )


def problems(m: dict[str, Any]) -> list[str]:
    """What misses its goal: 150,000 bytes for the rig, and 300 ms."""
    rig = max(p["bytes"] for what, p in m["pages"].items() if what != FOREST)
    slow = [what for what, p in m["pages"].items() if statistics.median(p["ms"]) > MOST_MS]
    return [*(["a hostile name is more than text"] if any(m["hostile"]) else []),
            *(["the rig's page has more than 150,000 bytes"] if rig > 150_000 else []),
            *(f"{what}: more than {MOST_MS} ms" for what in slow)]  # fmt: skip
