# SPDX-License-Identifier: Apache-2.0
"""Names of arguments that a function of the API does not have: one line that names the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def names_of(call: Callable[..., Any]) -> list[str]:
    """The arguments that a function takes by name."""
    fixed = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [p.name for p in signature(call).parameters.values() if p.kind in fixed]


def check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that is not among the known ones.

    >>> check_names("train", ["group"], ["X", "y", "groups"])
    Traceback (most recent call last):
    hardcase_edge.errors.InputError: train takes no argument 'group'; did you mean 'groups'?

    Raises
    ------
    InputError
        A name is unknown; the message has the nearest one, or all of them.
    """
    known = list(known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known, f"its arguments are {', '.join(known)}")
            raise InputError(f"{what} takes no argument {name[:60]!r}; {hint}")


def names_checked(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, which raises ``InputError`` with the nearest name for an argument that it does not have."""
    known = names_of(call)

    @wraps(call)
    def checked(*args: Given.args, **given: Given.kwargs) -> Result:
        check_names(call.__name__, given, known)
        return call(*args, **given)

    return checked
