# SPDX-License-Identifier: Apache-2.0
"""``hardcase fleet``: whole fleets on one machine, to see what becomes of them when things go wrong."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

from ...options import add_json, report
from . import simulate

if TYPE_CHECKING:
    from hardcase_cloud.sim.replay.world import Report

__all__ = ["EXAMPLES", "HELP", "TERMS", "arguments", "run"]

HELP = "Run a whole fleet on this machine: in virtual time, replayed exactly by a seed, or on real sockets."
EXAMPLES = """\
hardcase fleet replay examples/fleet/chaos.toml --seed 7
hardcase fleet replay examples/fleet/chaos.toml --seeds 20    # seeds 0 to 19; the first that breaks a rule is shown
hardcase fleet simulate --devices 10000 --broker mqtt://127.0.0.1:1883 --bundle model.hcb --rows build/test.npz"""
TERMS = "seed: the number from which everything random follows; the same scenario and seed do the same on any machine"
MAX_SEED = 2**63 - 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the commands ``replay`` and ``simulate``."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    again = commands.add_parser("replay", help="Run a scenario in virtual time and check its rules at every event.")
    again.add_argument("scenario", metavar="SCENARIO", help="a .toml file, such as examples/fleet/chaos.toml")
    again.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default %(default)s)")
    again.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds to run (default %(default)s)")
    add_json(again)
    again.set_defaults(act=_replay)
    simulate.arguments(commands.add_parser("simulate", help=simulate.HELP, description=simulate.HELP))


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    return int(args.act(args))


def _replay(args: argparse.Namespace) -> int:
    from hardcase_cloud.sim.fleet.scenario import read_scenario
    from hardcase_cloud.sim.replay.world import replay

    if not 0 <= args.seed <= MAX_SEED or not 1 <= args.seeds <= 1_000_000:
        raise InputError(f"seeds {args.seed} and {args.seeds} more; use 0 to {MAX_SEED}, and 1 to 1000000 of them")
    scenario = read_scenario(args.scenario)
    for seed in range(args.seed, args.seed + args.seeds):
        began = time.process_time()
        result = replay(scenario, seed)
        lines, untested = _lines(result, time.process_time() - began), {}
        if scenario.rollout is not None and not scenario.fleet.audit:
            untested = {"quality": "not tested"}
            lines.insert(-1, "  the bundle's quality was not tested: no decision is audited ([fleet] audit is 0)")
        report(args, result.to_json() | untested, lines)
        if result.problem:
            again = shlex.join(["hardcase", "fleet", "replay", args.scenario, "--seed", str(seed)])
            report(args, {"replay": again}, [f"  replay it with: {again}"])
            return 1
    return 0


def _lines(result: Report, cpu_s: float) -> list[str]:
    counts = result.counts
    n = sum(counts.get(route, 0) for route in ("local", "cloud", "degraded"))
    faults = {k: v for k, v in counts.items() if k in _kinds()}
    lines = [
        f"seed {result.seed}: {n} decisions in {result.virtual_s:.0f} virtual seconds, {result.n_events} events, "
        f"{cpu_s:.1f} s CPU",
        "  " + ", ".join(f"{route} {counts.get(route, 0)}" for route in ("local", "cloud", "degraded"))
        + f", sent again {counts.get('resent', 0)}, busy {counts.get('busy', 0)}, records {counts.get('records', 0)}",
        "  faults: " + (", ".join(f"{name} {k}" for name, k in faults.items()) or "none"),
    ]  # fmt: skip
    if result.rollout:
        states = ", ".join(f"{state} {k}" for state, k in result.rollout.get("states", {}).items())
        reason = f" ({result.rollout['reason']})" if result.rollout.get("reason") else ""
        lines.append(f"  roll-out: {result.rollout['state']}{reason}: {states}")
    verdict = f"BROKEN: {result.problem}" if result.problem else "every rule held"
    return [*lines, f"  {verdict}", f"  digest {result.digest}"]


def _kinds() -> tuple[str, ...]:
    from hardcase_cloud.sim.fleet.scenario import KINDS

    return KINDS
