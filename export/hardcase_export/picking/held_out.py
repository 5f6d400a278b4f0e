# SPDX-License-Identifier: Apache-2.0
"""Held-out rows that no choice has seen, and the errors that a build's quantised points make on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hardcase_edge.batch.quality import ACCURACY, Quality
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Forward
from hardcase_edge.session.session import CLOUD, Decision

from ..drafts.front import Point
from ..drafts.rows import Rows, file_sha256, group_name, read_rows
from ..drafts.streams import in_order
from ..integers.decide import decisions
from ..integers.point import IntegerPoint, make_integers, read_draft
from .risk_test import Counts

_Case = tuple[Decision, int, int]  # what was decided, the label, f0's label
__all__ = ["BuildTrial", "HeldOut", "check_unseen", "file_sha256", "read_held_out"]


@dataclass(frozen=True)
class HeldOut:
    """Labelled rows, the name of the file they come from, and its SHA-256 in hex."""

    rows: Rows
    name: str
    sha256: str

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


def check_unseen(held_out: HeldOut, build: Path, manifest: Manifest) -> None:
    """Refuse the table that the build was trained on, and the validation rows on which training chose.

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
    if held_out.sha256 in (trained_on, file_sha256(build / "valid.npz")):
        raise InputError(
            f"{held_out.name} holds rows that training has seen; name rows that it has not seen with --calibration"
        )


@dataclass(frozen=True)
class BuildTrial:
    """A ``risk_choice.Trial`` on the points of a build.

    It quantises a point once, when the point is first tested, and that same program is exported. ``legacy`` and
    ``quality``: as in the build's ``Front``, which calls the latter ``measure``.
    """

    build: Path
    held_out: HeldOut
    min_agreement: float
    legacy: str = ""
    quality: Quality = ACCURACY
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
        return any(isinstance(node, Forward) for node in read_draft(self.build, point, self.legacy)[0].nodes)

    def integers(self, point: Point) -> IntegerPoint:
        """The point quantised, as it will be exported."""
        assert point.program is not None
        if point.program not in self._integers:
            self._integers[point.program] = make_integers(
                self.build, point, self.min_agreement, self.legacy, self.quality
            )
        return self._integers[point.program]

    def counts(self, point: Point) -> Counts:
        """Errors of the quantised program on the rows, if all sensors work and the cloud replies."""
        assert point.program is not None
        if point.program not in self._counts:
            self._counts[point.program] = count(self.integers(point), self.held_out.rows)
        return self._counts[point.program]


def count(integers: IntegerPoint, rows: Rows) -> Counts:
    """Errors of a quantised program on these rows; every row that the cloud does not answer counts as local."""
    rows = in_order(integers.quantised.program, integers.manifest, rows)
    outcomes = decisions(integers.quantised.program, rows.X, rows.hpc, rows.confidence, sizes=rows.sizes)
    cases = list(zip(outcomes, rows.y.tolist(), rows.hpc.tolist(), strict=True))
    if rows.group is None:
        return _counts(cases)
    groups: dict[int, list[_Case]] = {}
    for name, case in zip(rows.group.tolist(), cases, strict=True):
        groups.setdefault(name, []).append(case)
    return replace(_counts(cases), groups=tuple(_counts(of_group) for of_group in groups.values()))


def _counts(cases: list[_Case]) -> Counts:
    local = [(d.result == y, f0 == y) for d, y, f0 in cases if d.route != CLOUD]
    return Counts(
        rows=len(cases),
        local=len(local),
        errors=sum(not right for right, _ in local),
        worse=sum(not right and f0 for right, f0 in local),
        better=sum(right and not f0 for right, f0 in local),
    )
