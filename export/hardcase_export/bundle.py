"""From a build folder to a bundle: pick, quantise, verify, compare, make golden cases, sign, write whole.

Everything is computed and checked in memory first; a file is touched only when nothing can fail any more but the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.signature import sign
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Answer, Program
from hardcase_edge.program.encode import encode
from hardcase_edge.verifier.verify import Report

from .drafts.front import HPC_METHOD, Front, Point, read_front
from .integers.compress import n_weights
from .integers.golden_cases import make_golden
from .integers.parity import Parity
from .integers.point import Made, make_integers, read_draft
from .integers.quantise import Quantised, quantise
from .picking.held_out import BuildTrial, HeldOut, check_unseen, read_held_out
from .picking.pick import ONE_WISH, candidates, pick
from .picking.risk_choice import Terms, choose
from .publish import read_key, write_signed

__all__ = ["MIN_AGREEMENT", "Exported", "Weights", "export_bundle", "export_point"]

logger = logging.getLogger(__name__)

MIN_AGREEMENT = 0.999


@dataclass(frozen=True)
class Exported:
    """What was written and how it compares with its draft; ``path`` None where no bundle was asked for."""

    path: Path | None
    sha256: str
    n_bytes: int
    is_signed: bool
    n_golden: int
    unit: str
    point: Point
    report: Report
    valid: Parity
    test: Parity
    promise: dict[str, Any] | None = None  # as in the manifest's claims
    weights: Weights | None = None  # of a program with polynomials


@dataclass(frozen=True)
class Weights:
    """Of polynomials, weights that are not 0, as trained and as written; and the bundle's bytes if all were written."""

    before: int
    after: int
    bytes_before: int


def export_bundle(
    build: str | Path,
    out: str | Path | None,
    *,
    max_loss: float | None = None,
    budget: float | None = None,
    key: str | Path | None = None,
    method: str | None = None,
    min_agreement: float = MIN_AGREEMENT,
    seed: int = 0,
    terms: Terms | None = None,
    held_out: HeldOut | None = None,
    beside: Callable[[Front, Made], None] | None = None,
) -> Exported:
    """Write the bundle of one point of a build's front; the same build always gives the same bytes.

    Parameters
    ----------
    build : the folder that ``hardcase train`` wrote
    out : path of the bundle; its signature goes beside it, and an older one that no longer fits is removed. None:
        all is made and checked, and no bundle written
    max_loss, budget, method : which point, as for ``front.pick``; validation figures alone decide
    key : path of a private key, or None for a bundle without a signature
    min_agreement : share of validation rows, and of test rows, on which it must decide exactly as its draft; no
        label is looked at for it
    seed : of the choice of golden cases
    terms : or: the cheapest point that can be promised this on ``held_out`` rows; the manifest's claims say so
    held_out : rows that training has not seen; None for the build's own calibration rows
    beside : called when the bundle has passed everything, before a byte of it is written: what else is made of it

    Raises
    ------
    InputError
        The build cannot be used, or nothing in it fits what was asked for.
    BundleError
        The program differs from its draft on too many rows, or cannot be proved.
    """
    build, out = Path(build), None if out is None else Path(out)
    private = _check(key, min_agreement)
    front = read_front(build / "front.json")
    if terms is None:
        point = pick(front, max_loss=max_loss, budget=budget, method=method)
        made = make_integers(build, point, min_agreement, front.legacy)
        return _export(front, point, made, out, private, seed, {}, beside)
    if (max_loss, budget) != (None, None):
        raise InputError(ONE_WISH)
    points = candidates(front, method)
    manifest = read_draft(build, points[0], front.legacy)[1]
    held_out = read_held_out(build, manifest) if held_out is None else held_out
    check_unseen(held_out, build, manifest)
    trial = BuildTrial(build, held_out, min_agreement, front.legacy)
    point, promise = choose(points, terms, trial)
    said = {**promise.to_json(), "rows": held_out.to_json()}
    return _export(front, point, trial.made(point), out, private, seed, {"promise": said}, beside)


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
    private = _check(key, min_agreement)
    made = make_integers(Path(build), point, min_agreement, front.legacy)
    return _export(front, point, made, Path(out), private, seed, {})


def _check(key: str | Path | None, min_agreement: float) -> bytes | None:
    """The private key; both arguments are checked before any work."""
    if not 0 <= min_agreement <= 1:
        raise InputError(f"--min-agreement is {min_agreement}, a share from 0 to 1 is expected")
    return None if key is None else read_key(Path(key))


def _export(
    front: Front,
    point: Point,
    made: Made,
    out: Path | None,
    private: bytes | None,
    seed: int,
    claims: dict[str, Any],
    beside: Callable[[Front, Made], None] | None = None,
) -> Exported:
    program, valid = made.quantised.program, made.valid
    manifest = _finish(front, point, made, claims)
    golden = make_golden(program, valid.X, valid.hpc, valid.confidence, seed)
    data = pack_bundle(Bundle(manifest.to_json(), program, golden))
    loaded = load_bytes(data)  # what a device does
    if beside is not None:
        beside(front, made)
    if out is not None:
        write_signed(out, data, None if private is None else sign(data, private))
    return Exported(
        path=out,
        sha256=loaded.bundle.sha256,
        n_bytes=len(data),
        is_signed=private is not None,
        n_golden=len(golden),
        unit=manifest.unit,
        point=point,
        report=loaded.report,
        valid=made.on_valid,
        test=made.on_test,
        promise=claims.get("promise"),
        weights=_weights(made.draft, program, len(data)),
    )


def _n_bytes(program: Program) -> int:
    return sum(len(values) * values.itemsize for values in encode(program).values())


def _weights(draft: Program, program: Program, n_bytes: int) -> Weights | None:
    if not n_weights(draft):
        return None
    whole = _n_bytes(quantise(draft).program) - _n_bytes(program)
    return Weights(n_weights(draft), n_weights(program), n_bytes + whole)


# ---------------------------------------------------------------- reading


# ---------------------------------------------------------------- the manifest


def _finish(front: Front, point: Point, made: Made, promised: dict[str, Any]) -> Manifest:
    """The draft's manifest with what was measured and promised, and how it came about."""
    manifest, measured = made.manifest, {"valid": made.on_valid, "test": made.on_test}
    if manifest.unit != front.unit:
        raise InputError(f"the draft counts in {manifest.unit!r}, front.json in {front.unit!r}; train again")
    claims: dict[str, Any] = {name: p.after.to_json() for name, p in measured.items()} | promised
    claims["quality"] = front.quality
    claims["agreement"] = {name: p.agreement for name, p in measured.items()}
    claims["hpc"] = {
        name: getattr(p, name).quality for p in front.points if p.method == HPC_METHOD for name in ("valid", "test")
    }
    trained = {"method": point.method, "params": point.params, **manifest.trained}
    scales = _value_scales(made.quantised)
    if scales:
        trained["scales"] = scales
    return replace(manifest, claims=claims, trained=trained)


def _value_scales(made: Quantised) -> dict[str, float]:
    """Steps to a unit of every scorer that answers values; a class needs none."""
    used = {n.scores.scorer for n in made.program.nodes if isinstance(n, Answer) and n.kind == "value"}
    return {str(k): made.scales[k] for k in sorted(used)}


# ---------------------------------------------------------------- writing
