# SPDX-License-Identifier: Apache-2.0
"""A survey of a table's columns for ``hardcase init``: target, sensors, what to leave out; and its hardcase.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hardcase_edge.base.hints import nearest_column
from hardcase_edge.base.toml import toml_value
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import PLACEHOLDER
from hardcase_edge.program.kinds import CLASS, VALUE, Kind
from hardcase_train.columns.kinds import DATE, NUMBER, OTHER, TEXT, texts_in
from hardcase_train.columns.suspects import (
    gives_away,
    is_named_group,
    why_group,
    why_missing,
    why_no_number,
    why_no_text,
    why_numbers,
)
from hardcase_train.data.problem import MAX_CLASSES
from hardcase_train.data.split import LEAST_GROUPS
from hardcase_train.data.table import Table
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import Config, SensorConfig
from hardcase_train.settings.statement import stated
from hardcase_train.tasks.task import Task

from ..options import plain
from .doubled import doubled_warning

LIKELY_TARGETS = ("target", "label", "class", "y")
SPLIT_WORDS = {"train", "valid", "test", "calibration"}
IS_ARRAY = "is the array of that name"
MOST_SUSPECTED = 3  # features of which training says that they may give the answer away
MAX_LABELS = 20  # different whole numbers that still look like classes
NUMBERED = re.compile(r"(.*[^\W\d_].*?[._ -]?)\[?(\d+)\]?")  # a name with a letter, and a number at its end


@dataclass
class Survey:
    """What the columns of a table are; every column but the target is in one of the first six.

    numbers, booleans, dates : names
    categories : number of texts by name
    left_out : columns that no model should read, with the reason
    split : the column that says each row's part, or empty
    suspected : features that seem to say something else than a reading, with the reason
    group : the suspected feature that may say which rows belong together, or empty
    is_grouped : whether splits go by it: it has groups enough, and no column says the parts
    arrays : what other arrays of an .npz file say of each row: its weight, the size of its item
    """

    numbers: list[str] = field(default_factory=list)
    booleans: list[str] = field(default_factory=list)
    categories: dict[str, int] = field(default_factory=dict)
    dates: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    split: str = ""
    suspected: dict[str, str] = field(default_factory=dict)
    group: str = ""
    is_grouped: bool = False
    arrays: list[str] = field(default_factory=list)

    @property
    def features(self) -> set[str]:
        """The columns that become features; a group that splits go by is none."""
        return {*self.numbers, *self.booleans, *self.categories} - {self.group if self.is_grouped else ""}


def survey(table: Table, target: str) -> Survey:
    """Look at every column but the target."""
    found = Survey()
    y = table.labels[target].tolist() if task_of(table, target).has_classes else []  # no column names values
    for name, kind in table.kinds.items():
        if name == target:
            continue
        if kind == OTHER:
            found.left_out[name] = "holds neither numbers nor text"
        elif kind == DATE:
            found.dates.append(name)
        elif kind == TEXT:
            _add_text(found, name, table.labels[name].tolist(), y)
        else:
            _add_number(found, name, kind, table, y)
    arrays = [name for name in table.roles if name != target]
    if "group" in arrays:
        found.group, found.suspected["group"] = "group", IS_ARRAY
    found.split = "split" if "split" in arrays else found.split
    found.arrays = [name for name in arrays if name not in ("split", "group")]
    is_told = not found.split or "group" in arrays
    found.is_grouped = bool(found.group) and is_told and has_groups(table, found.group)
    return found


def has_groups(table: Table, column: str) -> bool:
    """Whether a column has groups enough for a random split, and says that of every row."""
    names = table.labels[column].tolist()
    return all(name is not None and name == name for name in names) and len(set(names)) >= sum(LEAST_GROUPS)


def set_group(
    found: Survey, table: Table, target: str, *, named: str | None = None, is_off: bool = False, is_rank: bool = False
) -> None:
    """Let splits go by the group that is named, or by none, in place of what looks like one.

    Raises
    ------
    InputError
        The named column is none, is the target or the split, has too few groups or gaps; or ranks have no group.
    """
    if named is not None:
        if named not in table.labels or named in (target, found.split):
            raise InputError(
                f"--group is {named!r}; {nearest_column(named, set(table.labels) - {target, found.split})}"
            )
        if not has_groups(table, named):
            raise InputError(
                f"--group {named!r} has gaps, or not the {sum(LEAST_GROUPS)} groups that a split needs; name another"
            )
        found.group, found.is_grouped = named, True
        for kept in (found.left_out, found.categories, found.suspected):
            kept.pop(named, None)  # it is no longer a feature, and no suspicion
        found.suspected[named] = "was named by --group"
        found.numbers = [name for name in found.numbers if name != named]
    elif is_off:
        found.is_grouped = False
    if is_rank and not found.is_grouped:
        raise InputError("--task rank orders the rows of a group, such as a query; name its column with --group")


def divided_groups(table: Table, config: Config) -> list[str]:
    """A line if a feature's name suggests that it says which rows belong together, but splits may divide them."""
    if config.group is not None or config.sequence is not None or config.item is not None:
        return []
    used = {config.target, config.split, config.weight, config.item_size, *config.drop}
    for name in table.kinds:
        if name in used or name not in table.labels or not is_named_group(name):
            continue
        if reason := why_group(name, table.labels[name].tolist()):
            return [
                f"WARNING: THE SPLIT DIVIDES ROWS OF ONE {plain(name, 24)!r}, WHICH MAY BELONG TOGETHER ({reason}): "
                "figures may be too good for others; [data] group splits by it, [data] drop takes it from the features"
            ]
    return []


def suspicions(task: Task) -> list[str]:
    """Lines of what may be wrong with the rows of a task, whatever is learned from them."""
    few = Judge(task.problem, is_alone=task.config.item is not None).warning()  # items judge no training rows
    said = [f"WARNING: {few}"] if few else []
    return [*given_away(task), *divided_groups(task.table, task.config), *doubled_warning(task.problem), *said]


def given_away(task: Task) -> list[str]:
    """Lines if features have one value for each class, or if a number among values seems to stand for a missing one."""
    table, target = task.table, plain(task.config.target, 24)
    if task.config.task == VALUE.name:
        reason = why_missing(task.y)
        return [f"WARNING: THE TARGET {target!r} {reason}"] if reason else []
    y = task.y.tolist()
    columns = zip(table.names, table.X.T, strict=True) if task.classes else ()
    found = [plain(name, 24) for name, x in columns if gives_away((None if v != v else v for v in x), y)]
    return [
        f"WARNING: {name!r} MAY GIVE THE ANSWER AWAY, AS IT HAS ONE VALUE FOR EACH CLASS: if it is not known before "
        "the answer, take it from the features with [data] drop"
        for name in found[:MOST_SUSPECTED]
    ]


def _add_number(found: Survey, name: str, kind: str, table: Table, y: list[Any]) -> None:
    values = table.X[:, table.names.index(name)]
    reason = "" if table.windows else why_no_number(name, values)
    if reason:
        found.left_out[name] = reason
        return
    (found.numbers if kind == NUMBER else found.booleans).append(name)
    _suspect(found, name, [None if v != v else v for v in values.tolist()], y)
    if name not in found.suspected and not table.windows and (stand_in := why_missing(values)):
        found.suspected[name] = stand_in


def _add_text(found: Survey, name: str, values: list[Any], y: list[Any]) -> None:
    texts = texts_in(values)
    if not found.split and {"train", "valid", "test"} <= {t.lower() for t in texts} <= SPLIT_WORDS:
        found.split = name
    elif reason := why_no_text(values):
        found.left_out[name] = reason
    else:
        found.categories[name] = len(texts)
        if numbers := why_numbers(texts):
            found.suspected[name] = f"is a category of texts, but {numbers}"
        else:
            _suspect(found, name, values, y)


def _suspect(found: Survey, name: str, values: list[Any], y: list[Any]) -> None:
    if y and gives_away(values, y):
        found.suspected[name] = "may give the answer away: it has one value for each class"
    elif reason := why_group(name, values):
        found.suspected[name] = f"may say which rows belong together: {reason}"
        found.group = found.group or name


# ---------------------------------------------------------------- the target


def guess_target(table: Table) -> tuple[str, str]:
    """The column to predict, and why: by its name, by its place and its look, or as the last that may hold labels.

    Raises
    ------
    InputError
        No column could be a target.
    """
    columns = [name for name in table.labels if table.kinds.get(name) != "date"]
    if not columns:
        raise InputError("no column of the data could be a target; name one with --target")
    for likely in LIKELY_TARGETS:
        for name in columns:
            if name.strip().lower() == likely:
                return name, "a usual name of a target"
    for name, place in ((columns[-1], "last"), (columns[0], "first")):
        if _looks_like_classes(table, name):
            return name, f"the {place} column"
    return columns[-1], "the last column"


def _looks_like_classes(table: Table, name: str) -> bool:
    """Whether a column holds few texts, booleans or few whole numbers."""
    values = {v for v in table.labels[name].tolist() if v is not None and v == v}
    is_whole = all(isinstance(v, str | int) or v.is_integer() for v in values)
    return is_whole and 2 <= len(values) <= MAX_LABELS


def task_of(table: Table, target: str) -> Kind:
    """What the target looks like: a value if it holds many different numbers, fractions or more than classes may be."""
    values = {v for v in table.labels[target].tolist() if v is not None and v == v}
    if len(values) <= MAX_LABELS or any(isinstance(v, str) for v in values):
        return CLASS
    is_whole = all(float(v).is_integer() for v in values)
    return CLASS if is_whole and len(values) <= MAX_CLASSES else VALUE


# ---------------------------------------------------------------- sensors


def sensors_of(table: Table, features: set[str]) -> dict[str, list[str]]:
    """The sensors of a first configuration, by name, each with its columns or with one prefix for all of them.

    A sensor is a window, the columns of one name with different numbers (``temp.0``, ``temp.1``), or one column.
    """
    if table.windows:
        return {s: [f"{s}.*"] for s in table.windows}
    names = [name for name in table.kinds if name in features]
    groups: dict[str, list[str]] = {}
    for name in names:
        match = NUMBERED.fullmatch(name)
        groups.setdefault(f"{match[1]}*" if match else name, []).append(name)
    if len(groups) < 2:  # numbered columns and nothing else: each is a sensor
        return {name: [name] for name in names}
    sensors: dict[str, list[str]] = {}
    for pattern, members in groups.items():
        is_group = len(members) > 1
        called = _sensor_name(pattern, members, {*table.kinds, *sensors}) if is_group else members[0]
        is_prefix = is_group and members == [n for n in table.kinds if n.startswith(pattern[:-1])]
        sensors[called] = [pattern] if is_prefix and pattern not in table.kinds else members
    return sensors


def _sensor_name(pattern: str, members: Sequence[str], taken: set[str]) -> str:
    """The name that numbered columns share, with their numbers where it is taken."""
    name = pattern[:-1].rstrip("._ -[")
    if name in taken:
        name = f"{members[0]} to {members[-1]}"
    return name


# The text of a first hardcase.toml, whose comments are what is stated of each key.


def make_toml(
    file: str,
    target: str,
    why: str,
    found: Survey,
    sensors: Mapping[str, Sequence[str]],
    task: Kind = CLASS,
    costs: Mapping[str, tuple[float, str]] = {},
) -> str:
    """The configuration of a table: a sensor costs 1 unless told otherwise, and a request as much as ten of each.

    Nobody has stated these costs, and each says so: it is a placeholder.

    Parameters
    ----------
    file : path of the table, relative to the configuration
    target, why : the column to predict, and why it was chosen
    found : what the columns of the table are
    sensors : the columns, or a prefix with ``*``, of each sensor
    task : what is predicted
    costs : by sensor, another cost than 1, and why
    """
    origin, needed = _origin(), sum(costs.get(name, (1.0, ""))[0] for name in sensors)
    return f"""\
[data]
file = {toml_value(file, "file")}  # {_said("file")}
target = {toml_value(target)}  # {_said("target")}: {why}
task = {toml_value(task.name)}  # what is predicted: {task.note}
{_dropped(found)}{_dates(found)}{_group(found)}{_arrays(found)}# {_said("split")}
split = {toml_value(found.split or "random")}
seed = 0  # {_said("seed")}

# What a decision costs: the sensors below, and for a case that goes to the cloud the radio and the cloud itself.
[cost]
unit = "unit"  # {_said("unit")}
default_sensor = 1.0  # {_said("default_sensor")}
per_decision = 0.0  # {_said("per_decision")}
{origin}  # init made the cost up; once it is yours: "measured", "modelled" or "declared"

[cost.uplink]
per_request = {10 * needed:.1f}  # {_said("per_request")}
per_byte = 0.0  # {_said("per_byte")}
{origin}  # {_said("uplink_origin")}

[cost.cloud]
per_request = 0.0  # {_said("cloud_per_request")}
{origin}  # {_said("cloud_origin")}

[hpc]
estimator = {toml_value(task.default_f0)}  # {_said("estimator")}
# url = "openai+https://api.example/v1?model=NAME&key=VARIABLE"  # {_said("service")}

[hpc.params]  # {_said("params")}

[policy]
methods = ["auto"]  # {_said("methods")}

# One [[sensor]] for each source of readings that are acquired together.
# name: yours
# features: {_of_sensor("features")}
# cost: {_of_sensor("cost")}
# cost_origin: {_of_sensor("cost_origin")}
# Figures that rest on placeholders come with a warning.
{"".join(_sensor(name, features, *costs.get(name, (1.0, ""))) for name, features in sensors.items())}"""


def _said(field: str) -> str:
    return stated(Config, field).sentence


def _of_sensor(field: str) -> str:
    return stated(SensorConfig, field).sentence


def _origin() -> str:
    return f"cost_origin = {toml_value(PLACEHOLDER)}"


def _sensor(name: str, features: Sequence[str], cost: float, why: str) -> str:
    amount = f"cost = {cost}{why and f'  # {why}'}"
    return f"\n[[sensor]]\nname = {toml_value(name)}\nfeatures = {toml_value(list(features))}\n{amount}\n{_origin()}\n"


def _dropped(found: Survey) -> str:
    """Columns that no model reads, with the reason for each."""
    if not found.left_out:
        return f"drop = []  # {_said('drop')}\n"
    rows = [f"    {toml_value(name)},  # {toml_value(reason)[1:-1]}\n" for name, reason in found.left_out.items()]
    return f"drop = [  # {_said('drop')}\n{''.join(rows)}]\n"


def _dates(found: Survey) -> str:
    if not found.dates:
        return ""
    names = toml_value(found.dates)[1:-1]
    return f'dates = "leave"  # without {names}; "parts": month, day, weekday and hour as features\n'


def _arrays(found: Survey) -> str:
    return "".join(f"{name} = {toml_value(name)}  # {_said(name)}\n" for name in found.arrays)


def _group(found: Survey) -> str:
    """The line of the group: with a ``#`` before it where it is only suspected and cannot be the default."""
    if not found.group:
        return ""
    reason = toml_value(found.suspected.get(found.group, "names the group"))[1:-1]
    if found.is_grouped:
        off = "splits by rows" if reason == IS_ARRAY else "makes it a feature"
        line = f"group = {toml_value(found.group)}  # no split divides its rows, as it {reason}"
        return f"{line}; a # before this line {off}\n"
    return f"# group = {toml_value(found.group)}  # without the #, no split divides its rows; it {reason}\n"
