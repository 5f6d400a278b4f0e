# SPDX-License-Identifier: Apache-2.0
"""The digit camera from end to end: measure, fit costs, train, export, and decide a hundred frames by the clock.

    python examples/camera/run_digits.py --out build/camera

It takes about a minute and needs what `hardcase` needs. The folder then holds the table, the times, the costs, the
bundle and the decisions; the last lines compare the frames before and after one extractor became slow.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import digit_camera as camera  # noqa: E402

TOML = """\
[data]
file = "digits.csv"
target = "digit"
item_size = "size"

[cost]
clock = true

[cost.cloud]
per_request = {asking}  # nobody answers: a request never fits

[hpc]
estimator = ["StandardScaler", "LogisticRegression"]

[policy]
methods = ["{method}"]
effort = "quick"

"""
ASKING = 1_000_000  # ms
SLOW_FROM = camera.N_FRAMES // 2


def main() -> int:
    """All steps; returns the exit status."""
    parser = argparse.ArgumentParser(description="Train and run the digit camera.")
    parser.add_argument(
        "--out", default="build/camera", help="folder for everything that is made (default %(default)s)"
    )
    parser.add_argument("--repeat", type=int, default=15, help="times of each extractor and size (default %(default)s)")
    parser.add_argument("--rows", type=int, default=1797 - camera.N_FRAMES, help="digits to train with (default all)")
    parser.add_argument("--method", default="poly-dom-anytime", help="a method of hardcase train (default %(default)s)")
    parser.add_argument("--models", type=int, default=16, help="most models of the policy (default %(default)s)")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    write_table(out / "digits.csv", args.rows)
    edge("measure", "digit_camera", "--repeat", args.repeat, "--out", out / "times.jsonl")
    costs = json.loads(call("hardcase.cli", "costs", out / "times.jsonl", "--quantile", 0.5, "--json"))["sensors"]
    (out / "hardcase.toml").write_text(
        TOML.format(method=args.method, asking=ASKING) + "".join(map(sensor, costs.items()))
    )
    train = ("train", out / "hardcase.toml", "--no-baselines", "--max-models", args.models, "--quiet")
    call("hardcase.cli", *train, "--out", out / "build")
    best = ("--budget", ASKING - 1, "--method", args.method)  # the most accurate policy, if time does not matter
    call("hardcase.cli", "export", out / "build", *best, "--out", out / "camera.hcb")
    lines = edge("run", out / "camera.hcb", "--sensors", "digit_camera:read", "--items", "digit_camera:frames")
    (out / "decisions.jsonl").write_text(lines)
    print(summary([json.loads(line) for line in lines.splitlines()]))
    return 0


def write_table(path: Path, rows: int) -> None:
    """A row for each digit but those of the frames, at a size drawn for it: all features, its size and its label."""
    rng = random.Random(0)
    labels = camera.digits()[1]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(name for names in camera.SENSORS.values() for name in names), "size", "digit"])
        for k in range(rows):
            side = rng.choice(camera.SIDES)
            item = camera.crop(k, side)
            values = [x for name in camera.SENSORS for x in camera.read(name, item)]
            writer.writerow([*(f"{x:.6g}" for x in values), side // camera.STEP, labels[k]])


def sensor(fitted: tuple[str, dict]) -> str:
    """The lines of one sensor in hardcase.toml."""
    name, figures = fitted
    return f'[[sensor]]\nname = "{name}"\nfeatures = {json.dumps(camera.SENSORS[name])}\ncost = {figures["cost"]}\n\n'


def edge(*words: object) -> str:
    """What ``hardcase-edge`` prints."""
    return call("hardcase_edge.cli", *words)


def call(module: str, *words: object) -> str:
    """What a command prints; ends this one with its status if it fails."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def summary(lines: list[dict]) -> str:
    """The frames before and after ``hog`` became slow: right answers, late ones, and what was read."""
    labels = camera.digits()[1][-camera.N_FRAMES :]
    heads = ("frames", "right", "late", "ms over", "readings", "hog in time", "given up", "ms with hog")
    out = [" ".join(f"{head:>11}" for head in heads)]
    for first, last in ((0, SLOW_FROM), (SLOW_FROM, camera.N_FRAMES)):
        part = lines[first:last]
        right = fmean(str(r["label"]) == str(y) for r, y in zip(part, labels[first:last], strict=True))
        over = [r["latency_ms"] - r["budget"] for r in part if r["late"]]
        with_hog = [r["cost"] for r in part if "hog" in r["sensors"] and "hog" not in r["failed"]]
        given_up = sum("hog" in r["failed"] for r in part)
        figures = (
            f"{first} to {last - 1}", f"{right:.2f}", len(over), f"{median(over) if over else 0:.3f}",
            f"{fmean(len(r['sensors']) for r in part):.2f}", len(with_hog), given_up,
            f"{median(with_hog) if with_hog else 0:.2f}",
        )  # fmt: skip
        out.append(" ".join(f"{figure:>11}" for figure in figures))
    return "\n".join(out)


if __name__ == "__main__":
    raise SystemExit(main())
