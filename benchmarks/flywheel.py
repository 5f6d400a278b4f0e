# SPDX-License-Identifier: Apache-2.0
"""Does retraining help, by the truth? The whole loop on this machine, on two tables whose later rows are other ones.

    HARDCASE_DATA=FOLDER python -m benchmarks run flywheel [--seeds 3] [--only rig]

The first rows train a bundle. The later rows come to three ``hardcase-edge run`` at a mosquitto with certificates; a
person labels their audits and forwarded cases; ``hardcase cloud retrain`` makes a bundle, compares, signs, and rolls
it out; and the devices then decide over later rows that were held back from all of it. HARDCASE_DATA has the second
table. Seeds that are done stay in the JSON; ``--fresh`` begins anew.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.flywheel_cases import CASES, Table, forest, survey, whole_states
from benchmarks.pages import markdown, rest
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.program.cost import to_unit
from tests.helpers.cloud.flywheel import Ran, ask, flywheel

GOAL = 0.95
Z = 1.96
ROWS = {
    "do nothing": "the shipped bundle",
    "retrain on f0's labels alone": "`cloud retrain` before anybody has labelled",
    "retrain on people's labels": "`cloud retrain`",
    "a forest by hand": "a forest by hand, which reads every sensor",
}
TURN = (
    "seed", "audits, cases, and decisions they came from", "labels of people", "labels of f0", "claimed by `retrain`",
    "true on devices", "new bundle on devices",
)  # fmt: skip
TITLES = {"rig": "The hydraulic rig", "people": "Phones of other people"}
ABOUT = {
    "rig": """The first 1,400 cycles train; the last 805 come later, most with the cooler at full power, which none of \
the first has, and the shipped bundle (`adapt-gbrt`, `--max-loss 0`) forwards some cases.
Held-back cycles are drawn at random, so cycles of their states may be labelled; where whole states are held back, a \
forest by hand is right in {states} of theirs.""",
    "people": """Windows of 10 s of a phone's accelerometer (WISDM): those of 24 people train, those of 12 others come \
later, four people to a device.""",
}
HEAD = """# The flywheel: does retraining help, by the truth?

`HARDCASE_DATA=FOLDER python -m benchmarks run flywheel` changes the world after a bundle was shipped, and closes the \
loop of [the cloud](../cloud.md) by its commands: three devices audit half of their decisions over 70 % of the later \
rows, a person labels audits and forwarded cases (by the table's truth), and `cloud retrain --group --canary 1` \
trains, compares, signs and rolls out; the devices then decide the other 30 %, which no training has seen.
Beside it stand the shipped bundle, a retraining before anybody has labelled, and 300 extremely randomised trees \
fitted by hand to all first and all labelled rows.
The share right is of all seeds' rows, with its 95 % interval (Wilson), then of each seed.
The second table was chosen before any retraining, as the one of three on whose later rows such trees lose most:

"""


def interval(right: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n (Wilson)."""
    half = Z * math.sqrt(right * (1 - right) / n + Z * Z / 4 / n / n)
    low, high = ((right + Z * Z / 2 / n + sign * half) / (1 + Z * Z / n) for sign in (-1, 1))
    return low, high


def text_of(found: dict[str, Any]) -> str:
    """The page in Markdown, of the JSON that ``flywheel.py`` writes."""
    fell = [(name, f"{own:.3f}", f"{late:.3f}") for name, (own, late) in found["survey"].items()]
    head = HEAD + markdown(("table", "right on rows of the first kind", "right on later rows"), fell)
    states = ", ".join(f"{share:.2f}" for share in found["whole states"])
    sections = [_section(name, runs).replace("{states}", states) for name, runs in found["tables"].items()]
    return "\n\n".join([head, *sections, _verdict(found["tables"])]) + "\n"


def _section(name: str, runs: Sequence[dict[str, Any]]) -> str:
    """What is said of one table."""
    unit = next(said["unit"] for run in runs for said in run["retrain"]["said"] if "unit" in said)
    titles = ("on the rows that were held back", "right (95 %)", "of each seed", f"cost, {unit}", "forwarded")
    seconds = "; ".join(f"{step} {_mean([r['steps'][step] for r in runs], 0)}" for step in runs[0]["steps"])
    parts = [
        f"## {TITLES[name]}",
        ABOUT[name],
        markdown(titles, [(text, *_cells([run["rows"][row] for run in runs])) for row, text in ROWS.items()]),
        rest("the turn of each seed", f"{markdown(TURN, [_turn(run) for run in runs])}\n\nSeconds: {seconds}."),
    ]
    curve = [(n, _share(made)) for run in runs for n, made in run["curve"].items()]
    if curve:
        curve.append(("all " + str(runs[0]["labels"]["person"]), _share(runs[0]["rows"]["retrain on people's labels"])))
        said = "; ".join(f"{share} with {n}" for n, share in curve)
        parts += [f"With fewer labels of people, of the first seed: {said}."]
    return "\n\n".join(parts)


def _cells(made: Sequence[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Share right over all seeds, of each seed, mean cost and mean share forwarded."""
    each = ", ".join(f"{run['right']:.3f}" if "right" in run else "no bundle" for run in made)
    made = [run for run in made if "right" in run]
    if not made:
        return "none", each, "none", "none"
    n = sum(run["n"] for run in made)
    right = sum(run["right"] * run["n"] for run in made) / n
    whole = _share({"right": right, "right_95": interval(right, n)})
    return whole, each, _mean([run["cost"] for run in made], 2), _mean([run["forwarded"] for run in made], 3)


def _share(made: dict[str, Any]) -> str:
    """A share with its interval, or why there is none."""
    if "right" not in made:
        return f"no bundle: {made['none']}"
    low, high = made["right_95"]
    return f"{made['right']:.3f} ({low:.3f} to {high:.3f})"


def _mean(values: Sequence[float], digits: int) -> str:
    """The mean, and the least and the most."""
    mean = f"{sum(values) / len(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _turn(run: dict[str, Any]) -> tuple[str, ...]:
    """What one seed's loop did."""
    claim, came, labels = _claim(run), run["came"], run["labels"]
    told = "nothing" if claim is None else f"{_share(claim)}, {claim['n']} rows"
    sent = f"{came.get('audit', 0)}, {came.get('case', 0)}, {run['n_seen']}"
    by = (str(labels.get(source, 0)) for source in ("person", "f0"))
    return str(run["seed"]), sent, *by, told, _share(run["truth"]), ", ".join(run["devices"])


def _claim(run: dict[str, Any]) -> dict[str, Any] | None:
    """What ``retrain`` itself has said of its bundle, with the interval of such a share."""
    said = next((said for said in run["retrain"]["said"] if "new" in said), None)
    if said is None:
        return None
    right, n = said["new"]["right"], said["n_judged"]
    return {"right": right, "right_95": interval(right, n), "n": n}


def _verdict(tables: dict[str, list[dict[str, Any]]]) -> str:
    """Whether the goal was reached, and whether a claim was too rosy."""
    least, runs = min(run["truth"]["right"] for run in tables["rig"]), [run for of in tables.values() for run in of]
    reached = "it was, in each seed" if least >= GOAL else f"it was not: the least of a seed was {least:.3f}"
    states = [state for run in runs for state in run["devices"]]
    claims = [(claim, run["truth"]["right"]) for run in runs if (claim := _claim(run)) is not None]
    rosy = sum(truth < claim["right_95"][0] for claim, truth in claims)
    return "\n".join(
        [
            f"The goal was {GOAL} right on the cycles of the rig that were held back, on devices; {reached}.",
            f"Of {len(states)} devices, {states.count('good')} ended with the new bundle good; in {rosy} of "
            f"{len(claims)} turns the truth lies below the 95 % interval of what `cloud retrain` claimed.",
        ]
    )


HELD = 0.3  # share of the later rows that no training sees
FEWER = (200, 250, 300)  # labels of people, of the curve
INTERVAL_S = 0.03  # between two decisions


def figures(right: float, n: int, cost: float, forwarded: float) -> dict[str, Any]:
    """What a table's row says."""
    return {"right": right, "right_95": interval(right, n), "n": n, "cost": cost, "forwarded": forwarded}


def decided(decisions: Sequence[dict[str, Any]], truth: Sequence[str]) -> dict[str, Any]:
    """The figures of what devices have decided, by the truth."""
    right = np.mean([str(d["label"]) == y for d, y in zip(decisions, truth, strict=True)])
    asked = np.mean([d["route"] != "local" for d in decisions])
    return figures(float(right), len(truth), float(np.mean([d["cost"] for d in decisions])), float(asked))


def evaluated(bundle: Path, rows: Path, hpc: Path) -> dict[str, Any]:
    """The figures of ``hardcase evaluate``."""
    (said,) = ask("evaluate", bundle, rows, "--hpc", hpc, "--json").objects
    return figures(said["quality"], said["n"], said["cost"], said["forward_rate"])


def shipped(table: Table, seed: int, folder: Path, effort: str, steps: dict[str, float]) -> tuple[Path, Path, Path]:
    """Train and export; the configuration, the bundle and f0."""
    config, build, bundle = table.write(folder, seed), folder / "build", folder / "model.hcb"
    steps["train"] = ask("train", config, "--out", build, "--effort", effort, "--quiet").seconds
    steps["export"] = ask("export", build, *table.wish, "--monitors", "--out", bundle).seconds
    return config, bundle, build / "hpc.onnx"


def run_seed(make: Callable[[int], Table], seed: int, folder: Path, effort: str) -> dict[str, Any]:
    """One turn of the loop with its peers: figures on the rows that were held back, and what each step took."""
    table, steps = make(seed), dict[str, float]()
    config, bundle, hpc = shipped(table, seed, folder, effort, steps)
    order = np.random.default_rng(seed).permutation(len(table.later))
    held, seen = (np.sort(part) for part in np.split(order, [round(HELD * len(order))]))
    rows, last = table.cut(folder, held), table.later.some(held)
    out: dict[str, Any] = {"seed": seed, "n_seen": len(seen), "rows": {"do nothing": evaluated(bundle, rows, hpc)}}
    began = time.monotonic()
    with flywheel(folder, bundle, hpc) as loop:
        stream, places = table.later.some(seen), table.device[seen]
        steps["set up"] = time.monotonic() - began
        began = time.monotonic()
        out["shipped"] = decided(loop.meet(stream, places, interval_s=INTERVAL_S), stream.truth)
        steps["decide"], out["came"] = time.monotonic() - began, dict(loop.in_store())
        by_f0, fewer = folder / "f0", FEWER if seed == 0 else ()
        ran = loop.retrain(config, by_f0, "--effort", effort, rolls_out=False)
        out["rows"]["retrain on f0's labels alone"] = _made(ran, by_f0, rows, hpc)
        out["curve"] = {}
        for n in fewer:
            loop.people_label(stream, n)
            ran = loop.retrain(config, folder / f"of-{n}", "--effort", effort, rolls_out=False)
            out["curve"][n] = _made(ran, folder / f"of-{n}", rows, hpc)
        labelled = loop.people_label(stream)
        out["labels"], out["labelled"] = loop.labels(), len(set(labelled))
        for k, device in enumerate(loop.devices):
            loop.start(device, stream.some(np.flatnonzero(places == k)), interval_s=table.pace[0], times=table.pace[1])
        ran = loop.retrain(config, folder / "next", "--effort", effort)
        steps["retrain and roll out"] = ran.seconds
        said = [{k: v for k, v in each.items() if k != "bundle"} for each in ran.objects if "new" in each]
        out["retrain"] = {"status": ran.status, "said": said, "err": ran.err[-1000:]}
        out["rows"]["retrain on people's labels"] = _made(ran, folder / "next", rows, hpc)
        for device in loop.devices:
            device.stop()
        out["devices"] = [_state(device.slots(), folder / "next" / "model.hcb") for device in loop.devices]
        out["truth"] = decided(loop.meet(last, table.device[held], interval_s=INTERVAL_S), last.truth)
    out["rows"]["a forest by hand"] = by_hand(table, seen[sorted(set(labelled))], held, bundle)
    return {**out, "steps": steps}


def _made(ran: Ran, folder: Path, rows: Path, hpc: Path) -> dict[str, Any]:
    """The figures of the bundle that a retraining made; its last words if it made none."""
    bundle = folder / "model.hcb"
    return evaluated(bundle, rows, hpc) if bundle.exists() else {"none": ran.err.strip()[-200:], "status": ran.status}


def _state(slots: dict[str, Any], bundle: Path) -> str:
    """The state of the new bundle on a device: ``good`` is what all of them should say."""
    import hashlib

    digest = hashlib.sha256(bundle.read_bytes()).hexdigest() if bundle.exists() else "none"
    return next((slots[f"slot_{s}"].split()[0] for s in "ab" if digest in slots[f"slot_{s}"]), "absent")


def by_hand(table: Table, labelled: np.ndarray, held: np.ndarray, bundle: Path) -> dict[str, Any]:
    """A forest on the first rows and on those that a person has labelled; it reads every sensor, and nothing else."""
    X, y = table.first
    truth = np.array(table.later.truth)
    fitted = forest(np.vstack([X, table.readings[labelled]]), np.concatenate([y, truth[labelled]]))
    cost = sum(to_unit(sensor.cost[0]) for sensor in load_bundle(bundle).machine.program.sensors)
    return figures(float(fitted.score(table.readings[held], truth[held])), len(held), cost, 0.0)


SEEDS = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--folder", type=Path, help="work there and keep it")


def run(args: Any) -> dict[str, Any]:
    """Run what is not there yet."""
    found = args.known() or {"tables": {}}
    if "whole states" not in found:
        found |= {"survey": survey(), "whole states": whole_states()}
    for name in args.only:
        runs = found["tables"].setdefault(name, [])
        for seed in range(len(runs), args.seeds):
            with tempfile.TemporaryDirectory() as holder:
                folder = (args.folder or Path(holder)) / f"{name}-{seed}"
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                runs.append(run_seed(CASES[name], seed, folder, args.effort))
            print(json.dumps(runs[-1]), flush=True)
            args.save(found)
    return found


def page(found: dict[str, Any]) -> str:
    """The page, once every table has been run."""
    return text_of(found) if all(found["tables"].get(name) for name in CASES) else ""
