"""One point of a front as integers: its draft read and checked, quantised, aligned, and compared with itself.

No label is looked at here but to say what the figures are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from hardcase_edge.bundle import read_bundle_bytes, unpack_bundle
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.manifest import Manifest
from hardcase_edge.program import Forward, Polynomial, Program

from .align import align
from .front import Point
from .parity import Parity, parity
from .quantise import Quantised, quantise
from .tables import Rows, read_rows

__all__ = ["Made", "make_integers", "read_draft"]


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
    made, on_valid = _integers(draft, valid, min_agreement)
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


def _integers(draft: Program, rows: Rows, min_agreement: float) -> tuple[Quantised, Parity]:
    """The quantised program, aligned on these rows; 8-bit weights become 16 where agreement asks for it."""
    made, found = _attempt(draft, rows, None)
    if found.agreement < min_agreement and any(isinstance(s, Polynomial) and s.weight_bits == 8 for s in draft.scorers):
        made, found = _attempt(draft, rows, 16)
    return made, found


def _attempt(draft: Program, rows: Rows, weight_bits: int | None) -> tuple[Quantised, Parity]:
    made = quantise(draft, weight_bits=weight_bits)
    made = replace(made, program=align(draft, made.program, rows.X))
    return made, _compare(draft, made.program, rows)


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
