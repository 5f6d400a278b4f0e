# SPDX-License-Identifier: Apache-2.0
"""Roll-outs to 10,000 devices in virtual time: a bundle that crashes, one that is worse by three points, a good one.

    python -m benchmarks run rollouts [--devices 10000] [--seeds 20]

The machine is the product's; devices are a table of delays here: each comes online, loads, tries the bundle and audits
at random times. A step is a minute. Faults of networks and processes are another benchmark's.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from collections import Counter
from typing import Any

from benchmarks.pages import markdown
from hardcase_cloud.rollout.waves.machine import ABORTED, DONE, GOOD, ROLLED_BACK, TRIAL, Rollout
from hardcase_cloud.rollout.waves.plan import Plan

AGREEMENT, SHORT = 0.95, 0.03
AUDITS_A_DAY = 24  # of a device
DAY_S, STEP_S = 86_400.0, 60.0
KINDS = {
    "crashes": "crashes on every device",
    "worse": f"agrees with f0 in {AGREEMENT - SHORT:.0%}, promised {AGREEMENT:.0%}",
    "good": f"agrees with f0 in {AGREEMENT + 0.005:.1%}, and fails on 1 device in 1,000",
}
HEAD = """# Roll-outs

`python -m benchmarks run rollouts`: {devices:,} devices in virtual time, {seeds} seeds of each bundle, a canary of 1 \
%, waves that grow by 4, {audits} audits a day, a tolerance of two points.
The goals: a bundle that crashes touches at most 1.2 %, one that is worse by three points stops in the canary in 19 of \
20 seeds, a good one reaches all.

"""


def one(kind: str, n: int, seed: int) -> dict[str, Any]:
    """One roll-out to its end."""
    rng = random.Random(seed)
    plan = Plan(canary=max(1, n // 100), factor=4.0, agreement=None if kind == "crashes" else AGREEMENT)
    it = Rollout(plan, f"{seed:064x}", [f"d{k}" for k in range(n)], 0.0)
    agreement = AGREEMENT - SHORT if kind == "worse" else AGREEMENT + 0.005
    events: list[tuple[float, str, str]] = []
    good: list[str] = []
    now = 0.0
    while not it.is_over and now < 60 * DAY_S:
        for device in it.tick(now):
            it.presence(device, True)
            loads, tries = now + rng.expovariate(1 / 300), rng.expovariate(1 / 600)
            fails = kind == "crashes" or rng.random() < 0.001
            heapq.heappush(events, (loads, device, "loading 1/9"))
            heapq.heappush(events, (loads + 60, device, TRIAL))
            heapq.heappush(events, (loads + 60 + tries, device, ROLLED_BACK if fails else GOOD))
        while events and events[0][0] <= now:
            at, device, state = heapq.heappop(events)
            it.observe(at, device, state, "it crashed" if state == ROLLED_BACK else "")
            if state == GOOD:
                good.append(device)
        mean = len(good) * AUDITS_A_DAY * STEP_S / DAY_S
        n_audits = int(mean) + (rng.random() < mean - int(mean))
        for _ in range(n_audits if "agreement" in it.quality.criteria else 0):
            it.audited(rng.choice(good), rng.random() < agreement)
            if kind == "worse" and it.quality.verdict == "broken":
                break
        now += STEP_S
    criterion = it.quality.criteria.get("agreement")
    return {"state": it.state, "released": it.n_released, "hours": now / 3_600, "good": it.counts[GOOD],
            "audits": criterion.n if criterion else 0}  # fmt: skip


def measure(n: int, seeds: int) -> dict[str, Any]:
    """All kinds and seeds, and the CPU that they took."""
    began = time.process_time()
    runs = {kind: [one(kind, n, seed) for seed in range(seeds)] for kind in KINDS}
    return {"devices": n, "seeds": seeds, "cpu_s": time.process_time() - began, "runs": runs}


def page(data: dict[str, Any]) -> str:
    """The page."""
    n, seeds, canary = data["devices"], data["seeds"], max(1, data["devices"] // 100)
    rows = []
    for kind, runs in data["runs"].items():
        states = ", ".join(f"{k} {state}" for state, k in Counter(r["state"] for r in runs).most_common())
        touched = max(r["released"] for r in runs)
        if kind == "crashes":
            met = all(r["state"] == ABORTED for r in runs) and touched <= 0.012 * n
        elif kind == "worse":
            met = sum(r["state"] == ABORTED and r["released"] == canary for r in runs) >= 0.95 * seeds
        else:
            met = all(r["released"] == n and r["state"] in (DONE, "incomplete") for r in runs)
        hours = sorted(r["hours"] for r in runs)[len(runs) // 2]
        audits = sorted(r["audits"] for r in runs)[len(runs) // 2]
        rows.append(
            [KINDS[kind], states, f"{touched / n:.2%}", f"{hours:.1f}", f"{audits:,}", "met" if met else "**missed**"]
        )
    titles = ["the bundle", "ends", "devices released, most", "hours, median", "audits, median", "goal"]
    text = HEAD.format(devices=n, seeds=seeds, audits=AUDITS_A_DAY) + markdown(titles, rows)
    return text + (
        "\n\nA good bundle that fails on some devices ends as incomplete, and these run what they ran before.\n"
    )


SEEDS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--devices", type=int, default=10_000, help="in the group")


def run(args: Any) -> Any:
    """Measure."""
    return measure(args.devices, args.seeds)
