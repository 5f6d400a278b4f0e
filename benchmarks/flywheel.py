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
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.flywheel_cases import CASES, Table, forest, survey, whole_states
from benchmarks.flywheel_page import interval, text_of
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.program.cost import to_unit
from tests.helpers.cloud.flywheel import Ran, ask, flywheel

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
