"""``hardcase init``: a first hardcase.toml from a table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

from ..options import add_json, report

if TYPE_CHECKING:
    from hardcase_train.data.table import Table

HELP = "Write a first hardcase.toml from a table."
LIKELY = ("target", "label", "class", "y")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``hardcase init``."""
    parser.add_argument("data", type=Path, help="a .csv, .parquet or .npz table")
    parser.add_argument("--target", help="what to predict; else target, label, class, y, or the last column")
    parser.add_argument(
        "--out", type=Path, default=Path("hardcase.toml"), help="file to write (default: hardcase.toml)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file; never over another one."""
    from hardcase_edge.base.files import write_whole
    from hardcase_train.data.table import read_table
    from hardcase_train.data.task import target_classes

    if args.out.exists():
        raise InputError(f"{args.out} exists; remove it or name another with --out")
    table = read_table(args.data)
    target = args.target or guess_target(table)
    _, classes = target_classes(table, target)
    table.without(target).check_features()
    try:
        file = args.data.absolute().relative_to(args.out.absolute().parent)
    except ValueError:
        file = args.data.absolute()
    text = make_toml(table.without(target), str(file), target)
    write_whole(args.out, text.encode())
    values = {"out": str(args.out), "target": target, "classes": list(classes), "features": len(table.names)}
    told = f"{args.out}: predicts {target!r} ({len(classes)} classes); put in what your sensors cost, then\n"
    report(args, values, told + f"next: hardcase train {args.out} --out build")
    return 0


def guess_target(table: Table) -> str:
    """The column that looks most like a target."""
    for name in LIKELY:
        if name in table.labels:
            return name
    if not table.labels:
        raise InputError("the data has no column that could be a target; name one with --target")
    return list(table.labels)[-1]


def make_toml(table: Table, file: str, target: str) -> str:
    """The text of a hardcase.toml: every column a sensor, windows by sensor, every cost 1."""
    sensors = {s: [f"{s}.*"] for s in table.windows} or {n: [n] for n in table.names}
    head = f"""\
# What to learn from. split: random (60/10/10/20), time, or a column that says train, valid, calibration, test.
[data]
file = {quote(file)}
target = {quote(target)}
split = "random"
seed = 0

# What a decision costs: sensors below, the radio per request and per byte, the cloud per request.
[cost]
unit = "unit"
default_sensor = 1.0

[cost.uplink]
per_request = {10 * len(sensors)}.0
per_byte = 0.0

[cost.cloud]
per_request = 0.0

# The high-cost model in the cloud: any classifier of scikit-learn.
[hpc]
estimator = "HistGradientBoostingClassifier"

[hpc.params]

[policy]
methods = ["auto"]
"""
    parts = [
        f"\n[[sensor]]\nname = {quote(name)}\nfeatures = {quote(features)}\ncost = 1.0\n"
        for name, features in sensors.items()
    ]
    return head + "".join(parts)


def quote(value: str | list[str]) -> str:
    """TOML's basic strings and arrays of them are JSON's, but for pairs of surrogates and DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
