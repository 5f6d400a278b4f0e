# SPDX-License-Identifier: Apache-2.0
"""Held-out rows that no choice has seen, and the errors that a build's quantised points make on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Forward
from hardcase_edge.session.actions import CLOUD

from ..drafts.front import Point
from ..drafts.rows import Rows, file_sha256, group_name, in_order, read_rows
from ..integers.decide import decisions
from ..integers.point import Build, IntegerPoint
from .promise_words import BY_CLASS, BY_TRUTH, MAX_PARTS
from .risk_choice import RiskTerms
from .risk_test import Counts, ValidationRates


@dataclass(frozen=True)
class HeldOut:
    """Labelled rows, the name of the file they come from, and its SHA-256 in hex.

    ``column``: (n,) of texts, the value of each row in the column by which a promise is made; None: in no column.
    """

    rows: Rows
    name: str
    sha256: str
    column: NDArray[np.str_] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in a manifest."""
        groups = {} if self.rows.group is None else {"groups": self.groups}
        return {"file": self.name, "sha256": self.sha256, "n": len(self.rows.y), **groups}

    @property
    def groups(self) -> int:
        """The number of groups, 0 if each row stands for itself."""
        return 0 if self.rows.group is None else len(set(self.rows.group.tolist()))


def read_held_out(build: Path, manifest: Manifest) -> HeldOut:
    """The calibration rows of a build.

    Raises
    ------
    InputError
        The build has no calibration rows, or they cannot be used.
    """
    path = build / "calibration.npz"
    if not path.is_file():
        raise InputError(
            f"{build} has no calibration.npz, because its split sets no calibration rows aside; "
            "name a table of labelled rows that training has not seen with --calibration"
        )
    return HeldOut(read_rows(path, manifest), path.name, file_sha256(path))


def by_column(held_out: HeldOut, manifest: Manifest, terms: RiskTerms) -> HeldOut:
    """The rows with the values of the column that the terms name, if they name one: a feature, where nothing else is.

    Raises
    ------
    InputError
        The rows have no such column, or it has too many different values.
    """
    name = terms.per
    if name in (None, BY_CLASS, BY_TRUTH):
        return held_out
    column = held_out.column
    if column is None:
        if name not in manifest.features:
            raise InputError(
                f"{held_out.name} has no column {name!r:.60}: give --risk-per {BY_CLASS}, {BY_TRUTH}, one of the "
                "bundle's features, or a column of a table that --calibration names"
            )
        values, texts = held_out.rows.X[:, manifest.features.index(name)].tolist(), manifest.categories.get(name)
        column = np.array([_text(value, texts) for value in values])
    n = len(set(column.tolist()))
    if n > MAX_PARTS:
        raise InputError(f"{name!r:.60} has {n} different values; a promise is made for {MAX_PARTS} parts at most")
    return replace(held_out, column=column)


def _text(value: float, texts: Any) -> str:
    if texts is not None and value == value and 0 <= value < len(texts):
        return str(texts[int(value)])
    return "missing" if value != value else f"{value:.12g}"


def check_unseen(held_out: HeldOut, build: Path, manifest: Manifest) -> None:
    """Refuse the table that the build was trained on, its training rows, and those of validation on which it chose.

    Refuse also rows without groups, if the build was trained on rows in groups: a test would take them for independent.

    Raises
    ------
    InputError
        The file is one of these, byte for byte, or lacks groups.
    """
    group = group_name(manifest.trained)
    if group is not None and held_out.rows.group is None:
        raise InputError(
            f"{held_out.name} has no groups, but training took {group!r} for the group of a row; rows of one group are "
            "not independent, so add that column"
        )
    data = manifest.trained.get("data")
    trained_on = data.get("sha256") if isinstance(data, dict) else None
    own = [file_sha256(path) for name in ("train.npz", "valid.npz") if (path := build / name).is_file()]
    if held_out.sha256 in (trained_on, *own):
        raise InputError(
            f"{held_out.name} holds rows that training has seen; name rows that it has not seen with --calibration"
        )


@dataclass(frozen=True)
class BuildTrial:
    """A ``risk_choice.Trial`` on the points of a build.

    It quantises a point once, when the point is first tested, and that same program is exported. ``terms``: that the
    points are tested for, which say what is wrong and which parts are counted; None: another class, and no parts.
    """

    build: Build
    held_out: HeldOut
    min_agreement: float
    terms: RiskTerms | None = None
    scored: Callable[[IntegerPoint], IntegerPoint] | None = None
    _integers: dict[str, IntegerPoint] = field(default_factory=dict)
    _counts: dict[str, Counts] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.held_out.name

    @property
    def rows(self) -> int:
        return len(self.held_out.rows.y)

    @property
    def groups(self) -> int:
        return self.held_out.groups

    def can_forward(self, point: Point) -> bool:
        """Whether any path of the point's program forwards to the cloud."""
        return any(isinstance(node, Forward) for node in self.build.draft(point)[0].nodes)

    def integers(self, point: Point) -> IntegerPoint:
        """The point quantised, as it will be exported."""
        assert point.program is not None
        if point.program not in self._integers:
            made = self.build.integers(point, self.min_agreement)
            self._integers[point.program] = made if self.scored is None else self.scored(made)
        return self._integers[point.program]

    def counts(self, point: Point) -> Counts:
        """Errors of the quantised program on the rows, if all sensors work and the cloud replies."""
        assert point.program is not None
        if point.program not in self._counts:
            held_out = self.held_out
            self._counts[point.program] = count(self.integers(point), held_out.rows, self.terms, held_out.column)
        return self._counts[point.program]

    def expected(self, point: Point) -> dict[str, float]:
        """By part: the draws of a column's value or of a true class, or the share of validation rows so answered."""
        terms, held_out = self.terms, self.held_out
        if terms is not None and terms.per == BY_CLASS:
            counts = count(self.integers(point), self.integers(point).valid, terms)
            n = held_out.groups or len(held_out.rows.y)
            return {name: part.local / counts.rows * n for name, part in counts.parts}
        names = held_out.column
        if names is None:
            names = _names(self.integers(point).manifest)[held_out.rows.y]
        of = np.arange(len(names)) if held_out.rows.group is None else held_out.rows.group
        return {str(name): float(len(set(of[names == name].tolist()))) for name in np.unique(names)}

    def judged(self, point: Point) -> ValidationRates:
        """The quantised program's rates on validation rows."""
        counts = count(self.integers(point), self.integers(point).valid, self.terms)
        local = max(1, counts.local)
        return ValidationRates(
            counts.forwarded / counts.rows, counts.errors / local, counts.worse / local, counts.better / local
        )


def count(
    integers: IntegerPoint, rows: Rows, terms: RiskTerms | None = None, column: NDArray[np.str_] | None = None
) -> Counts:
    """Errors of a quantised program on these rows; every row that the cloud does not answer counts as local.

    Parameters
    ----------
    terms : what is wrong, and by what parts answers are counted; None: another class, and no parts
    column : as in ``HeldOut``, of these rows; without it, a column has no parts
    """
    quantised = integers.quantised
    rows = in_order(quantised.program, integers.manifest, rows)
    outcomes = decisions(quantised.program, rows.X, rows.hpc, rows.confidence, steps=quantised.steps, sizes=rows.sizes)
    local, answers = np.array([d.route != CLOUD for d in outcomes]), np.array([d.result for d in outcomes])
    tolerance = 0.0 if terms is None or terms.tolerance is None else terms.tolerance
    own, f0 = (~(np.abs(x - rows.y) <= tolerance) for x in (answers, rows.hpc))
    marks = np.array([local, local & own, local & own & ~f0, local & ~own & f0])
    per, names = None if terms is None else terms.per, np.array([]) if column is None else np.unique(column)
    if per in (BY_CLASS, BY_TRUTH):
        classes = _names(integers.manifest)
        column, names = classes[answers.astype(int) if per == BY_CLASS else rows.y], np.unique(classes)
    parts: tuple[tuple[str, Counts], ...] = ()
    if per is not None and column is not None:
        parts = tuple((str(name), _counts(marks & (column == name), rows.group)) for name in names)
    return replace(_counts(marks, rows.group), parts=parts)


def _names(manifest: Manifest) -> NDArray[np.str_]:
    """The texts of the classes, by number.

    Raises
    ------
    InputError
        There are too many for a promise of each.
    """
    if len(manifest.classes) > MAX_PARTS:
        raise InputError(f"{len(manifest.classes)} classes; a promise is made for {MAX_PARTS} parts at most")
    return np.array([str(label) for label in manifest.classes])


def _counts(marks: NDArray[np.bool_], group: NDArray[np.int64] | None) -> Counts:
    """The counts of (4, n) marks: answered locally, wrong, worse than f0, better than f0."""
    n = marks.shape[1]
    groups: tuple[Counts, ...] = ()
    if group is not None:
        numbers = np.unique(group, return_inverse=True)[1]
        sums = [np.bincount(numbers, weights=mark).astype(int).tolist() for mark in (np.ones(n), *marks)]
        groups = tuple(Counts(*of_group) for of_group in zip(*sums, strict=True))
    local, errors, worse, better = marks.sum(axis=1).tolist()
    return Counts(n, local, errors, worse, better, groups)
