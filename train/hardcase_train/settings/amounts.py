# SPDX-License-Identifier: Apache-2.0
"""The types of settings, with their bounds: costs, as numbers or polynomials in an item's size; texts and words."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import ORIGINS, to_micro
from hardcase_edge.program.limits import MAX_COEFFICIENTS, MAX_NAME

from .statement import check, one_of

MAX_COST = 1e9

Cost = Annotated[float, Meta(ge=0, le=MAX_COST, extra={"noun": "a cost"})]
Polynomial = (
    Cost
    | Annotated[
        tuple[Cost, ...],
        Meta(min_length=1, max_length=MAX_COEFFICIENTS, extra={"noun": f"an array of up to {MAX_COEFFICIENTS} costs"}),
    ]
)
Share = Annotated[float, Meta(ge=0, le=1, extra={"noun": "a share"})]
Text = Annotated[str, Meta(max_length=MAX_NAME)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Columns = Annotated[tuple[Name, ...], Meta(extra={"noun": "an array of column names"})]
Origin = Annotated[str, one_of(ORIGINS)]


def check_amount(what: str, value: Any) -> float:
    """Check a cost in the user's unit.

    Raises
    ------
    InputError
        The value is not a number from 0 to 1e9.
    """
    return float(check(what, Cost, value))


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
    checked: float | tuple[float, ...] = check(what, Polynomial, cost)
    return checked


def check_kept(what: str, cost: float | tuple[float, ...]) -> None:
    """Refuse a cost above 0 that a program, which has whole millionths of the unit, would round to nothing.

    Raises
    ------
    InputError
        The cost, or a coefficient of it, is below half a millionth.
    """
    for amount in cost if isinstance(cost, tuple) else (cost,):
        if amount and not to_micro(amount):
            raise InputError(
                f"{what} is {amount:g}, which six decimals round to nothing: give all costs in a smaller unit, or 0 "
                "if it is free"
            )


def check_choice(what: str, name: Any, choices: tuple[str, ...]) -> str:
    """Check a name that must be one of a few.

    >>> check_choice("cost_origin", "measured", ("measured", "declared"))
    'measured'

    Raises
    ------
    InputError
        It is not one of them.
    """
    return str(check(what, Annotated[str, one_of(choices)], name))
