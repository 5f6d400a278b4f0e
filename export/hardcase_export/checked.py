# SPDX-License-Identifier: Apache-2.0
"""One line to every bundle: what an export asks for, the point that its kind made, and the checked bundle of it.

``Asked`` goes in, the kind of the build (``bundle.py`` for single decisions, ``joint/point.py`` for items of several
parts) gives ``Made``, and that, signed, is ``Checked``: a report, and bytes that are still to be written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.bundle.manifest import Label
from hardcase_edge.bundle.signature import sign
from hardcase_edge.joint.prove import JointReport
from hardcase_edge.more.fronts.front import HPC_METHOD
from hardcase_edge.more.fronts.pick import Mix, Nearest
from hardcase_edge.program.definition import Program

from .drafts.costs import Origins
from .drafts.front import Front, Point
from .integers.parity import Parity
from .picking.held_out import HeldOut
from .picking.optimism import Selection
from .picking.risk_choice import RiskTerms
from .publish import Published, write_pair
from .targets import Built, Source


@dataclass(frozen=True, kw_only=True)
class Exported(Published):
    """The bundle of one point of a front.

    ``measure`` is the name of what quality measures. ``f0`` is f0's point of the front, None if there is none.
    ``said``: what ``hardcase export --json`` prints of it, warnings and the cuts of its cost among it; empty if nobody
    asked.
    """

    unit: str
    measure: str
    classes: tuple[Label, ...]
    f0: Point | None
    point: Point
    said: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExportedCases(Exported):
    """Of single decisions: how the program compares with the draft.

    ``target_unit`` is that of values, None of classes, and ``intervals`` counts the nodes whose values have one.
    ``promise`` is as in the manifest's claims. ``weights`` is None
    for a program without polynomials. ``selection`` says what the choice of its sensors does to its figure on judged
    rows. ``nearest`` is what decides something itself, where f0 was picked for every case. ``mix`` is what a coin
    mixes, and ``single`` why it mixes nothing although that was asked for; empty if it was not. ``program`` is what was
    written, ``sensors`` names its sensors, and ``costs`` says where their costs are from, None if the build does not.
    """

    target_unit: str | None
    intervals: int
    valid: Parity
    test: Parity
    selection: Selection
    nearest: Nearest | None = None
    promise: dict[str, Any] | None = None
    weights: Weights | None = None
    passed_over: int = 0  # points that fit the wish better, whose integers decide otherwise than their floats
    mix: Mix[Point] | None = None
    single: str = ""
    program: Program
    sensors: tuple[str, ...]
    costs: Origins | None


@dataclass(frozen=True, kw_only=True)
class ExportedItems(Exported):
    """Of items of several parts, whose points are bundles already: what is proved of an item.

    ``agreement`` is the share of held-out parts that the integers decide as the floats. ``max_parts``: longer items are
    refused.
    """

    agreement: float
    items: JointReport
    max_parts: int


@dataclass(frozen=True)
class Weights:
    """Effect of the compression of polynomials: weights that are not 0, before and after.

    ``bytes_before``: length of the bundle if every weight had been written.
    """

    before: int
    after: int
    bytes_before: int


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What ``bundle.make_bundle`` is asked for, by the names of its arguments; ``wish`` is that of ``pick``."""

    wish: dict[str, Any]
    min_agreement: float | None
    seed: int
    terms: RiskTerms | None
    held_out: HeldOut | None
    monitors: bool
    prices: bool
    mix: bool
    atypical: float | None
    allow_constant: bool


@dataclass(frozen=True)
class Made:
    """The bundle of a point, as a device has loaded it; ``report`` takes what every kind has, and knows the rest."""

    point: Point
    data: bytes
    loaded: Loaded
    report: Callable[..., Exported]
    built: Built | None = None

    def signed(self, front: Front, key: bytes | None) -> Checked:
        """The checked bundle of this point of the front; ``key``: a private key, None for no signature."""
        bundle, manifest = self.loaded.bundle, self.loaded.manifest
        signature = None if key is None else sign(self.data, key)
        exported = self.report(
            path=None, sha256=bundle.sha256, n_bytes=len(self.data), is_signed=signature is not None,
            n_golden=len(bundle.golden if bundle.joint is None else bundle.items), report=self.loaded.report,
            unit=front.unit, measure=front.quality, classes=manifest.classes,
            f0=next((p for p in front.points if p.method == HPC_METHOD), None), point=self.point,
        )  # fmt: skip
        return Checked(exported, Source(self.data, self.loaded, signature, self.built))


@dataclass(frozen=True)
class Checked:
    """A bundle that has passed every check and is not written yet: the report of it, and what targets are made from."""

    exported: Exported
    source: Source

    def write(self, out: Path) -> Exported:
        """Write the bundle, with its signature beside it; the report with this path.

        An older signature that no longer fits is removed.

        Raises
        ------
        InputError
            A file cannot be written.
        """
        write_pair(out, self.source.data, self.source.signature)
        return replace(self.exported, path=out)
