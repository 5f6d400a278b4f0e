"""From a build folder to a bundle: pick, quantise, verify, compare, make golden cases, sign, write whole.

Everything is computed and checked in memory first; a file is touched only when nothing can fail any more but the disk.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardcase_edge.bundle import Bundle, pack_bundle, read_bundle_bytes, unpack_bundle
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.files import write_whole
from hardcase_edge.load import MAX_KEY_BYTES, load_bytes
from hardcase_edge.manifest import Manifest
from hardcase_edge.program import Answer, Forward, Polynomial, Program
from hardcase_edge.signature import sign, signature_path
from hardcase_edge.verifier import Report

from .align import align
from .front import HPC_METHOD, Front, Point, pick, read_front
from .goldens import make_golden
from .parity import Parity, parity
from .quantise import Quantised, quantise
from .tables import Rows, read_rows

__all__ = ["MIN_AGREEMENT", "Exported", "export_bundle", "export_point"]

logger = logging.getLogger(__name__)

MIN_AGREEMENT = 0.999


@dataclass(frozen=True)
class Exported:
    """What was written and how it compares with its draft."""

    path: Path
    sha256: str
    n_bytes: int
    is_signed: bool
    n_golden: int
    unit: str
    point: Point
    report: Report
    valid: Parity
    test: Parity


def export_bundle(
    build: str | Path,
    out: str | Path,
    *,
    max_loss: float | None = None,
    budget: float | None = None,
    key: str | Path | None = None,
    method: str | None = None,
    min_agreement: float = MIN_AGREEMENT,
    seed: int = 0,
) -> Exported:
    """Write the bundle of one point of a build's front; the same build always gives the same bytes.

    Parameters
    ----------
    build : the folder that ``hardcase train`` wrote
    out : path of the bundle; its signature goes beside it, and an older one that no longer fits is removed
    max_loss, budget, method : which point, as for ``front.pick``; validation figures alone decide
    key : path of a private key, or None for a bundle without a signature
    min_agreement : share of validation rows, and of test rows, on which it must decide exactly as its draft; no
        label is looked at for it
    seed : of the choice of golden cases

    Raises
    ------
    InputError
        The build cannot be used, or nothing in it fits what was asked for.
    BundleError
        The program differs from its draft on too many rows, or cannot be proved.
    """
    front = read_front(Path(build) / "front.json")
    point = pick(front, max_loss=max_loss, budget=budget, method=method)
    return export_point(build, front, point, out, key=key, min_agreement=min_agreement, seed=seed)


def export_point(
    build: str | Path,
    front: Front,
    point: Point,
    out: str | Path,
    *,
    key: str | Path | None = None,
    min_agreement: float = MIN_AGREEMENT,
    seed: int = 0,
) -> Exported:
    """As ``export_bundle``, for a point of the build's front that is already picked."""
    build, out = Path(build), Path(out)
    if not 0 <= min_agreement <= 1:
        raise InputError(f"--min-agreement is {min_agreement}, a share from 0 to 1 is expected")
    private = None if key is None else _read_key(Path(key))
    draft, manifest = _read_draft(build, point, front.legacy)
    valid, test = (read_rows(build / f"{name}.npz", manifest) for name in ("valid", "test"))
    made, on_valid = _integers(draft, valid, min_agreement)
    measured = {"valid": on_valid, "test": _compare(draft, made.program, test)}
    _check_agreement(measured, min_agreement)
    manifest = _finish(manifest, front, point, made, measured)
    golden = make_golden(made.program, valid.X, valid.hpc, valid.confidence, seed)
    data = pack_bundle(Bundle(manifest.to_json(), made.program, golden))
    loaded = load_bytes(data)  # what a device does
    _write(out, data, None if private is None else sign(data, private))
    return Exported(
        path=out,
        sha256=loaded.bundle.sha256,
        n_bytes=len(data),
        is_signed=private is not None,
        n_golden=len(golden),
        unit=manifest.unit,
        point=point,
        report=loaded.report,
        valid=measured["valid"],
        test=measured["test"],
    )


# ---------------------------------------------------------------- reading


def _read_key(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise InputError(f"signing key {path} cannot be read: {error.strerror}; make one with hardcase keygen") from (
            error
        )


def _read_draft(build: Path, point: Point, legacy: str) -> tuple[Program, Manifest]:
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


# ---------------------------------------------------------------- the manifest


def _finish(manifest: Manifest, front: Front, point: Point, made: Quantised, measured: dict[str, Parity]) -> Manifest:
    """The draft's manifest with what was measured, and how it came about."""
    if manifest.unit != front.unit:
        raise InputError(f"the draft counts in {manifest.unit!r}, front.json in {front.unit!r}; train again")
    claims: dict[str, Any] = {name: p.after.to_json() for name, p in measured.items()}
    claims["agreement"] = {name: p.agreement for name, p in measured.items()}
    claims["hpc"] = {
        name: getattr(p, name).accuracy for p in front.points if p.method == HPC_METHOD for name in ("valid", "test")
    }
    trained = {"method": point.method, "params": point.params, **manifest.trained}
    scales = _value_scales(made)
    if scales:
        trained["scales"] = scales
    return replace(manifest, claims=claims, trained=trained)


def _value_scales(made: Quantised) -> dict[str, float]:
    """Steps to a unit of every scorer that answers values; a class needs none."""
    used = {n.scores.scorer for n in made.program.nodes if isinstance(n, Answer) and n.kind == "value"}
    return {str(k): made.scales[k] for k in sorted(used)}


# ---------------------------------------------------------------- writing


def _write(out: Path, data: bytes, signature: bytes | None) -> None:
    """The bundle, then its signature: a crash between them leaves a bundle that a device with a key refuses."""
    write_whole(out, data)
    beside = signature_path(out)
    if signature is not None:
        write_whole(beside, signature)
        return
    try:
        beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"the old signature {beside} cannot be removed: {error.strerror}") from error
