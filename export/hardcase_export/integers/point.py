"""One point of a front as integers: its draft read and checked, quantised, aligned, and compared with itself.

No label is looked at here but to say what the figures are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import read_bundle_bytes, unpack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.program.definition import Forward, Polynomial, Program

from ..drafts.front import Point
from ..drafts.rows import Rows, read_rows
from .align import align, code_table
from .compress import shrink, sizes_of
from .decide import decisions
from .parity import Parity, parity
from .quantise import Quantised, quantise
from .uses import split

__all__ = ["Made", "make_integers", "read_draft", "to_integers"]

MAX_ROWS = 8_000  # that sizes are chosen on
PARTS = (0.5, 0.35, 0.25, 0.12, 0.06, 0.0)  # of the decisions that may change, how many sizes are chosen for
SAFE_PART = 0.6  # of them may change on rows that made no choice


@dataclass(frozen=True)
class Made:
    """A point's draft, its manifest, and the integers made of it; they were aligned on ``valid`` rows."""

    draft: Program
    manifest: Manifest
    quantised: Quantised
    valid: Rows
    test: Rows
    on_valid: Parity
    on_test: Parity


def make_integers(build: Path, point: Point, min_agreement: float, legacy: str) -> Made:
    """The point's program as it will be exported; always the same for the same build. ``legacy``: as ``Front`` has it.

    Raises
    ------
    InputError
        The draft or the rows cannot be used.
    BundleError
        The program decides as its draft on less than ``min_agreement`` of valid or of test rows, or cannot be proved.
    """
    draft, manifest = read_draft(build, point, legacy)
    valid, test = (read_rows(build / f"{name}.npz", manifest) for name in ("valid", "test"))
    made, on_valid = to_integers(draft, valid, min_agreement)
    measured = {"valid": on_valid, "test": _compare(draft, made.program, test)}
    _check_agreement(measured, min_agreement)
    return Made(draft, manifest, made, valid, test, on_valid, measured["test"])


# ---------------------------------------------------------------- reading


def read_draft(build: Path, point: Point, legacy: str) -> tuple[Program, Manifest]:
    """The point's program of floats, and its manifest with the HPC of the build named in it."""
    assert point.program is not None  # pick
    path = build / point.program
    if not path.resolve().is_relative_to(build.resolve()):
        raise InputError(f"draft {point.program} lies outside {build}; train again")
    draft = unpack_bundle(read_bundle_bytes(path), allow_draft=True)
    named = {**draft.manifest, "hpc": _name_hpc(draft.manifest.get("hpc"), build, draft.program, legacy)}
    return draft.program, Manifest.from_json(named, draft.program)


def _name_hpc(said: object, build: Path, program: Program, legacy: str) -> str:
    """What f0 is known by: SHA-256 of hpc.onnx or of a declaration; empty for a program that never forwards."""
    if not any(isinstance(node, Forward) for node in program.nodes):
        return ""
    path = build / "hpc.onnx"
    found = legacy or _sha256_of(path)
    if said not in ("", found):
        what = f"f0 in {build / 'front.json'}" if legacy else path
        raise InputError(f"{what} is not the HPC that the draft was trained with; train again")
    return found


def _sha256_of(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"the program forwards, but {path} cannot be read: {error.strerror}; train again") from error


# ---------------------------------------------------------------- floats to integers


def to_integers(draft: Program, rows: Rows, min_agreement: float) -> tuple[Quantised, Parity]:
    """The quantised program, aligned on these rows; 8-bit weights become 16 where agreement asks for it.

    Polynomials of products are made as small as agreement allows, and are left whole where nothing can be gained.
    """
    small = _small(draft, rows, min_agreement)
    if small is not None:
        return small
    made, found = _attempt(draft, rows, None)
    if found.agreement < min_agreement and any(isinstance(s, Polynomial) and s.weight_bits == 8 for s in draft.scorers):
        made, found = _attempt(draft, rows, 16)
    return made, found


def _attempt(draft: Program, rows: Rows, weight_bits: int | None) -> tuple[Quantised, Parity]:
    made = _aligned(draft, quantise(draft, weight_bits=weight_bits), rows)
    return made, _compare(draft, made.program, rows)


def _aligned(draft: Program, made: Quantised, rows: Rows) -> Quantised:
    return replace(made, program=align(draft, made.program, rows.X))


def _small(draft: Program, rows: Rows, min_agreement: float) -> tuple[Quantised, Parity] | None:
    """The smallest program that stays well within the difference allowed on rows that made no choice."""
    order = np.random.default_rng(0).permutation(len(rows.y))[:MAX_ROWS]
    seen, unseen = (_some(rows, part) for part in np.split(order, [3 * len(order) // 4]))
    parted = split(draft)
    if not any(isinstance(s, Polynomial) and s.terms and len(s.terms[0]) > 1 for s in parted.scorers) or not len(
        unseen.y
    ):
        return None
    traces = [d.trace for d in decisions(draft, seen.X, seen.hpc, seen.confidence)]
    sizes = sizes_of(parted, code_table(draft, seen.X), traces)
    share = 1 - min_agreement
    for part in PARTS:
        made = _aligned(draft, quantise(shrink(parted, sizes, part * share * len(traces))), seen)
        found = _compare(draft, made.program, unseen)
        if 1 - found.agreement <= SAFE_PART * share and 1 - found.labels <= SAFE_PART * share / 2:
            whole = _compare(draft, made.program, rows)
            return (made, whole) if whole.agreement >= min_agreement else None
    return None


def _some(rows: Rows, numbers: NDArray[np.int64]) -> Rows:
    """Some of the rows, by number."""
    hpc, confidence = (None if x is None else x[numbers] for x in (rows.hpc, rows.confidence))
    return Rows(rows.X[numbers], rows.y[numbers], hpc, confidence)


def _check_agreement(measured: dict[str, Parity], min_agreement: float) -> None:
    """Refuse a program that is not its draft. Test rows count too: on validation rows it was aligned."""
    for name, found in measured.items():
        if found.agreement < min_agreement:
            raise BundleError(
                f"the quantised program decides as its draft on {found.agreement:.2%} of {found.after.n} {name} rows "
                f"(labels {found.labels:.2%}), {min_agreement:.2%} is needed; pick another point or lower "
                "--min-agreement"
            )


def _compare(draft: Program, program: Program, rows: Rows) -> Parity:
    return parity(draft, program, rows.X, rows.y, rows.hpc, rows.confidence)
