# SPDX-License-Identifier: Apache-2.0
"""``hardcase init``: write a first hardcase.toml from the columns of a table, and say what they are."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

from ..options import add_force, add_json, report

if TYPE_CHECKING:
    from hardcase_train.data.table import Table

    from ..training.survey import Survey

HELP = "Write a first hardcase.toml from a table."
EXAMPLES = """\
hardcase init data.csv                  # then edit the costs in hardcase.toml
hardcase init data.csv --target state --out state.toml
hardcase init queries.csv --task rank --group query"""
TERMS = "target: the column to predict; sensor: a source of columns that are read together, at a cost"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", type=Path, help="a .csv, .parquet, .feather, .arrow or .npz table")
    parser.add_argument("--target", help="column to predict (default: target, label, class, y, or what looks like one)")
    parser.add_argument(
        "--task",
        metavar="WHAT",
        help="what the target is: class (one of few), value (a number), or rank (a relevance within a group); default: "
        "class or value, by its look",
    )
    grouped = parser.add_mutually_exclusive_group()
    grouped.add_argument(
        "--group", metavar="COLUMN", help="column that says which rows belong together (default: what looks like one)"
    )
    grouped.add_argument("--no-group", action="store_true", help="split by rows, whatever looks like a group")
    parser.add_argument(
        "--out", type=Path, default=Path("hardcase.toml"), help="file to write (default: hardcase.toml)"
    )
    add_force(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file and report on every column."""
    from hardcase_edge.base.files import check_replaceable, write_whole
    from hardcase_edge.program.kinds import kind_named
    from hardcase_train.data.table import read_table
    from hardcase_train.settings.amounts import check_choice
    from hardcase_train.settings.config import TASKS
    from hardcase_train.tasks.target import check_relevance, target_classes, target_labels, target_values

    from ..training.survey import guess_target, make_toml, sensors_of, set_group, survey, task_of

    check_replaceable(args.out, force=args.force)
    table = read_table(args.data)
    target, why = (args.target, "named by --target") if args.target else guess_target(table)
    target_labels(table, target)  # there is such a column, and it is complete
    task = task_of(table, target) if args.task is None else kind_named(check_choice("--task", args.task, TASKS))
    classes = target_classes(table, target)[1] if task.has_classes else ()
    numbers = None if classes else target_values(table, target)
    n_values = 0 if numbers is None else len(set(numbers.tolist()))
    columns = survey(table, target)
    set_group(columns, table, target, named=args.group, is_off=args.no_group, is_rank=task.needs_groups)
    if task.needs_groups and numbers is not None:
        check_relevance(numbers, target)
    sensors = sensors_of(table, columns.features - {columns.group})  # a group is no feature once its line counts
    if not columns.features:
        raise InputError(f"{args.data} has no column besides {target!r} that a model could read{_reasons(columns)}")
    try:
        file = args.data.absolute().relative_to(args.out.absolute().parent)
    except ValueError:
        file = args.data.absolute()
    write_whole(args.out, make_toml(str(file), target, why, columns, sensors, task).encode())
    values = {
        "out": str(args.out),
        "target": target,
        "task": task.name,
        "classes": list(classes),
        "features": len(columns.features),
        "sensors": sensors,
        "categories": columns.categories,
        "booleans": columns.booleans,
        "dates": columns.dates,
        "left_out": columns.left_out,
        "suspected": columns.suspected,
        "group": columns.group if columns.is_grouped else None,
        "notes": list(table.notes),
    }
    guessed = "" if args.target else "; --target names another"
    what = f"{len(classes)} classes" if classes else f'{n_values} different numbers, so task = "{task.name}"'
    head = f"{args.out}: predicts {target!r} ({why}{guessed}), {what}"
    last = f"edit the costs, which are placeholders, then: hardcase train {args.out} --out build"
    report(args, values, [head, *_lines(table, columns, sensors), last])
    return 0


def _lines(table: Table, found: Survey, sensors: Mapping[str, Sequence[str]]) -> list[str]:
    """What the columns are, a line for each kind that there is."""
    together = [f"{name} ({_span(columns)})" for name, columns in sensors.items() if list(columns) != [name]]
    lines = {
        "note": list(table.notes),
        "numbers": [_some(found.numbers)],
        "categories": [_some(f"{name} ({n} texts)" for name, n in found.categories.items())],
        "booleans": [_some(found.booleans)],
        "dates": [f'{_some(found.dates)}: left out; dates = "parts" makes features of them'] if found.dates else [],
        "split": [f"{found.split} says each row's part"] if found.split else [],
        "left out": [f"{name} {reason}" for name, reason in found.left_out.items()],
        "suspected": [f"{name} {reason}" for name, reason in found.suspected.items()],
        "group": [f"no split divides one {found.group}; --no-group splits by rows"] * found.is_grouped,
        "sensors": [f"{len(sensors)}{': ' * bool(together)}{_some(together)}"],
    }
    return [f"  {what:<11} {text}" for what, texts in lines.items() for text in texts if text]


def _span(columns: Sequence[str]) -> str:
    return columns[0] if len(columns) == 1 else f"{columns[0]} to {columns[-1]}"


def _some(names: Iterable[str], limit: int = 12) -> str:
    """The names, or their number and the first of them."""
    listed = list(names)
    if len(listed) <= limit:
        return ", ".join(listed)
    return f"{', '.join(listed[:limit])} and {len(listed) - limit} more"


def _reasons(found: Survey) -> str:
    reasons = [f"{name!r} {reason}" for name, reason in found.left_out.items()]
    return f": {', '.join(reasons)}" if reasons else "; add the sensors' readings"
