# SPDX-License-Identifier: Apache-2.0
"""The text of a first hardcase.toml, with a comment on every key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from hardcase_edge.program.kinds import CLASS, Kind

from .survey import Survey

__all__ = ["make_toml", "quote"]

_PLACEHOLDER = 'cost_origin = "placeholder"'
SPLIT = '# "random" (60/10/10/20), "time" (row order), or a column that says train, valid, calibration, test'


def make_toml(
    file: str, target: str, why: str, found: Survey, sensors: Mapping[str, Sequence[str]], task: Kind = CLASS
) -> str:
    """The configuration of a table: every sensor costs 1, and a request as much as ten of them each.

    Nobody has stated these costs, and each says so: it is a placeholder.

    Parameters
    ----------
    file : path of the table, relative to the configuration
    target, why : the column to predict, and why it was chosen
    found : what the columns of the table are
    sensors : the columns, or a prefix with ``*``, of each sensor
    task : what is predicted
    """
    kind = task.estimator
    return f"""\
[data]
file = {quote(file)}  # the table, relative to this file
target = {quote(target)}  # the column to predict: {why}
task = {quote(task.name)}  # what is predicted: {task.note}
{_dropped(found)}{_dates(found)}{_group(found)}{SPLIT}
split = {quote(found.split or "random")}
seed = 0  # of splits and training

# What a decision costs: the sensors below, and for a case that goes to the cloud the radio and the cloud itself.
[cost]
unit = "unit"  # the name of your unit, such as mJ
default_sensor = 1.0  # for a column that no sensor below names
{_PLACEHOLDER}  # init made the cost up; once it is yours: "measured", "modelled" or "declared"

[cost.uplink]
per_request = {10 * len(sensors)}.0  # the radio, for each request
per_byte = 0.0  # and for each byte of it
{_PLACEHOLDER}  # of both

[cost.cloud]
per_request = 0.0  # the cloud, for each request
{_PLACEHOLDER}  # of it

[hpc]
estimator = {quote(task.default_f0)}  # the large model in the cloud: any {kind} of scikit-learn

[hpc.params]  # its parameters, such as max_iter = 300

[policy]
methods = ["auto"]  # what to train for the device

# One [[sensor]] for each source of readings that are acquired together.
# name: yours; features: its columns, "x.*" for all that begin with "x."; cost: of one reading of all of them;
# cost_origin: where that is from. Figures that rest on placeholders come with a warning.
{"".join(_sensor(name, features) for name, features in sensors.items())}"""


def quote(value: str | Sequence[str]) -> str:
    """A basic string of TOML, or an array of them: as in JSON, but characters that are not printed are escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def _sensor(name: str, features: Sequence[str]) -> str:
    return f"\n[[sensor]]\nname = {quote(name)}\nfeatures = {quote(list(features))}\ncost = 1.0\n{_PLACEHOLDER}\n"


def _dropped(found: Survey) -> str:
    """Columns that no model reads, with the reason for each."""
    if not found.left_out:
        return "drop = []  # columns that no model reads\n"
    rows = [f"    {quote(name)},  # {quote(reason)[1:-1]}\n" for name, reason in found.left_out.items()]
    return f"drop = [  # columns that no model reads\n{''.join(rows)}]\n"


def _dates(found: Survey) -> str:
    if not found.dates:
        return ""
    return f'dates = "leave"  # without {quote(found.dates)[1:-1]}; "parts": month, day, weekday and hour as features\n'


def _group(found: Survey) -> str:
    """The line of the group: with a ``#`` before it where it is only suspected and cannot be the default."""
    if not found.group:
        return ""
    reason = quote(found.suspected.get(found.group, "names the group"))[1:-1]
    if found.is_grouped:
        off = "a # before this line makes it a feature"
        return f"group = {quote(found.group)}  # no split divides its rows, as it {reason}; {off}\n"
    return f"# group = {quote(found.group)}  # without the #, no split divides its rows; it {reason}\n"
