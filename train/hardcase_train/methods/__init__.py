# SPDX-License-Identifier: Apache-2.0
"""The registry of methods, found by the hook ``hardcase.methods``. Each paper has a package of its own.

To add a method, add a package here, or a distribution elsewhere, and name its class as an entry point. Sweeps run the
methods in the order of their ``turn``, the slowest settings first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.hooks import hooked, load_hook

from ..estimator import MethodClassifier, PolicyClassifier
from .adapt.gbrt import AdaptGBRT

__all__ = ["AUTO", "BASELINES", "ESTIMATORS", "METHODS", "check_method", "register_method"]

AUTO = "auto"  # stands for the methods that a sweep chooses
MOST_OF_NAME = 16  # letters of an unknown name that a message repeats; no method has a longer one


def _installed() -> list[type[MethodClassifier]]:
    """The classes of all installed methods, in the order of their turns.

    Raises
    ------
    InputError
        One cannot be loaded, is no method, or has another name than its entry point.
    """
    found = {name: load_hook(point, type, "method") for name, point in hooked("methods").items()}
    for name, cls in found.items():
        if not (issubclass(cls, MethodClassifier) and cls.method.name == name):
            raise InputError(
                f"{cls.__module__}:{cls.__qualname__} is not a method named {name!r}; uninstall its package"
            )
    return sorted(found.values(), key=lambda cls: cls.method.turn)


METHODS: dict[str, type[MethodClassifier]] = {cls.method.name: cls for cls in _installed()}
BASELINES = tuple(name for name, cls in METHODS.items() if cls.method.is_baseline)
ESTIMATORS: dict[str, type[PolicyClassifier]] = {
    "AdaptGBRT": AdaptGBRT,
    **{cls.__name__: cls for cls in METHODS.values()},
}


def register_method(cls: type[MethodClassifier]) -> type[MethodClassifier]:
    """Register a method, so that sweeps find it by name; usable as a class decorator.

    Raises
    ------
    ValueError
        A different method has that name, or another estimator the class's name.
    """
    name = cls.method.name
    if name == AUTO or _is_another(METHODS.get(name), cls):
        raise ValueError(f"a method named {name!r} exists; give {cls.__name__}.method another name")
    if _is_another(ESTIMATORS.get(cls.__name__), cls):
        raise ValueError(f"an estimator named {cls.__name__} exists; give the class another name")
    METHODS[name] = ESTIMATORS[cls.__name__] = cls
    return cls


def _is_another(known: type[PolicyClassifier] | None, cls: type[PolicyClassifier]) -> bool:
    """Whether there is one, and it is not an earlier definition of this class: a notebook's cell may run twice."""
    return known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__)


def check_method(where: str, name: Any, known: Collection[str] | None = None) -> str:
    """The name, if it is that of a method or "auto"; ``known``: the names of methods, None: those of the registry.

    Raises
    ------
    InputError
        No method has that name; the message suggests the closest one.

    Examples
    --------
    >>> check_method("--method", "adapt-gbrt")
    'adapt-gbrt'
    >>> check_method("--method", "cascades")
    Traceback (most recent call last):
        ...
    hardcase_edge.errors.InputError: --method names the method 'cascades'; did you mean 'cascade'?
    """
    names = [AUTO, *(METHODS if known is None else known)]
    if name in names:
        return str(name)
    hint = did_you_mean(name, names, f"methods are {', '.join(names)}", cutoff=0.45)
    raise InputError(f"{where} names the method {str(name)[:MOST_OF_NAME]!r}; {hint}")
