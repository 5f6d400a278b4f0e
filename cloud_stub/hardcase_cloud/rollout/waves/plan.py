# SPDX-License-Identifier: Apache-2.0
"""The plan of a roll-out: how many devices when, how long each state may last, and what ends it. Checked, and plain."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from hardcase_edge.errors import InputError

MOST_S = 366 * 86_400.0
MOST_AGREEMENT = 0.9999  # more than that takes 50,000 audits to see
LEAST_SPARE = 1e-4  # of the agreement above the tolerance


@dataclass(frozen=True, slots=True)
class Plan:
    """What a roll-out goes by; durations are seconds.

    Parameters
    ----------
    canary : devices in the first wave
    factor : by which the number of devices that have been released grows from wave to wave
    soak_s : how long a wave stands, after its last device has ended, before the next begins
    abort_above : share of failures among the devices that have ended above which the roll-out ends
    abort_after : devices that must have ended before that share counts
    offer_s, load_s, trial_s : longest time from the release to the first chunk, of loading, and of the trial
    agreement : least share of audits in which device and f0 agree; None: nobody asks
    tolerance : by how much a bundle may fall short of it and still leave the canary
    budget : highest mean cost of a decision, in the user's unit; None: nobody asks
    cost_limit : highest cost that one decision can have, in the same unit; needed with ``budget``
    delta : probability with which a bundle that falls short by ``tolerance`` leaves the canary
    quality_s : longest time from the canary's end until its quality is certain
    replaces : whether devices that run another program get it, too

    Raises
    ------
    InputError
        A number is out of range.
    """

    canary: int = 10
    factor: float = 4.0
    soak_s: float = 0.0
    abort_above: float = 0.05
    abort_after: int = 10
    offer_s: float = 3_600.0
    load_s: float = 6 * 3_600.0
    trial_s: float = 6 * 3_600.0
    agreement: float | None = None
    tolerance: float = 0.02
    budget: float | None = None
    cost_limit: float | None = None
    delta: float = 0.05
    quality_s: float = 7 * 86_400.0
    replaces: bool = False

    def __post_init__(self) -> None:
        _check("canary", self.canary, 1, 100_000, is_whole=True)
        _check("factor", self.factor, 1.0001, 1_000)
        _check("abort above", self.abort_above, 0, 1)
        _check("abort after", self.abort_after, 1, 100_000, is_whole=True)
        _check("soak", self.soak_s, 0, MOST_S)
        for name in ("offer_s", "load_s", "trial_s", "quality_s"):
            _check(name.replace("_s", " time"), getattr(self, name), 1, MOST_S)
        _check("delta", self.delta, 1e-9, 0.5)
        _check("tolerance", self.tolerance, 1e-4, 0.5)
        if self.agreement is not None:
            _check("agreement", self.agreement, self.tolerance + LEAST_SPARE, MOST_AGREEMENT)
        if self.budget is not None:
            if self.cost_limit is None:
                raise InputError("a budget needs the highest cost that one decision can have; name it, too")
            _check("cost limit", self.cost_limit, 1e-9, 1e15)
            _check("budget", self.budget, 1e-9 * self.cost_limit, 0.9999 * self.cost_limit)

    def to_json(self) -> dict[str, Any]:
        """As an object of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Plan:
        """The plan in an object of ``to_json``; keys of later versions are refused.

        Raises
        ------
        InputError
            A key is unknown or a number is out of range.
        """
        if unknown := set(value) - {f.name for f in fields(cls)}:
            raise InputError(f"a plan of a roll-out has the key {min(unknown)!r}; update hardcase-cloud")
        return cls(**value)


def _check(name: str, value: float, least: float, most: float, *, is_whole: bool = False) -> None:
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and least <= value <= most):
        of_what = "a whole number from " if is_whole else ""
        raise InputError(f"the {name} of a roll-out is {value}; expected {of_what}{least:g} to {most:g}")
