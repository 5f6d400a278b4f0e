"""Bring your own model: from a file or a live estimator to a bundle, compared with its source before a byte is written.

``read_model`` knows the kinds of models, ``imported`` makes scorers of one, ``import_model`` a bundle.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.signature import sign
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.verifier.verify import Report

from .importing.parts import LEAVES, Imported, import_parts
from .importing.sensor_layout import Layout, make_layout
from .integers.golden_cases import make_golden
from .publish import read_key, write_signed
from .sources.source import CLASS, Source, read_bytes

__all__ = ["LEAVES", "Brought", "Imported", "Rows", "import_model", "import_parts", "read_model"]

MIN_AGREEMENT = {"trees": 1.0, "linear": 0.999}
GOLDEN_ROWS = 64

Rows = tuple[tuple[str, ...], NDArray[np.float64]]  # names of columns, (n, n_columns)


@dataclass(frozen=True, slots=True)
class Brought:
    """What was written."""

    path: Path
    sha256: str
    n_bytes: int
    is_signed: bool
    n_golden: int
    report: Report
    imported: Imported


def read_model(model: Any) -> Source:
    """The source model of a path (.onnx, .skops, or LightGBM's text) or of a live estimator.

    Raises
    ------
    InputError
        It is of no known kind, cannot be read, or holds what a program cannot say. A pickle is refused unread.
    """
    if isinstance(model, str | Path):
        return _read_file(Path(model))
    if type(model).__module__.partition(".")[0] == "lightgbm":
        from .sources.from_lightgbm import from_lightgbm

        return from_lightgbm(model)
    from .sources.from_sklearn import from_sklearn

    return from_sklearn(model)


def _read_file(path: Path) -> Source:
    data = read_bytes(str(path))
    if data[:1] == b"\x80" or path.suffix in (".pkl", ".pickle", ".joblib"):
        raise InputError(f"model {path} is a pickle: it could run anything and is never loaded; write .onnx or .skops")
    if data[:5] == b"tree\n":
        from .sources.from_lightgbm import read_lightgbm

        return read_lightgbm(data)
    if data[:4] == b"PK\x03\x04":
        from .sources.from_skops import read_skops

        return read_skops(data)
    if path.suffix != ".onnx":
        raise InputError(f"model {path} is no .onnx, no .skops and no LightGBM text; write it as one of them")
    from .sources.from_onnx import read_onnx

    return read_onnx(data)


# ---------------------------------------------------------------- the bundle


def import_model(
    model: Any,
    out: str | Path,
    *,
    layout: dict[str, Any] | None = None,
    rows: Rows | NDArray[np.float64] | None = None,
    leaves: str = "auto",
    min_agreement: float | None = None,
    n_check: int = 10_000,
    key: str | Path | None = None,
    seed: int = 0,
) -> Brought:
    """Write the bundle of a model that was trained elsewhere; the same model always gives the same bytes.

    Parameters
    ----------
    model : path of an .onnx, .skops or LightGBM text file, or a fitted estimator
    out : path of the bundle; its signature goes beside it
    layout : sensors and costs, as ``layout.read_layout`` gives them; None for one sensor at no cost
    rows : (n, n_features) in the model's order, or (names of columns, rows), to compare on and for golden cases
    leaves : "auto", "16" or "31": bits of a leaf
    min_agreement : share of the compared rows on which the program must say the same; None for all, 0.999 if linear
    n_check : how many rows to compare on
    key : path of a private key, or None for a bundle without a signature
    seed : of the rows made up, and of the choice of golden cases

    Raises
    ------
    InputError
        The model, the layout or the rows cannot be used.
    BundleError
        The program says something else than its source on too many rows, or cannot be proved.
    """
    private = None if key is None else read_key(Path(key))
    if n_check < 1 or (min_agreement is not None and not 0 <= min_agreement <= 1):
        raise InputError(f"{n_check} rows and an agreement of {min_agreement} are asked for; 1 and 0 to 1 at least are")
    source = read_model(model)
    names, table = _columns(source, layout, rows)
    made = make_layout(source, layout, names)
    found = import_parts(source, made, rows=_ordered(made, table), leaves=leaves, n_check=n_check, seed=seed)
    _check(found, min_agreement)
    program = found.program()
    n = min(GOLDEN_ROWS, len(found.rows))
    nobody = np.zeros(n, dtype=np.int64)
    golden = make_golden(program, found.rows[:n], nobody, nobody, seed)
    data = pack_bundle(Bundle(_manifest(found, model).to_json(), program, golden))
    loaded = load_bytes(data)  # what a device does
    write_signed(Path(out), data, None if private is None else sign(data, private))
    report = loaded.report
    return Brought(Path(out), loaded.bundle.sha256, len(data), private is not None, len(golden), report, found)


def _columns(
    source: Source, layout: dict[str, Any] | None, rows: Rows | NDArray[np.float64] | None
) -> tuple[tuple[str, ...], Rows | None]:
    """Names of the features where only the rows have them; rows without names are in the model's order."""
    if rows is None:
        return (), None
    n, model = len(source.features), (layout or {}).get("model", {})
    names, X = rows if isinstance(rows, tuple) else ((), np.asarray(rows, dtype=np.float64))
    if X.ndim != 2 or len(X) == 0 or (not names and X.shape[1] != n):
        raise InputError(f"the rows have the shape {X.shape}, the model reads {n} features of at least one row")
    mine = tuple(name for name in names if name != model.get("target"))
    is_nameless = not all(source.features) and not model.get("features")
    return (mine if is_nameless and len(mine) == n else ()), (tuple(names), X)


def _ordered(layout: Layout, rows: Rows | None) -> NDArray[np.float64] | None:
    """The rows' columns in the model's order."""
    if rows is None or not rows[0]:
        return None if rows is None else rows[1]
    names, X = rows
    absent = [name for name in layout.names if name not in names]
    if absent:
        raise InputError(
            f"the rows lack {len(absent)} of the model's features, first {absent[0]!r}; add its column, or name the "
            "model's features in the TOML: [model] features"
        )
    return X[:, [names.index(name) for name in layout.names]]


def _check(found: Imported, least: float | None) -> None:
    kind = "trees" if found.source.linear is None else "linear"
    least = MIN_AGREEMENT[kind] if least is None else least
    match = found.match
    if match.agreement < least:
        what = "labels differ" if found.source.kind == CLASS else "values are further apart than the bound"
        raise BundleError(
            f"{match.differ} of {match.n} {what} from those of {match.beside} (scores off by {match.off:.3g}), "
            f"{least:.2%} must agree; take wider leaves with --leaves 31, or lower --min-agreement"
        )


def _manifest(found: Imported, model: Any) -> Manifest:
    layout, source = found.layout, found.source
    claims: dict[str, Any] = {"import": {**found.match.to_json(), "labels": found.proof, "bound": found.bound}}
    trained: dict[str, Any] = {"method": "import", "source": source.name, "leaves": found.summed.bits}
    if isinstance(model, str | Path):
        trained["sha256"] = hashlib.sha256(read_bytes(str(model))).hexdigest()
    if source.kind != CLASS:
        scorer = found.parts.answer.scores.scorer
        trained["scales"] = {str(scorer): found.summed.scale}
    return Manifest(
        name=layout.name, unit=layout.unit, features=layout.names, sensors=layout.sensor_names, classes=layout.classes,
        target=layout.target, claims=claims, trained=trained,
    )  # fmt: skip
