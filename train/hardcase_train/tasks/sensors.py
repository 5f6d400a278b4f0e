# SPDX-License-Identifier: Apache-2.0
"""The sensors of a task: which columns each delivers, what it costs, and what a decision costs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardcase_edge.base.hints import nearest_column
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.definition import FREE, Costs, Sensor

from ..data.table import Table
from ..settings.config import Config

__all__ = ["coefficients", "cost_origins", "dropped_columns", "task_costs", "task_sensors"]


def dropped_columns(table: Table, config: Config) -> list[str]:
    """The columns, and parts of dates, that ``[data] drop`` names.

    Raises
    ------
    InputError
        The data has no such column.
    """
    dropped: list[str] = []
    parts = [part for name in table.parts for part in table.date_columns(name)] if config.dates == "parts" else []
    columns = (*(table.kinds or table.names), *parts)
    for pattern in config.drop:
        matching = _matching(columns, pattern)
        if not matching:
            hint = nearest_column(pattern, columns)
            raise InputError(f"[data] drop names {pattern!r}, which is not a column of the data; {hint}")
        dropped += matching
    return dropped


def task_sensors(table: Table, config: Config) -> tuple[tuple[Sensor, ...], tuple[str, ...]]:
    """The sensors and their names; a column that belongs to none is a sensor of its own.

    Raises
    ------
    InputError
        A sensor names a column that does not exist, or one that belongs to another sensor.
    """
    owner: dict[str, str] = {}
    sensors, names = [], []
    for s in config.sensors:
        features: list[str] = []
        for pattern in s.features:
            columns = _matching(table.names, pattern)
            if not columns:
                hint = nearest_column(pattern, table.names)
                raise InputError(f"sensor {s.name!r} names {pattern!r}, which is not a column of numbers; {hint}")
            features += [f for f in columns if f not in features]
        for f in features:
            if f in owner:
                raise InputError(
                    f"feature {f!r} belongs to the sensors {owner[f]!r} and {s.name!r}; remove it from one"
                )
            owner[f] = s.name
        sensors.append(Sensor(tuple(table.names.index(f) for f in features), coefficients(s.cost)))
        names.append(s.name)
    for k, f in enumerate(table.names):
        if f not in owner:
            if f in names:
                raise InputError(f"feature {f!r} belongs to no sensor, but a sensor has its name; rename the sensor")
            sensors.append(Sensor((k,), (to_micro(config.default_sensor),)))
            names.append(f)
    return tuple(sensors), tuple(names)


def cost_origins(config: Config, names: Sequence[str]) -> dict[str, Any]:
    """Where the costs of these sensors, the radio, the cloud and a decision's start are from, as front.json has it."""
    own = {s.name: s.cost_origin for s in config.sensors}
    origins = {name: own.get(name, config.default_origin) for name in names}
    one = set(origins.values())
    return {
        "sensors": one.pop() if len(one) == 1 else origins,
        "uplink": config.uplink_origin,
        "cloud": config.cloud_origin,
        **({"decision": config.decision_origin} if config.per_decision else {}),
    }


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    """The column of this name; otherwise, if the pattern ends in ``*``, the columns with that prefix."""
    if pattern in names:
        return [pattern]
    return [n for n in names if n.startswith(pattern[:-1])] if pattern.endswith("*") else []


def coefficients(cost: float | tuple[float, ...]) -> tuple[int, ...]:
    """A sensor's cost as the micro-units of a program.

    >>> coefficients((0.5, 0.0, 2.0)), coefficients(3.0)
    ((500000, 0, 2000000), (3000000,))
    """
    return tuple(map(to_micro, cost)) if isinstance(cost, tuple) else (to_micro(cost),)


def task_costs(config: Config) -> Costs:
    """The costs beside those of sensors, as a program has them."""
    return Costs(**{name: to_micro(getattr(config, name)) for name in FREE.terms})
