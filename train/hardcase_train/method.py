"""What a method says of itself: its name, its paper, and how a sweep and ``auto`` treat it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Method", "Params", "Setting"]

Params = dict[str, Any]  # of one setting: what JSON can hold


@dataclass(frozen=True, kw_only=True)
class Method:
    """The facts of a method that others ask for; the method itself is the class that carries them.

    Parameters
    ----------
    name : as in hardcase.toml
    colour : of its line in pictures of fronts
    is_baseline : no result is shown without it
    auto : "always": ``auto`` sweeps it; "raced": where it wins a race on few rows; "named": only by name
    runners : those of its settings that run the race
    is_halved : whether weak settings are stopped early (successive halving); not where all of a few are wanted
    work : how long a setting takes, in classifiers of all sensors
    searches_subsets : whether its settings share the search over sensor subsets
    """

    name: str
    colour: str
    is_baseline: bool = False
    auto: str = "named"
    runners: slice = field(default_factory=lambda: slice(0, 1))
    is_halved: bool = True
    work: float = 1.0
    searches_subsets: bool = False


@dataclass(frozen=True)
class Setting:
    """One way to train a method: the unit of a sweep's work."""

    method: str
    params: Params
