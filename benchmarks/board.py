# SPDX-License-Identifier: Apache-2.0
"""Alerts and board: checked by promtool, and every query of the board run against a real Prometheus that scrapes pages.

    python -m benchmarks run board

Ends with status 1 if promtool refuses the rules or a page, or if a query of the board returns no data. Needs Debian's
``prometheus``. The pages are those of a worker, a store and a dashboard with figures that rise.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.pages import ROOT
from hardcase_cloud.keep.metrics.families import (
    Fleet,
    RolloutFigures,
    StoreFigures,
    fleet_text,
    store_text,
    worker_text,
)
from hardcase_cloud.rollout.waves.machine import STATES
from hardcase_edge.fleet.operations.scrape import Page
from tests.helpers.cloud.brokers import free_port

FOLDER = ROOT / "examples" / "prometheus"
BEGAN = time.monotonic()
WAIT_S = 30.0


def text() -> str:
    """All three pages as one, with counters that rise by the second."""
    n = int(100 * (time.monotonic() - BEGAN)) + 1
    rollout = RolloutFigures(1, "abcd", "pumps", "running", {"good": 3, "trial": 1}, 0.4)
    devices = {"good": 9, "offline": 1}
    fleet = Fleet(devices, 10 * n, n, n // 2, 2.5 * n, n, n - n // 20, [rollout], STATES, ("running", "paused"))
    store = StoreFigures({"kept": n, "lost": 0, "repeated": n // 9}, 0, 0.0, 0.01)
    return worker_text({"served": n, "refused": n // 50, "expired": 0}) + store_text(store) + fleet_text(fleet)


def ask(port: int, query: str) -> list[object]:
    """The result of a query now."""
    words = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}", timeout=10) as answer:
        return list(json.load(answer)["data"]["result"])


def run(args: Any) -> int:
    """1 if promtool refuses something or a query of the board has no data, of which each is a line."""
    subprocess.run(["promtool", "check", "rules", str(FOLDER / "rules.yml")], check=True)
    subprocess.run(["promtool", "check", "metrics"], input=text().encode(), check=True)
    panels = json.loads((FOLDER / "board.json").read_text())["panels"]
    queries = {panel["title"]: target["expr"] for panel in panels for target in panel["targets"]}
    page, port = Page("127.0.0.1:0", text), free_port()
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "p.yml"
        config.write_text(
            f"global: {{scrape_interval: 1s}}\nrule_files: [{FOLDER / 'rules.yml'}]\nscrape_configs:\n"
            f"  - {{job_name: hardcase, static_configs: [{{targets: ['127.0.0.1:{page.port}']}}]}}\n"
        )
        subprocess.run(["promtool", "check", "config", str(config)], check=True, stdout=subprocess.DEVNULL)
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={name}/data",
                   f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]  # fmt: skip
        server = subprocess.Popen(command)
        try:
            empty = set(queries)
            until = time.monotonic() + WAIT_S
            while empty and time.monotonic() < until:
                time.sleep(1)
                try:
                    empty = {title for title in empty if not ask(port, queries[title])}
                except OSError:
                    continue
        finally:
            server.terminate()
            server.wait(20)
            page.close()
    for title in sorted(empty):
        print(f"no data: {title}: {queries[title]}")
    print(f"{len(queries) - len(empty)} of {len(queries)} queries of the board return data")
    return min(1, len(empty))
