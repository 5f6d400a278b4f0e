# SPDX-License-Identifier: Apache-2.0
"""Metadata of a training method: its name, and how sweeps and ``auto`` treat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Params = dict[str, Any]  # of one setting; JSON values only


@dataclass(frozen=True, kw_only=True)
class Method:
    """Metadata of a method; the method itself is the ``MethodClassifier`` with this as its ``method``.

    Parameters
    ----------
    name : as in hardcase.toml
    colour : of its line in plots of fronts
    is_baseline : whether every result is reported beside it
    auto : "always": ``auto`` includes the method; "raced": only if it wins a race on a subsample; "named": never
    runners : slice of the grid: the settings that run in the race
    is_halved : whether weak settings are stopped early (successive halving)
    searches_subsets : whether its settings share the search over sensor subsets
    turn : sweeps start jobs of lower turns first; methods of long settings come early
    needs_order : whether it learns only from rows in the order of their time
    takes_values : whether it learns values too, not only classes
    maturity, against : as docs/maturity.md has them: one of ``hooks.MATURITY``, and what is known against it, in words
    expected_failures : names of checks of ``hardcase_train.checks`` that it is known to fail, each with the reason

    Examples
    --------
    >>> method = Method(name="every-sensor", colour="#555555")
    >>> method.auto, method.is_halved
    ('named', True)
    """

    name: str
    colour: str
    is_baseline: bool = False
    auto: str = "named"
    runners: slice = field(default_factory=lambda: slice(0, 1))
    is_halved: bool = True
    searches_subsets: bool = False
    takes_values: bool = False
    needs_order: bool = False
    turn: int = 100
    maturity: str = "tested"
    against: str = ""
    expected_failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One setting of a method; sweeps train settings as independent jobs."""

    method: str
    params: Params
