# SPDX-License-Identifier: Apache-2.0
"""Points of a build in integers: each one's draft checked, quantised, calibrated and compared with the result, once.

Labels are used here only to compute figures, never to choose.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import unpack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import Intervals, Offsets, steps_for
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.more.batch.quality import ACCURACY, Quality
from hardcase_edge.program.definition import Forward, Polynomial, Program, Stack
from hardcase_edge.session.actions import DEGRADED, Decision

from ..drafts.files import read_draft_bytes
from ..drafts.front import Front, Point, read_front
from ..drafts.rows import Rows, file_sha256, in_order, read_rows
from ..drafts.stacks import smaller
from .align import align, code_table
from .compress import shrink, sizes_of
from .decide import decisions
from .parity import Parity, parity, with_program
from .quantise import Quantised, check_shape, quantise
from .uses import split

FRONT = "front.json"
MAX_ROWS = 8_000  # on which the sizes of polynomials are chosen
SHARES = (0.5, 0.35, 0.25, 0.12, 0.06, 0.0)  # of the decisions that may change, tried as the target of compression
SAFE_SHARE = 0.6  # of the decisions that may change, tolerated on rows that were not used to choose
TAIL = 0.05  # of the truths, that may lie below the lower offset, and above the upper one
MIN_ROWS = 30  # that end at a node, for offsets of its own
DIGITS = 6  # of an offset that are kept, rounded away from the value
Array = NDArray[np.float64]
Residual = tuple[float, float, int]  # truth - value, weight and group of a row


class AgreementError(BundleError):
    """The integers of this point decide otherwise than its floats on too many rows; another point may do."""


@dataclass(frozen=True)
class IntegerPoint:
    """A point's draft and manifest, and its quantised program, whose thresholds were aligned on ``valid`` rows.

    ``intervals``: of values, as measured on the build's calibration rows; empty without them. ``atypical``: the nodes
    that compare the score of atypical cases with a threshold.
    """

    draft: Program
    manifest: Manifest
    quantised: Quantised
    valid: Rows
    test: Rows
    on_valid: Parity
    on_test: Parity
    intervals: Intervals
    atypical: tuple[int, ...] = ()


class Build:
    """A build folder with its front: what exports and reports of one process read and make of it, once.

    Parameters
    ----------
    folder : as ``hardcase train`` wrote it
    front : of the folder, if it is in memory already; None: front.json is read

    Raises
    ------
    InputError
        front.json cannot be read.
    """

    def __init__(self, folder: str | Path, front: Front | None = None) -> None:
        self.folder = Path(folder)
        self.front = read_front(self.folder / FRONT) if front is None else front
        self._written = self._when_written()
        self._made: dict[tuple[str | None, float], IntegerPoint] = {}

    def moved(self, folder: Path) -> Build:
        """This build, in the folder that its own has become."""
        self.folder = folder
        return self

    def _when_written(self) -> tuple[int, int] | None:
        path = self.folder / FRONT
        return (path.stat().st_ino, path.stat().st_mtime_ns) if path.is_file() else None

    def check_unchanged(self) -> None:
        """Refuse a folder whose front was written anew: its drafts are then of other points.

        Raises
        ------
        InputError
            It was.
        """
        if self._written != self._when_written():
            raise InputError(f"{self.folder} was written anew since its front was read; open it again")

    def draft(self, point: Point) -> tuple[Program, Manifest]:
        """The point's draft, and its manifest, which names the HPC of the build; errors as for ``integers``."""
        assert point.program is not None  # ``pick`` never returns f0 itself
        build, legacy = self.folder, self.front.legacy
        path = build / point.program
        if not path.resolve().is_relative_to(build.resolve()):
            raise InputError(f"draft {point.program} lies outside {build}; train again")
        draft = unpack_bundle(read_draft_bytes(path), allow_draft=True)
        named = {**draft.manifest, "hpc": _name_hpc(draft.manifest.get("hpc"), build, draft.program, legacy)}
        return draft.program, Manifest.from_json(named, draft.program)

    def integers(self, point: Point, min_agreement: float) -> IntegerPoint:
        """The point quantised as it will be exported; the same build always gives the same program.

        Parameters
        ----------
        min_agreement : share of the validation rows, and of the test rows, that the program must decide as its draft

        Raises
        ------
        InputError
            The draft or the rows cannot be used.
        BundleError
            The program agrees with its draft on fewer rows, or the verifier cannot prove it safe.
        """
        key = point.program, min_agreement
        if key not in self._made:
            draft, manifest = self.draft(point)
            quality = self.front.measure
            if not quality.fits(draft.n_classes):
                name = quality.name[:60]
                raise InputError(f"{self.folder / FRONT}: the quality measure {name!r} is not one of its drafts")
            valid, test = (read_rows(self.folder / f"{name}.npz", manifest) for name in ("valid", "test"))
            rows = self.calibration(manifest)
            self._made[key] = make_integers(draft, manifest, valid, test, min_agreement, quality, rows)
        return self._made[key]

    def calibration(self, manifest: Manifest) -> Rows | None:
        """The rows on which intervals of values are measured; None of classes, or if the split sets none aside."""
        path = self.folder / "calibration.npz"
        return None if manifest.classes or not path.is_file() else read_rows(path, manifest)


def make_integers(
    draft: Program,
    manifest: Manifest,
    valid: Rows,
    test: Rows,
    min_agreement: float,
    quality: Quality = ACCURACY,
    calibration: Rows | None = None,
) -> IntegerPoint:
    """A draft quantised, aligned on the valid rows, and compared on both; errors as for ``Build.integers``.

    ``calibration``: rows on which intervals of values are measured.
    """
    if any(isinstance(s, Stack) for s in draft.scorers):
        check_shape(draft)
        draft = smaller(draft)
    valid, test = (in_order(draft, manifest, rows) for rows in (valid, test))
    steps = None if draft.n_classes else _steps(manifest, valid)
    quantised, on_valid = to_integers(draft, valid, min_agreement, quality, steps)
    measured = {"valid": on_valid, "test": _compare(draft, quantised, test, quality)}
    _check_agreement(measured, min_agreement)
    intervals = {} if calibration is None else measure_intervals(quantised, calibration)
    return IntegerPoint(draft, manifest, quantised, valid, test, on_valid, measured["test"], intervals)


def remeasured(point: IntegerPoint, quality: Quality = ACCURACY) -> IntegerPoint:
    """The point with the figures of the program that it has now."""
    program, steps = point.quantised.program, point.quantised.steps
    on_valid = with_program(point.on_valid, program, point.valid, quality, steps=steps)
    return replace(
        point, on_valid=on_valid, on_test=with_program(point.on_test, program, point.test, quality, steps=steps)
    )


def _steps(manifest: Manifest, valid: Rows) -> int:
    """The scale that f0's file states, as the draft's manifest has it; else the finest for the rows' values."""
    if manifest.value is not None:
        return manifest.value.steps
    return steps_for(float(max(np.abs(valid.y).max(), np.abs(valid.hpc).max())))


# ---------------------------------------------------------------- reading


def _name_hpc(named: object, build: Path, program: Program, legacy: str) -> str:
    """SHA-256 that identifies f0, of hpc.onnx or of a declaration; empty for a program that never forwards."""
    if not any(isinstance(node, Forward) for node in program.nodes):
        return ""
    path = build / "hpc.onnx"
    sha256 = legacy or file_sha256(path, "train again, because the program forwards to this f0")
    if named not in ("", sha256):
        what = f"f0 in {build / 'front.json'}" if legacy else path
        raise InputError(f"{what} is not the HPC that the draft was trained with; train again")
    return sha256


# ---------------------------------------------------------------- floats to integers


def to_integers(
    draft: Program, rows: Rows, min_agreement: float, quality: Quality = ACCURACY, steps: int | None = None
) -> tuple[Quantised, Parity]:
    """The quantised program, its thresholds aligned on these rows, and its parity with the draft there.

    ``steps``: of a program of values, as for ``quantise.quantise``.

    Polynomials of products are compressed as far as ``min_agreement`` allows and the rows can show. If they cannot be
    compressed, 8-bit weights become 16-bit weights if the agreement needs it.
    """
    quantised = _compressed(draft, rows, min_agreement)
    if quantised is not None:
        return quantised, _compare(draft, quantised, rows, quality)
    quantised, comparison = _attempt(draft, rows, None, quality, steps)
    has_8_bits = any(isinstance(s, Polynomial) and s.weight_bits == 8 for s in draft.scorers)
    if comparison.agreement < min_agreement and has_8_bits:
        quantised, comparison = _attempt(draft, rows, 16, quality, steps)
    return quantised, comparison


def _attempt(
    draft: Program, rows: Rows, weight_bits: int | None, quality: Quality, steps: int | None
) -> tuple[Quantised, Parity]:
    quantised = _aligned(draft, quantise(draft, weight_bits=weight_bits, steps=steps), rows)
    return quantised, _compare(draft, quantised, rows, quality)


def _aligned(draft: Program, quantised: Quantised, rows: Rows) -> Quantised:
    return replace(quantised, program=align(draft, quantised.program, rows.X))


def _compressed(draft: Program, rows: Rows, min_agreement: float) -> Quantised | None:
    """The smallest program that changes clearly fewer decisions than allowed on rows not used to choose its sizes.

    None if there is none, or if the program answers values.
    """
    if not draft.n_classes:
        return None
    order = np.random.default_rng(0).permutation(len(rows.y))[:MAX_ROWS]
    seen, unseen = (_some(rows, numbers) for numbers in np.split(order, [3 * len(order) // 4]))
    parted = split(draft)
    if not any(isinstance(s, Polynomial) and s.terms and len(s.terms[0]) > 1 for s in parted.scorers) or not len(
        unseen.y
    ):
        return None
    traces = [d.trace for d in decisions(draft, seen.X, seen.hpc, seen.confidence, sizes=seen.sizes)]
    sizes = sizes_of(parted, code_table(draft, seen.X), traces)
    allowed = 1 - min_agreement
    if not _is_shown(0, len(unseen.y), allowed):
        return None
    for share in SHARES:
        quantised = _aligned(draft, quantise(shrink(parted, sizes, share * allowed * len(traces))), seen)
        on_unseen = _compare(draft, quantised, unseen)
        is_safe = 1 - on_unseen.agreement <= SAFE_SHARE * allowed and 1 - on_unseen.labels <= SAFE_SHARE * allowed / 2
        if is_safe and _is_shown(1 - on_unseen.agreement, len(unseen.y), allowed):
            on_all = _compare(draft, quantised, rows)
            return quantised if on_all.agreement >= min_agreement else None
    return None


def _is_shown(changed: float, n: int, allowed: float) -> bool:
    """Whether n unseen rows show that a share ``allowed`` of decisions is not passed: one more, and its error, fit."""
    k = changed * n + 1
    return k + math.sqrt(k) <= allowed * n + 1e-9


def _some(rows: Rows, numbers: NDArray[np.int64]) -> Rows:
    """Some of the rows, by number."""
    sizes = None if rows.sizes is None else rows.sizes[numbers]
    hpc, confidence = (None if x is None else x[numbers] for x in (rows.hpc, rows.confidence))
    return Rows(rows.X[numbers], rows.y[numbers], hpc, confidence, sizes=sizes)


def _check_agreement(measured: dict[str, Parity], min_agreement: float) -> None:
    """Refuse a program that differs from its draft. Test rows count too, as it was aligned on validation rows."""
    for name, comparison in measured.items():
        if comparison.agreement < min_agreement:
            raise AgreementError(
                f"the quantised program decides as its draft on {comparison.agreement:.2%} of {comparison.after.n} "
                f"{name} rows (labels {comparison.labels:.2%}), but {min_agreement:.2%} must agree; pick another point "
                "or lower --min-agreement"
            )


def _compare(draft: Program, quantised: Quantised, rows: Rows, quality: Quality = ACCURACY) -> Parity:
    row_arrays = (rows.X, rows.y, rows.hpc, rows.confidence, quality)
    return parity(draft, quantised.program, *row_arrays, steps=quantised.steps, group=rows.group, sizes=rows.sizes)


# Intervals of values: the offsets between which nine in ten truths lie, on rows that no choice has seen.
#
# Split conformal prediction with signed residuals, by the node where a decision ends: Vovk, Gammerman and Shafer
# (2005), "Algorithmic learning in a random world" (Mondrian predictors); Linusson, Johansson and Lofstrom (2014),
# "Signed-error conformal regression". If the cases of a device are exchangeable with these rows, the truth lies
# between value + low and value + high with a probability of at least 90 %.


def measure_intervals(quantised: Quantised, rows: Rows) -> Intervals:
    """The offsets of each node at which these rows end, answered and degraded.

    The program decides with the cloud, for routes local and cloud, and without: once with a cloud that is silent, once
    with one that is out of reach, because a Forward buys sensors only in the first. Degraded offsets cover both. A node
    at which fewer than 30 rows end takes the offsets of all rows with the same route in the same trial; it has none if
    they are fewer than 30, too.

    Parameters
    ----------
    quantised : a program of values
    rows : labelled rows that neither training nor the choice of a program has seen
    """
    program, steps = quantised.program, quantised.steps
    answered = decisions(program, rows.X, rows.hpc, rows.confidence, steps=steps, sizes=rows.sizes)
    ends = {(node, False): offsets for node, offsets in _by_node(answered, rows).items()}
    if any(isinstance(node, Forward) for node in program.nodes):
        for cloud in (False, True):
            silent = decisions(program, rows.X, None, steps=steps, cloud=cloud, sizes=rows.sizes)
            for node, (low, high) in _by_node(silent, rows, DEGRADED).items():
                bounds = ends.get((node, True), (low, high))
                ends[node, True] = min(low, bounds[0]), max(high, bounds[1])
    return {node: (ends.get((node, False)), ends.get((node, True))) for node in sorted({node for node, _ in ends})}


def _by_node(trial: Sequence[Decision], rows: Rows, only: str | None = None) -> dict[int, Offsets]:
    """The offsets of each node at which rows end; ``only``: those of one route."""
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    group = np.arange(len(rows.y)) if rows.group is None else rows.group
    residuals: dict[str, dict[int, list[Residual]]] = defaultdict(lambda: defaultdict(list))
    for d, truth, w, g in zip(trial, rows.y.tolist(), weight.tolist(), group.tolist(), strict=True):
        if not d.failed and w > 0 and only in (None, d.route):
            residuals[d.route][d.trace[-1]].append((truth - d.result, w, g))
    out = {}
    for by_node in residuals.values():
        every = [pair for pairs in by_node.values() for pair in pairs]
        for node, pairs in by_node.items():
            offsets = _offsets(pairs if len(pairs) >= MIN_ROWS else every)
            if offsets is not None:
                out[node] = offsets
    return out


def _offsets(found: Sequence[Residual]) -> Offsets | None:
    """The offsets that leave out at most ``TAIL`` on either side; None for too few rows or groups.

    Among n rows of equal weight the upper one is the residual of rank ceil(0.95 (n + 1)): a case that is yet to come
    may lie anywhere, and weighs as much as the heaviest row. If rows come in groups it weighs as much as the heaviest
    group, because it comes from another one, whose cases may all lie there; so 19 groups are needed at least.
    """
    if len(found) < MIN_ROWS:
        return None
    residuals, weight, group = (np.array(values) for values in zip(*found, strict=True))
    to_come = float(np.bincount(np.unique(group, return_inverse=True)[1], weights=weight).max())
    low, high = -_upper(-residuals, weight, to_come), _upper(residuals, weight, to_come)
    return (_away(low, -1), _away(high, 1)) if np.isfinite([low, high]).all() else None


def _upper(residuals: Array, weight: Array, to_come: float) -> float:
    """The least residual up to which 1 - ``TAIL`` of all weight lies; infinite if there is none."""
    order = np.argsort(residuals, kind="stable")
    needed = (1 - TAIL) * (weight.sum() + to_come) * (1 - 1e-12)
    reached = np.flatnonzero(np.cumsum(weight[order]) >= needed)
    return float(residuals[order][reached[0]]) if len(reached) else np.inf


def _away(offset: float, sign: int) -> float:
    """The offset with few digits, and at least as far to this side."""
    if offset == 0:
        return 0.0
    step = 10.0 ** (np.floor(np.log10(abs(offset))) + 1 - DIGITS)
    rounded = float(f"{sign * np.ceil(sign * offset / step) * step:.{DIGITS}g}")
    return rounded if sign * rounded >= sign * offset else offset
