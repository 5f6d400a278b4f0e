# SPDX-License-Identifier: Apache-2.0
"""Amounts as people write them: costs, as numbers or polynomials in an item's size, and the limits of policies.

The limits of [policy] (``budget``, ``max_ms``, ``max_bytes``, ``max_forward``) are constraints of training: methods
leave out what cannot keep them, and ``stages.kept`` proves each point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.limits import MAX_COEFFICIENTS

__all__ = [
    "DECLARED", "MAX_COST", "NO_LIMITS", "ORIGINS", "PLACEHOLDER", "PolicyLimits", "check_amount", "check_choice",
    "check_cost", "limits_of",
]  # fmt: skip

MAX_COST = 1e9
DECLARED, PLACEHOLDER = "declared", "placeholder"  # a person's word; a number that hardcase init made up
ORIGINS = ("measured", "modelled", DECLARED, PLACEHOLDER)  # where a cost is from
RANGES = {"budget": (0, MAX_COST), "max_ms": (0, 1e9), "max_bytes": (1, 1 << 40), "max_forward": (0, 1)}
UNITS = {"budget": "a cost", "max_ms": "milliseconds", "max_bytes": "a whole number of bytes", "max_forward": "a share"}


def check_amount(what: str, value: Any) -> float:
    """Check a cost in the user's unit.

    Raises
    ------
    InputError
        The value is not a number from 0 to 1e9.
    """
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_COST:  # a comparison with NaN is false
        raise InputError(f"{what} is {str(value)[:40]}, a cost from 0 to {MAX_COST:g} is expected")
    return float(value)


def check_cost(what: str, cost: Any) -> float | tuple[float, ...]:
    """Check a sensor's cost: an amount, or up to 8 coefficients c0, c1, ... of c0 + c1 s + ... for an item of size s.

    Raises
    ------
    InputError
        There are more coefficients, or one is not a number from 0 to 1e9.

    Examples
    --------
    >>> check_cost("the cost", 2), check_cost("the cost", [0.5, 1])
    (2.0, (0.5, 1.0))
    """
    if not isinstance(cost, list | tuple):
        return check_amount(what, cost)
    if not 1 <= len(cost) <= MAX_COEFFICIENTS:
        raise InputError(
            f"{what} has {len(cost)} coefficients, 1 to {MAX_COEFFICIENTS} are allowed; give fewer or more"
        )
    return tuple(check_amount(f"{what}, coefficient {k},", c) for k, c in enumerate(cost))


def check_choice(what: str, name: Any, choices: Sequence[str]) -> str:
    """Check a name that must be one of a few.

    >>> check_choice("cost_origin", "measured", ORIGINS)
    'measured'

    Raises
    ------
    InputError
        It is not one of them.
    """
    if name not in choices:
        raise InputError(f"{what} is {str(name)[:80]!r}; use one of {', '.join(choices)}")
    return str(name)


@dataclass(frozen=True, kw_only=True)
class PolicyLimits:
    """Limits of a policy; None: no limit.

    budget : the most that any decision may cost, its request included, in the user's unit
    max_ms : the longest that a decision may take in the compiled kernel, without the reading of sensors, as
        ``program.limits.worst_decision_ms`` bounds it
    max_bytes : of the image, which is the policy as it lies in a device's flash, and of the kernel
    max_forward : the largest share of rows that may be forwarded, by the judged rows and one standard error

    Raises
    ------
    InputError
        A value is out of range.
    """

    budget: float | None = None
    max_ms: float | None = None
    max_bytes: int | None = None
    max_forward: float | None = None

    def __post_init__(self) -> None:
        for key, (low, high) in RANGES.items():
            value = getattr(self, key)
            kinds = int | np.integer if key == "max_bytes" else int | float | np.number
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if value is not None and not (is_number and low <= value <= high):  # a comparison with NaN is false
                raise InputError(
                    f"[policy] {key} is {str(value)[:40]}, {UNITS[key]} from {low:g} to {high:g} is expected"
                )

    @property
    def given(self) -> dict[str, float]:
        """The limits that there are."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def micro_budget(self) -> int | None:
        """The budget in micro-units."""
        return None if self.budget is None else to_micro(self.budget)

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return bool(self.given)


NO_LIMITS = PolicyLimits()


def limits_of(what: str, given: Mapping[str, Any] | PolicyLimits | None) -> PolicyLimits:
    """Limits as a parameter gives them.

    >>> limits_of("policy", {"budget": 5}).given
    {'budget': 5}

    Raises
    ------
    InputError
        A key is unknown, or a value is out of range.
    """
    if given is None or isinstance(given, PolicyLimits):
        return given or NO_LIMITS
    if not isinstance(given, Mapping):
        raise InputError(f"{what} is {str(given)[:40]!r}; give a dict of limits, such as {{'budget': 5}}")
    for key in given:
        if key not in RANGES:
            hint = did_you_mean(str(key), RANGES, f"limits are {', '.join(RANGES)}", cutoff=0.5)
            raise InputError(f"{what} has the unknown limit {str(key)[:40]!r}; {hint}")
    return PolicyLimits(**given)
