# SPDX-License-Identifier: Apache-2.0
"""The kernel as WebAssembly: random programs beside Python and C, decision for decision, and its size and time.

python -m benchmarks run wasm
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from benchmarks.pages import markdown
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.machine import KERNEL, decide, open_machine
from hardcase_export.integers.quantise import quantise
from hardcase_export.to_js.folder import PACKAGE
from hardcase_export.to_js.wasm import wasm_kernel
from tests.helpers.cli.browser import Browser
from tests.helpers.export.builds import cascade_draft, make_rows
from tests.helpers.export.js_cases import REPLAY, replayed_in, write_js_cases

AT_ONCE = 250  # programs that a page of the browser holds
ROWS, ROUNDS = 300, 200
TIMED = """
import { readFileSync } from "node:fs";
const { image, rows, rounds } = JSON.parse(readFileSync(process.argv[1], "utf-8"));
const { load } = await import(process.argv[2]);
const policy = await load(Buffer.from(image, "base64"));
let best = Infinity;
for (let k = 0; k < rounds; k++) {
  const began = process.hrtime.bigint();
  for (const row of rows) policy.decide(row, { reply: [0, 5000] });
  best = Math.min(best, Number(process.hrtime.bigint() - began) / 1000 / rows.length);
}
console.log(best);
"""


def node(*words: object) -> str:
    """What Node prints."""
    made = subprocess.run(["node", *map(str, words)], capture_output=True, text=True, check=True)
    return made.stdout


def timed(package: Path) -> dict[str, float]:
    """The best of many rounds over the same rows, in us a decision: in Node, and by the device's evaluator in C."""
    program = quantise(cascade_draft()).program
    X = make_rows(ROWS, 3)[0].tolist()
    rows = [[None if x != x else x for x in row] for row in X]
    by_sensor = [[[row[f] for f in s.features] for s in program.sensors] for row in rows]
    asked = {"image": b64encode(make_image(program)).decode(), "rows": by_sensor, "rounds": ROUNDS}
    (package / "timed.json").write_text(json.dumps(asked))
    machine, best = open_machine(program, KERNEL), float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for row in rows:
            decide(machine, row, (0, 5000))
        best = min(best, 1e6 * (time.perf_counter() - began) / ROWS)
    script = ("--input-type=module", "-e", TIMED, package / "timed.json", f"file://{package / 'hardcase.js'}")
    return {"wasm_us": float(node(*script)), "native_us": best}


def in_chromium(package: Path, cases: Path) -> tuple[int, str]:
    """How many decisions are the same there, and which browser it is."""
    n, lines = 0, cases.read_text().splitlines()
    with tempfile.TemporaryDirectory() as name, Browser(Path(name)) as browser:
        for k in range(0, len(lines), AT_ONCE):
            n += int(replayed_in(browser, package, lines[k : k + AT_ONCE], Path(name) / f"{k}.html"))
        return n, browser.call("Browser.getVersion")["product"]


def arguments(parser: Any) -> None:
    """The flags of its own."""
    parser.add_argument("--programs", type=int, default=10_000)


def run(args: Any) -> dict[str, Any]:
    """Compare and measure; ends with an error at the first decision that differs."""
    with tempfile.TemporaryDirectory() as name:
        package = Path(name)
        for path in PACKAGE.iterdir():
            (package / path.name).write_bytes(path.read_bytes())
        (package / "hardcase.wasm").write_bytes(wasm_kernel())
        n = write_js_cases(package / "cases.jsonl", args.programs)
        same = int(node(REPLAY, package, package / "cases.jsonl"))
        shown, product = in_chromium(package, package / "cases.jsonl")
        size = {"bytes": len(wasm_kernel()), "gzipped": len(gzip.compress(wasm_kernel(), 9, mtime=0))}
        versions = {"node": node("--version").strip(), "browser": product}
        counts = {"programs": args.programs, "decisions": n, "same": same, "shown": shown}
        return {**counts, **size, **timed(package), **versions}


def page(m: dict[str, Any]) -> str:
    """The figures."""
    rows = [
        ("decisions of random programs that are as in Python and C", f"{m['same']:,} of {m['decisions']:,}"),
        ("the same in Chromium", f"{m['shown']:,} of {m['decisions']:,}"),
        ("random programs", f"{m['programs']:,}"),
        ("bytes of `hardcase.wasm`", f"{m['bytes']:,} ({m['gzipped']:,} gzipped)"),
        ("a decision in Node, of a cascade over 12 trees of three classes", f"{m['wasm_us']:.2f} us"),
        ("the same by the kernel of a device, called from Python", f"{m['native_us']:.2f} us"),
    ]
    table = markdown(("what", "figure"), rows)
    return (
        f"{table}\n\nEach random program decides eight cases, half of them with readings that its types cannot hold.\n"
        "Each case is decided at once, and once more sensor by sensor beside another session of the same policy.\n"
        f"Node is {m['node']} and the browser {m['browser'].replace('/', ' ')}; "
        f"times are the best of {ROUNDS} rounds over {ROWS} rows on one core.\n"
    )


def problems(m: dict[str, Any]) -> list[str]:
    """What misses its goal."""
    goals = {
        "a decision differs": not m["same"] == m["shown"] == m["decisions"],
        "more than 25,000 bytes": m["bytes"] > 25_000,
    }
    return [line for line, is_missed in {**goals, "more than 5 us": m["wasm_us"] > 5}.items() if is_missed]
