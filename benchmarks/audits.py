# SPDX-License-Identifier: Apache-2.0
"""Audits of a trial: how often they fail a bundle, after how many, and what live requests beside them take.

    python -m benchmarks run audits [--runs 3] [--decisions 600] [--share-decisions 6000]

Probabilities are exact: every sequence of audits is followed by its two counts. Live requests go to a mosquitto and a
worker on this machine, from a device on trial that audits half of its local decisions.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import markdown
from hardcase_edge.base.betting import FEW, log_wealth
from hardcase_edge.bundle.agreement import ALPHA
from hardcase_edge.fleet.store.folder import Store
from tests.helpers.cloud.brokers import running_mosquitto
from tests.helpers.edge.device import EASY, HARD, Cloud, make_bundle_bytes, write_replay

PROMISED, TRUE = (0.8, 0.9, 0.95, 0.99), (1.0, 0.95, 0.8, 0.5, 0.1)  # TRUE: as a share of what is promised
AUDITS = 30  # the default of --trial-audits
LONG = 200
INTERVAL_S = 0.01
TRIAL = ("--trial-audits", 1_000_000, "--trial-s", 10_000)
SHARE = ("--trial-audits", 0, "--drift", "watch", "--audit", "0.5%")
GOAL = 1.05
SHARE_GOAL = 1.1
HEAD = """# Audits of a trial

`python -m benchmarks run audits` wrote this page.

A bundle promises that f0 agrees with at least a share of its local answers; in truth it agrees with another share of \
them.
*fails* is the exact probability that the trial fails within the {audits} audits that it waits for, and *after* the \
median number of audits of the trials that fail.

"""


def failing(promised: float, true: float, audits: int) -> list[float]:
    """The probability that the trial fails at audit 1, 2, ..., if each agrees with a probability ``true``."""
    alive: dict[int, float] = {0: 1.0}  # by the number of audits that differed
    lost = []
    for n in range(1, audits + 1):
        following: dict[int, float] = defaultdict(float)
        for differed, p in alive.items():
            following[differed] += p * true
            following[differed + 1] += p * (1 - true)
        lost.append(0.0)
        for differed in list(following):
            if log_wealth(n, differed, 1 - promised, FEW) >= -math.log(ALPHA):
                lost[-1] += following.pop(differed)
        alive = following
    return lost


def probabilities() -> list[dict[str, float]]:
    """What is exact."""
    rows = []
    for promised in PROMISED:
        for share in TRUE:
            lost = failing(promised, promised * share, AUDITS)
            median = next(n for n in range(1, AUDITS + 1) if sum(lost[:n]) >= sum(lost) / 2)
            rows.append({"promised": promised, "true": promised * share, "fails": sum(lost), "after": median})
    return rows


def latencies(folder: Path, url: str, n: int, audits: Sequence[object] = TRIAL) -> dict[str, list[float]]:
    """Milliseconds of the hard cases of a device, by whether the easy case before each was audited."""
    folder.mkdir()
    store = Store(folder / "store")
    claims = {"audits": {"local": 238, "agreed": 236, "at_least": 0.5}}
    store.put(make_bundle_bytes(claims=claims))
    replay = write_replay(folder / "r.csv", [EASY, HARD] * (n // 2))
    words = ["run", "--store", store.folder, "--sensors", f"replay:{replay}", "--broker", url, "--interval", INTERVAL_S]
    words += [*audits, "--device-id", folder.name]
    command = [sys.executable, "-m", "hardcase_edge.cli", *map(str, words)]
    with Cloud(url) as cloud:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    times = [line["latency_ms"] for line in lines if line["route"] == "cloud"]
    easy = [abs(request.readings[0] or 0) >= 1 for request in cloud.requests]
    is_beside = [k > 0 and easy[k - 1] for k, is_audit in enumerate(easy) if not is_audit]
    assert len(times) == len(is_beside), "a request was lost, or sent twice"
    pairs = list(zip(times, is_beside, strict=True))
    return {"beside": [t for t, was in pairs if was], "alone": [t for t, was in pairs if not was]}


def measure(runs: int, n: int, n_share: int) -> dict[str, Any]:
    """Everything."""
    live, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary, running_mosquitto(Path(temporary)) as broker:
        for k in range(runs):
            times = latencies(Path(temporary) / f"pi-{k}", broker.url, n)
            live.append({name: [len(some), _share(some, 0.5), _share(some, 0.99)] for name, some in times.items()})
        times = latencies(Path(temporary) / "pi-share", broker.url, n_share, SHARE)
        every = times["alone"] + times["beside"]
        share = {"n": len(every), "audits": len(times["beside"]), "all": _share(every, 0.99),
                 "alone": _share(times["alone"], 0.99), "load": os.getloadavg()[0]}  # fmt: skip
    worst = max(sum(failing(p, p, LONG)) for p in PROMISED)
    about = {"machine": platform.machine(), "load": load, "cores": os.cpu_count()}
    return {"probabilities": probabilities(), "live": live, "share": share, "worst": worst, **about}


def _share(times: list[float], share: float) -> float:
    return sorted(times)[int(len(times) * share)]


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = []
    for r in measured["probabilities"]:
        is_rare = r["fails"] < 0.01
        fails = f"{r['fails']:.2g}" if is_rare else f"{r['fails']:.2f}"
        rows.append([f"{r['promised']:g}", f"{r['true']:.3g}", fails, "" if is_rare else f"{r['after']:.0f}"])
    text = HEAD.format(audits=AUDITS) + markdown(("promised", "true", "fails", "after"), rows)
    text += (
        "\n\nA bundle that agrees exactly as often as it promises fails with a probability of "
        f"{measured['worst']:.2g} at most if the device looks after each of {LONG} audits; "
        f"the goal is {ALPHA:g}, for any number.\n"
    )
    text += (
        "A bundle whose promise is low must be much worse than that to fail in so few; `--trial-audits` takes more.\n"
    )
    text += (
        "\n## Live requests beside audits\n\nA device decides easy and hard cases in turn, a hundred a second, and "
        "audits every other easy one, by chance.\nTimes are of the hard cases, from their start to their end, in "
        "milliseconds: *beside* an audit whose request went out before, and *alone*.\nBoth are of the same seconds of "
        f"one device, on {measured['machine']}.\n\n"
    )
    columns = ("run", "cases alone", "beside", "p50 alone", "beside", "p99 alone", "beside")
    lines = []
    for k, run in enumerate(measured["live"], 1):
        (n, p50, p99), (n_beside, p50_beside, p99_beside) = run["alone"], run["beside"]
        cells = [f"{ms:.2f}" for ms in (p50, p50_beside, p99, p99_beside)]
        lines.append([str(k), str(n), str(n_beside), *cells])
    ratio = {name: _middle([run["beside"][k] / run["alone"][k] for run in measured["live"]])
             for k, name in ((1, "p50"), (2, "p99"))}  # fmt: skip
    verdict = "kept" if ratio["p50"] <= GOAL else "missed"
    text += markdown(columns, lines)
    text += f"\n\nA live case beside an audit takes {ratio['p50']:.2f} times as long as one alone at the median, and "
    text += f"{ratio['p99']:.2f} times at the 99th percentile (medians of the runs).\n"
    text += f"The goal, {GOAL} at the median, is {verdict}, at a load of {measured['load']:.1f} on {measured['cores']} "
    text += "cores: nothing waits for an audit, but broker, worker and device share processors with it.\n"
    share = measured["share"]
    ratio_of_all = share["all"] / share["alone"]
    text += (
        f"\nWith `--drift watch --audit 0.5%` in one run, {share['audits']} of {share['n']} hard cases have an audit's "
        f"request before them.\nThe 99th percentile of all is {share['all']:.2f} ms, that of the others "
        f"{share['alone']:.2f} ms: {ratio_of_all:.2f} times (goal: 1.1, "
        f"at a load of {share['load']:.1f}: {'kept' if ratio_of_all <= SHARE_GOAL else 'missed'}).\n"
    )
    return text + (
        "The sensors that an audit reads are replayed here; slow ones can make the next decision late, which is no "
        "part of a decision's time.\n"
    )


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--decisions", type=int, default=600, help="of a run")
    parser.add_argument("--share-decisions", type=int, default=6_000, help="of the run in which 0.5 %% is audited")


def run(args: Any) -> Any:
    """Measure."""
    return measure(args.runs, args.decisions, args.share_decisions)
