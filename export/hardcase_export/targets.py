# SPDX-License-Identifier: Apache-2.0
"""Targets of an export: what is written beside a bundle, or in its place, each found by the hook ``hardcase.targets``.

A target makes all its files in memory, from a bundle that has passed every check; ``hardcase export`` gives it a flag
with its name and a folder, and writes no file before every target has made its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.hooks import hooked, load_hook

if TYPE_CHECKING:  # the flags of the command stand before anything heavy is imported
    from hardcase_edge.bundle.load import Loaded

    from .integers.point import Build, IntegerPoint

MODELS = "folder of models"
EXACT = dict.fromkeys(("linear", "polynomial", "trees", "stack", "network"), 0.0)  # what ``Target.allowed`` may be
ROUNDED = 0.5  # steps: a user's model gives a float, the program the nearest integer

HOOK = "targets"


@dataclass(frozen=True)
class Built:
    """The build that a bundle is from, and the point of it that the bundle holds."""

    build: Build
    point: IntegerPoint


@dataclass(frozen=True)
class Source:
    """A bundle that has passed every check, with its signature if it has one.

    built : None for a bundle that was given as a file, or is of an estimator
    """

    data: bytes
    loaded: Loaded
    signature: bytes | None = None
    built: Built | None = None


@dataclass(frozen=True)
class Output:
    """What a target has made.

    files : contents by path in the folder
    values : of ``hardcase export --json``; for a folder of models a list with an entry for each file
    lines : of the terminal
    bundle : path of the bundle among the files; empty if none is
    """

    files: Mapping[str, bytes]
    values: Any
    lines: list[str] = field(default_factory=list)
    bundle: str = ""


@dataclass(frozen=True)
class Target:
    """A form in which a policy is exported.

    help : of its flag, a sentence without its full stop
    make : from the source, the folder that will hold the files, and the switches that are on; it writes nothing there,
        and raises ``InputError`` or ``BundleError`` with one line if it cannot
    folder : the kind of its folder; one of ``MODELS`` gets a ``models.json``, and several targets may write there
    switches : further flags without a value, each with its help
    of_bundle : whether a bundle alone is enough to make it from
    mixes : whether it can hold a policy that mixes two points by a coin
    allowed : by kind of scorer the largest difference of its scores from the program's, in steps, as docs/exports.md
        explains both; a target refuses the kinds that it does not name, unless it names none and holds no scores
    maturity, against : as docs/maturity.md has them: one of ``hooks.MATURITY``, and what is known against it, in words
    """

    help: str
    make: Callable[[Source, Path, frozenset[str]], Output]
    folder: str
    switches: Mapping[str, str] = field(default_factory=dict)
    of_bundle: bool = False
    mixes: bool = False
    allowed: Mapping[str, float] = field(default_factory=dict)
    maturity: str = "tested"
    against: str = ""


def targets() -> dict[str, Target]:
    """All targets that are installed, by name.

    Raises
    ------
    InputError
        One cannot be loaded, or two have the same name.
    """
    return {name: load_hook(point, Target) for name, point in hooked(HOOK).items()}
