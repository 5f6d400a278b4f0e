# SPDX-License-Identifier: Apache-2.0
"""The text of a first hardcase.toml, whose comments are what is stated of each key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from hardcase_edge.program.cost import PLACEHOLDER
from hardcase_edge.program.kinds import CLASS, Kind
from hardcase_train.settings.config import Config, SensorConfig
from hardcase_train.settings.statement import stated

from .survey import Survey

__all__ = ["make_toml", "quote"]


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
    origin = _origin()
    return f"""\
[data]
file = {quote(file)}  # {_said("file")}
target = {quote(target)}  # {_said("target")}: {why}
task = {quote(task.name)}  # what is predicted: {task.note}
{_dropped(found)}{_dates(found)}{_group(found)}# {_said("split")}
split = {quote(found.split or "random")}
seed = 0  # {_said("seed")}

# What a decision costs: the sensors below, and for a case that goes to the cloud the radio and the cloud itself.
[cost]
unit = "unit"  # {_said("unit")}
default_sensor = 1.0  # {_said("default_sensor")}
per_decision = 0.0  # {_said("per_decision")}
{origin}  # init made the cost up; once it is yours: "measured", "modelled" or "declared"

[cost.uplink]
per_request = {10 * len(sensors)}.0  # {_said("per_request")}
per_byte = 0.0  # {_said("per_byte")}
{origin}  # {_said("uplink_origin")}

[cost.cloud]
per_request = 0.0  # {_said("cloud_per_request")}
{origin}  # {_said("cloud_origin")}

[hpc]
estimator = {quote(task.default_f0)}  # {_said("estimator")}

[hpc.params]  # {_said("params")}

[policy]
methods = ["auto"]  # {_said("methods")}

# One [[sensor]] for each source of readings that are acquired together.
# name: yours
# features: {_of_sensor("features")}
# cost: {_of_sensor("cost")}
# cost_origin: {_of_sensor("cost_origin")}
# Figures that rest on placeholders come with a warning.
{"".join(_sensor(name, features) for name, features in sensors.items())}"""


def _said(field: str) -> str:
    return stated(Config, field).sentence


def _of_sensor(field: str) -> str:
    return stated(SensorConfig, field).sentence


def _origin() -> str:
    return f"cost_origin = {quote(PLACEHOLDER)}"


def quote(value: str | Sequence[str]) -> str:
    """A basic string of TOML, or an array of them: as in JSON, but characters that are not printed are escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def _sensor(name: str, features: Sequence[str]) -> str:
    return f"\n[[sensor]]\nname = {quote(name)}\nfeatures = {quote(list(features))}\ncost = 1.0\n{_origin()}\n"


def _dropped(found: Survey) -> str:
    """Columns that no model reads, with the reason for each."""
    if not found.left_out:
        return f"drop = []  # {_said('drop')}\n"
    rows = [f"    {quote(name)},  # {quote(reason)[1:-1]}\n" for name, reason in found.left_out.items()]
    return f"drop = [  # {_said('drop')}\n{''.join(rows)}]\n"


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
