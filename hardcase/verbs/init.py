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

    from ..home.history import History
    from ..training.survey import Survey

HELP = "Write a first hardcase.toml from a table."
EXAMPLES = """\
hardcase init data.csv                  # then edit the costs in hardcase.toml
hardcase init data.csv --target state --out state.toml
hardcase init queries.csv --task rank --group query
hardcase init --from-homeassistant home-assistant_v2.db --label input_select.activity"""
TERMS = "target: the column to predict; sensor: a source of columns that are read together, at a cost"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", type=Path, nargs="?", help="a .csv, .parquet, .feather, .arrow or .npz table")
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
    home = parser.add_argument_group("a home's history in place of a table")
    home.add_argument(
        "--from-homeassistant", metavar="DB", type=Path, help="a recorder's database of Home Assistant, read as it is"
    )
    home.add_argument("--label", metavar="ENTITY", help="entity that says the answer (default: the only helper)")
    home.add_argument(
        "--entity",
        metavar="ENTITY",
        action="append",
        default=[],
        help="a sensor, or a pattern such as '*.hall_*' (all)",
    )
    home.add_argument("--battery", metavar="ENTITY", action="append", default=[], help="runs on a battery, so is dear")
    home.add_argument("--mains", metavar="ENTITY", action="append", default=[], help="does not run on a battery")
    home.add_argument(
        "--every", metavar="MINUTES", default="", help="between rows, or change: a row when the label changes (5)"
    )
    home.add_argument(
        "--table", metavar="FILE", type=Path, help="table to write, .csv or .parquet (--out's name, .csv)"
    )
    parser.add_argument("--keys", action="store_true", help="print all keys of hardcase.toml, and write nothing")
    add_force(parser)
    add_json(parser)


def _keys() -> str:
    """What is stated of each key of hardcase.toml."""
    from hardcase_train.settings.toml import STATED

    return "\n\n".join(
        "\n".join([f"[{table}]", *(f"  {key:<16}{one.sentence} ({one.absence})" for key, (_, one) in known.items())])
        for table, known in STATED.items()
    )


def run(args: argparse.Namespace) -> int:
    """Write the file and report on every column."""
    if args.keys:
        print(_keys())
        return 0

    from hardcase_edge.base.files import check_replaceable, write_whole
    from hardcase_edge.program.kinds import kind_named
    from hardcase_train.columns.suspects import why_alike, why_missing
    from hardcase_train.data.table import read_table
    from hardcase_train.settings.amounts import check_choice
    from hardcase_train.settings.config import TASKS
    from hardcase_train.tasks.target import check_relevance, target_classes, target_labels, target_values

    from ..training.doubled import doubled_rows
    from ..training.survey import guess_target, make_toml, sensors_of, set_group, survey, task_of

    check_replaceable(args.out, force=args.force)
    home = _history(args)
    table = read_table(args.data)
    other = "label" if home is not None else "target"
    if home is not None:
        target, why = home.label, "named by --label" if args.label else "the only helper"
    else:
        target, why = (args.target, "named by --target") if args.target else guess_target(table)
    target_labels(table, target)  # there is such a column, and it is complete
    task = task_of(table, target) if args.task is None else kind_named(check_choice("--task", args.task, TASKS))
    classes = target_classes(table, target)[1] if task.has_classes else ()
    numbers = None if classes else target_values(table, target)
    n_values = 0 if numbers is None else len(set(numbers.tolist()))
    columns = survey(table, target)
    set_group(columns, table, target, named=args.group, is_off=args.no_group, is_rank=task.needs_groups)
    if home is not None and home.group is not None and args.group == home.group:
        columns.suspected[home.group] = "holds neighbours in time, which are alike"
    reason = why_alike(classes) if numbers is None else "" if task.needs_groups else why_missing(numbers)
    if reason:
        columns.suspected[target] = reason
    if task.needs_groups and numbers is not None:
        check_relevance(numbers, target)
    features = columns.features - {columns.group}  # a group is no feature once its line counts
    sensors = sensors_of(table, features) if home is None else home.sensors_of(features)
    if not columns.features:
        raise InputError(f"{args.data} has no column besides {target!r} that a model could read{_reasons(columns)}")
    try:
        file = args.data.absolute().relative_to(args.out.absolute().parent)
    except ValueError:
        file = args.data.absolute()
    costs = {} if home is None else home.costs
    write_whole(args.out, make_toml(str(file), target, why, columns, sensors, task, costs).encode())
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
        "left_out": columns.left_out | ({} if home is None else home.left_out),
        "suspected": columns.suspected,
        "group": columns.group if columns.is_grouped else None,
        "notes": list(table.notes),
        "doubled": doubled_rows(table, target, columns.features),
    }
    guessed = "" if why.startswith("named") else f"; --{other} names another"
    what = f"{len(classes)} classes" if classes else f'{n_values} different numbers, so task = "{task.name}"'
    head = f"{args.out}: predicts {target!r} ({why}{guessed}), {what}"
    last = f"edit the costs, which are placeholders, then: hardcase train {args.out} --out build"
    doubled = [f"  {'doubled':<11} {values['doubled']}"] if values["doubled"] else []
    of_home = [] if home is None else _home_lines(args, home)
    report(args, values, [head, *_lines(table, columns, sensors), *doubled, *of_home, last])
    return 0


def _history(args: argparse.Namespace) -> History | None:
    """With ``--from-homeassistant``, the rows of its database, written as the table that ``args.data`` then names."""
    from hardcase_edge.base.files import check_replaceable

    from ..home.history import Wanted, read_history, step_of, write_table
    from ..home.recorder import Recorder

    asked = {f"--{name}": getattr(args, name) for name in ("label", "entity", "battery", "mains", "every", "table")}
    if args.from_homeassistant is None:
        if args.data is None:
            raise InputError("name a table, or a recorder's database with --from-homeassistant")
        if flags := [name for name, value in asked.items() if value]:
            raise InputError(f"{flags[0]} is for --from-homeassistant; leave it out, or name a database")
        return None
    if args.data is not None or args.target is not None:
        raise InputError("--from-homeassistant makes the table; name no other, and its target with --label")
    step = step_of(args.every)
    args.data = args.table or args.out.with_suffix(".csv")
    check_replaceable(args.data, force=args.force)
    with Recorder(args.from_homeassistant) as recorder:
        history = read_history(recorder, Wanted(args.label, args.entity, args.battery, args.mains, step))
        if recorder.strange:
            history.left_out["(no name)"] = f"{recorder.strange} entities have names that Home Assistant does not allow"
    write_table(args.data, history)
    if args.group is None and not args.no_group:
        args.group, args.no_group = history.group, history.group is None
    return history


def _home_lines(args: argparse.Namespace, home: History) -> list[str]:
    """The table, and what is made of the home's entities."""
    dear = [f"{name} ({cost:g})" for name, (cost, _) in home.costs.items() if cost > 1 and name in home.sensors]
    n_rows = len(home.columns["time"])
    return [
        f"  {'rows':<11} {n_rows} in {args.data}",
        *([f"  {'battery':<11} {_some(dear)}"] if dear else []),
        *(f"  {'left out':<11} {name} {reason}" for name, reason in home.left_out.items()),
    ]


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
        "arrays": [_some(f"{name} says each row's {name.replace('_', ' ')}" for name in found.arrays)],
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
