# SPDX-License-Identifier: Apache-2.0
"""``hardcase.train`` in Python beside the records of hardcase.toml: the same settings, defaults, words and units."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from msgspec.inspect import Metadata, type_info

import hardcase
from hardcase_edge.program.limits import CLOCK_UNIT
from hardcase_train.settings.toml import STATED

SAME = {  # parameters with a key of their own, whose default is the record's
    "costs": "cost.default_sensor", "forward_cost": "cost.uplink.per_request", "per_decision": "cost.per_decision",
    "cost_origin": "cost.cost_origin", "task": "data.task", "target_unit": "data.target_unit",
    "quality": "policy.quality", "hpc_classes": "hpc.classes", "methods": "policy.methods", "effort": "policy.effort",
    "drop": "data.drop", "dates": "data.dates", "weight": "data.weight", "groups": "data.group",
    "item_size": "data.item_size", "clock": "cost.clock", "seed": "data.seed",
}  # fmt: skip
OTHERWISE = {  # parameters that stand for these keys in another form, None by default
    "sensors": ["sensor.name", "sensor.features", "sensor.cost", "sensor.cost_origin"],
    "errors": ["cost.errors.miss", "cost.errors.false_alarm", "cost.errors.other", "cost.errors.matrix"],
    "policy": ["policy.budget", "policy.max_ms", "policy.max_bytes", "policy.max_forward"],
    "hpc": ["hpc.estimator", "hpc.params", "hpc.model"],
    "unit": ["cost.unit"],
}
DATA = {"X": "data.file", "y": "data.target"}
FLAGS = {"max_loss", "budget", "jobs", "time_limit", "quiet"}  # of commands, and no settings
PYTHON = {"name", "names"}  # a table has its names, and a file its own
FILE_ONLY = {  # what a table says to the command alone
    "data.split", "data.sequence", "data.item", "cost.uplink.per_byte", "cost.cloud.per_request", "hpc.table",
    "hpc.name", "hpc.url", "lpc.tflite", "lpc.sensors", "policy.size", "policy.class_weight",
}  # fmt: skip
ORIGINS = {"cost.decision_origin", "cost.uplink.cost_origin", "cost.cloud.cost_origin"}  # by names in ``cost_origin``
TABLES = ("index", "joint")  # tables of some methods, which Python sets by their estimators
PARAMETERS = inspect.signature(hardcase.train).parameters


def stated(name: str) -> Any:
    table, _, key = name.rpartition(".")
    return STATED[table][key][1]


def told(name: str) -> str:
    """What the docstring says of a parameter."""
    found = re.search(rf"^{name} : (.*?)(?=^\w+ : |^Raises)", inspect.getdoc(hardcase.train) or "", re.M | re.S)
    assert found, f"the docstring leaves out {name}"
    return found[1]


def words(name: str) -> tuple[str, ...]:
    info = type_info(stated(name).type)
    return (info.extra or {}).get("words", ()) if isinstance(info, Metadata) else ()


def test_each_parameter_is_a_setting_or_belongs_to_python_and_no_setting_is_forgotten() -> None:
    assert {*SAME, *OTHERWISE, *DATA, *FLAGS, *PYTHON} == {*PARAMETERS}
    keys = {f"{table}.{key}" for table, known in STATED.items() if table not in TABLES for key in known}
    several = {key for among in OTHERWISE.values() for key in among}
    assert {*SAME.values(), *DATA.values(), *several, *FILE_ONLY, *ORIGINS} == keys


@pytest.mark.parametrize(("name", "key"), SAME.items())
def test_a_parameter_has_the_default_and_the_words_of_its_setting(name: str, key: str) -> None:
    assert PARAMETERS[name].default == stated(key).default
    assert all(f'"{word}"' in told(name) for word in words(key)), words(key)


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_parameter_in_another_form_names_what_it_takes(name: str) -> None:
    assert PARAMETERS[name].default is None
    if name in ("errors", "policy"):
        assert all(f'"{stated(key).key}"' in told(name) for key in OTHERWISE[name])


def test_costs_are_in_the_unit_of_the_settings_and_by_the_clock_in_milliseconds() -> None:
    assert f'"{stated("cost.unit").default}", or "{CLOCK_UNIT}" by the clock' in told("unit")
    for name in ("forward_cost", "clock"):
        assert CLOCK_UNIT in told(name).replace("milliseconds", CLOCK_UNIT)
    assert "not by the clock" in told("per_decision")
    assert "not by the clock" in stated("cost.per_decision").sentence
