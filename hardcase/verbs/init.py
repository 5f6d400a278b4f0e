# SPDX-License-Identifier: Apache-2.0
"""``hardcase init``: write a first hardcase.toml from the columns of a table."""

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
EXAMPLES = """\
hardcase init data.csv                  # then edit the costs in hardcase.toml
hardcase init data.csv --target state --out state.toml"""
TERMS = "target: the column to predict; sensor: a source of columns that are read together, at a cost"
LIKELY_TARGETS = ("target", "label", "class", "y")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", type=Path, help="a .csv, .parquet or .npz table")
    parser.add_argument(
        "--target", help="column to predict (default: target, label, class, y, or the last column of labels)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("hardcase.toml"), help="file to write (default: hardcase.toml)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file; an existing file is never overwritten."""
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
    text = f"{args.out}: predicts {target!r} ({len(classes)} classes); edit the costs of your sensors, then\n"
    report(args, values, text + f"next: hardcase train {args.out} --out build")
    return 0


def guess_target(table: Table) -> str:
    """The column with a usual name of a target, else the last column that may hold labels."""
    for name in LIKELY_TARGETS:
        if name in table.labels:
            return name
    if not table.labels:
        raise InputError("no column of the data could be a target; name one with --target")
    return list(table.labels)[-1]


def make_toml(table: Table, file: str, target: str) -> str:
    """The text of a hardcase.toml: one sensor per column or per group of windows, each of cost 1."""
    sensors = {s: [f"{s}.*"] for s in table.windows} or {n: [n] for n in table.names}
    head = f"""\
# The data. split: random (60/10/10/20), time, or a column that says train, valid, calibration, test.
[data]
file = {quote(file)}
target = {quote(target)}
split = "random"
seed = 0

# The cost of a decision: the sensors below, the radio per request and per byte, the cloud per request.
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
    """A basic string of TOML, or an array of them: as in JSON, except for surrogate pairs and DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
