# SPDX-License-Identifier: Apache-2.0
"""A fleet in virtual time: a million decisions under chaos, what seeds find, and roll-outs of good and bad bundles.

It writes docs/benchmarks/replay.md.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from benchmarks.pages import ROOT, markdown, rest
from hardcase_cloud.rollout.waves.quality import STRICTER
from hardcase_cloud.sim.fleet.scenario import Scenario, parse_scenario, read_scenario
from hardcase_cloud.sim.replay.toy import N_ROWS, agrees, make_rows, row_number
from hardcase_cloud.sim.replay.world import Report, World, replay
from hardcase_edge.base.betting import MANY
from hardcase_export.picking.risk_test import Counts, certain_bound, forward_bet, p_error
from tests.helpers.cloud.replay_faults import FAULTS

EXAMPLES = ROOT / "examples" / "fleet"
SEED = 7
MOST_CPU_S = 60.0  # within which a seed finds a safeguard that is missing
TEST_ROWS = 10_000  # answered alone, from which the bundle that is rolled out has its promise
GOOD, WORSE = 0.95, 0.92  # true agreement of the two bundles
TOLERANCE, DELTA = 0.02, 0.05  # of the plan: its defaults
DEVICES, CANARY, DECISIONS, AUDIT = 400, 100, 150, 0.4
ROUTES = ("local", "cloud", "degraded")
BUNDLES = """
[fleet]
devices = {devices}
decisions = {decisions}
interval_s = 1
publish = 0.01
audit = {audit}
[network]
loss = 0.02
[rollout]
bundle = "{bundle}"
canary = {canary}
agreement = {agreement}
tolerance = {tolerance}
offer_s = 60
load_s = 60
trial_s = 60
quality_s = {decisions}
[[fault]]
kind = "power-cut"
every_s = 5
for_s = 3
share = 0.01
[[fault]]
kind = "partition"
every_s = 15
for_s = 8
share = 0.02
"""
HEAD = """# A fleet in virtual time

`python -m benchmarks run replay` replays [fleets](../fleet.md) by their seeds; times are CPU seconds of one busy core.

"""


def timed(scenario: Scenario, seed: int, make: type[World] = World) -> tuple[Report, float]:
    """A replay, and the seconds of processor time that it took."""
    began = time.process_time()
    report = replay(scenario, seed, make)
    return report, time.process_time() - began


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of the parts that are asked for; of the others what stands in the file."""
    parts: dict[str, Callable[[], Any]] = {
        "million": lambda: full("chaos", SEED),
        "small": lambda: [full("small", seed) for seed in range(args.seeds)],
        "teeth": lambda: {name: hunt(make) for name, make in FAULTS.items()},
        "crashing": lambda: [one_rollout("crashing", 10_000, 30, 0.0, seed) for seed in range(3)],
        "worse": lambda: [one_rollout("worse", DEVICES, DECISIONS, AUDIT, seed) for seed in range(args.seeds)],
        "good": lambda: [one_rollout("good", DEVICES, DECISIONS, AUDIT, seed) for seed in range(args.seeds)],
        "odds": lambda: (
            {name: odds(promise(), true) for name, true in (("worse", WORSE), ("good", GOOD))}
            | {
                "in order": spread(lambda device, number: (device * 7_919 + number) % N_ROWS),
                "drawn": spread(row_number),
            }
        ),
    }
    figures = args.known() if args.only else {}
    return {**figures, **{name: act() for name, act in parts.items() if args.only in (None, name)}}


def full(name: str, seed: int) -> dict[str, Any]:
    """The report of an example's replay, and its processor time."""
    report, cpu_s = timed(read_scenario(EXAMPLES / f"{name}.toml"), seed)
    return {**report.to_json(), "cpu_s": cpu_s, "python": platform.python_version()}


def hunt(make: type[World]) -> dict[str, Any]:
    """The first seed that finds what is missing, and the processor time until then."""
    scenario, cpu_s = read_scenario(EXAMPLES / "rollout.toml"), 0.0
    for seed in range(1_000):
        report, seconds = timed(scenario, seed, make)
        cpu_s += seconds
        if report.problem or cpu_s > MOST_CPU_S:
            break
    return {"seed": seed, "cpu_s": cpu_s, "problem": report.problem}


def promise() -> float:
    """What the exporter lets a bundle claim that agrees with f0 on 95 % of its test rows: a lower bound at 99 %."""
    errors = round((1 - GOOD) * TEST_ROWS)
    counts = Counts(TEST_ROWS, TEST_ROWS, errors, errors, 0)

    def p_value(bound: float) -> float:
        return p_error(counts, bound, forward_bet(1 - GOOD, bound, TEST_ROWS)) if bound < 1 else 0.0

    return math.floor((1 - certain_bound(p_value, 0.01)) * 1e6) / 1e6


def odds(promised: float, true: float) -> dict[str, Any]:
    """Exact probabilities of a roll-out's test of quality, if each audit agrees with a probability ``true``.

    ``stopped`` and ``left``: the canary, within the audits that it makes; ``audits``: after how many one of both has
    happened with a probability of 99 %.
    """
    stakes, most = np.array(MANY), round(CANARY * DECISIONS * AUDIT)
    broken = np.log1p(stakes * promised / (1 - promised)), np.log1p(-stakes)  # an audit that differs, one that agrees
    least = promised - TOLERANCE
    kept = np.log1p(-stakes), np.log1p(stakes * (1 - least) / least)
    p, stopped, left, audits = np.eye(1, most + 1)[0], 0.0, 0.0, None  # by the number of audits that differed
    for n in range(1, most + 1):
        p[1:] = p[1:] * true + p[:-1] * (1 - true)
        p[0] *= true
        k = np.flatnonzero(p > 1e-15)[:, None]
        if not len(k):
            break
        log_broken, log_kept = (
            np.logaddexp.reduce(k * step[0] + (n - k) * step[1], axis=1) - math.log(len(stakes))
            for step in (broken, kept)
        )
        is_broken = log_broken >= -math.log(DELTA / STRICTER)
        is_kept = (log_kept >= -math.log(DELTA)) & ~is_broken
        stopped, left = stopped + p[k[is_broken]].sum(), left + p[k[is_kept]].sum()
        p[k[is_broken | is_kept]] = 0
        if audits is None and stopped + left >= 0.99:
            audits = n
    return {"stopped": float(stopped), "left": float(left), "audits": audits, "most": most, "promise": promised}


def spread(row_of: Callable[[int, int], int], seeds: int = 300) -> float:
    """Standard deviation of the share of audits that differ after 60 decisions of a canary, over that of draws."""
    scores = []
    for seed in range(seeds):
        chance = Random(seed)
        rows, canary = make_rows(0.2, chance), chance.sample(range(DEVICES), CANARY)
        audited = [rows[row_of(d, k)] for d in canary for k in range(10, 70) if chance.random() < AUDIT]
        expected = (1 - GOOD) * len(audited)
        scores.append((sum(not agrees("good", row) for row in audited) - expected) / math.sqrt(expected * GOOD))
    return float(np.std(scores))


def one_rollout(bundle: str, devices: int, decisions: int, audit: float, seed: int) -> dict[str, Any]:
    """How one roll-out ended."""
    text = BUNDLES.format(bundle=bundle, devices=devices, decisions=decisions, audit=audit, canary=CANARY,
                          agreement=promise(), tolerance=TOLERANCE)  # fmt: skip
    if not audit:
        text = "\n".join(line for line in text.splitlines() if not line.startswith(("agreement", "tolerance")))
    report, cpu_s = timed(parse_scenario(bundle, text.encode()), seed)
    return {"seed": seed, "devices": devices, "cpu_s": cpu_s, "problem": report.problem, **report.rollout}


def page(figures: dict[str, Any]) -> str:
    """The page."""
    million, small = figures["million"], figures["small"]
    counts = million["counts"]
    n = sum(counts.get(route, 0) for route in ROUTES)
    n_small = sum(run["counts"].get(route, 0) for run in small for route in ROUTES)
    rollouts = {bundle: figures[bundle] for bundle in ("crashing", "worse", "good")}
    most = max(run["touched"] / run["devices"] for run in rollouts["crashing"])
    is_stopped = [run["state"] == "aborted" and run["touched"] <= 100 for run in rollouts["worse"]]
    is_done = [run["state"] == "done" for run in rollouts["good"]]
    broken = [run["problem"] for runs in rollouts.values() for run in runs if run["problem"]]
    rows = [
        ("10,000 devices x 100 decisions, CPU", "at most 40 s", f"{million['cpu_s']:.1f} s"),
        ("1,000,000 decisions: rules broken", "0", million["problem"] or "0"),
        (f"{len(small)} seeds of 50,000 decisions: rules broken", "0", str(sum(bool(run["problem"]) for run in small))),
        ("a safeguard is taken out: found within", "60 s each",
         f"{max(tooth['cpu_s'] for tooth in figures['teeth'].values()):.1f} s at most"),
        ("a bundle that crashes, to 10,000: touched", "at most 1.2 %",
         f"{most:.1%} at most in {len(rollouts['crashing'])} seeds"),
        ("a bundle that is worse by 3 points: stopped in the canary", "19 of 20",
         f"{sum(is_stopped)} of {len(is_stopped)}"),
        ("a good bundle: finished", "20 of 20", f"{sum(is_done)} of {len(is_done)}"),
    ]  # fmt: skip
    routes = ", ".join(f"{counts.get(route, 0):,} {route}" for route in ROUTES)
    kinds = {fault.kind for fault in read_scenario(EXAMPLES / "chaos.toml").faults}
    faults = ", ".join(f"{counts[kind]} x {kind}" for kind in sorted(kinds) if kind in counts)
    odds_ = figures["odds"]
    chances = [
        (name, f"{o['stopped']:.1%}", f"{o['left']:.1%}", f"{o['audits']:,}" if o["audits"] else "more")
        for name in ("worse", "good")
        for o in [odds_[name]]
    ]
    teeth = [
        (name, str(tooth["seed"]), f"{tooth['cpu_s']:.1f}", tooth["problem"] or "not found")
        for name, tooth in figures["teeth"].items()
    ]
    return (
        HEAD
        + markdown(("figure", "goal", "measured"), rows)
        + f"\n\nThe million is `hardcase fleet replay examples/fleet/chaos.toml --seed {SEED}`: {n:,} decisions ("
        f"{routes}) in {million['virtual_s']:,.0f} virtual seconds.\n"
        + rest(
            "what went wrong in the million",
            f"It had {counts['messages']:,} messages, {counts.get('resent', 0):,} requests sent again, "
            f"{counts['records']:,} records and {million['n_events']:,} events.\n"
            f"What went wrong: {faults}; some batteries were empty before.",
        )
        + f"The seeds of [small.toml](../../examples/fleet/small.toml) made {n_small:,} decisions in "
        f"{sum(run['cpu_s'] for run in small):.0f} s.\n\n"
        "## What a seed finds\n\n"
        "[rollout.toml](../../examples/fleet/rollout.toml) without one safeguard, from seed 0 on until a rule is "
        "broken:\n\n"
        + markdown(("taken out", "seed", "CPU s", "the rule that was broken"), teeth)
        + "\n\n## Roll-outs\n\n"
        "Power cuts and partitions go on meanwhile; the canary is 100 devices.\n"
        f"The good bundle agrees with f0 on {GOOD:.0%} of the rows, the worse one on {WORSE:.0%}; both promise the "
        f"lower bound of {TEST_ROWS:,} test rows, {odds_['good']['promise']:.2%}, tolerance {TOLERANCE:.0%}.\n\n"
        + markdown(("bundle", "stopped in the canary", "leaves it", "audits until then, in 99 %"), chances)
        + f"\n\nThese are exact probabilities within {odds_['good']['most']:,} audits if each audit is a draw; devices "
        "that read the same rows need [a little audited on many](../rollouts.md#roll-outs).\n"
        f"Rules broken in these replays: {len(broken)}.\n\n"
        + rest("how each roll-out ended", markdown(
            ("bundle", "how it ended", "devices touched", "CPU s a seed"),
            [
                (bundle, ends(runs), f"{min(r['touched'] for r in runs)} to {max(r['touched'] for r in runs)} of "
                 f"{runs[0]['devices']:,}", f"{sum(r['cpu_s'] for r in runs) / len(runs):.1f}")
                for bundle, runs in rollouts.items()
            ],
        ))
    )  # fmt: skip


def ends(runs: list[dict[str, Any]]) -> str:
    """How often a roll-out ended in which way."""
    states = [run["state"] for run in runs]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))


SEEDS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument(
        "--only", metavar="PART", help="measure million, small, teeth, crashing, worse, good or odds alone"
    )


def run(args: Any) -> Any:
    """Measure."""
    return measure(args)
