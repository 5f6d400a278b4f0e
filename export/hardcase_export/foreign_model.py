# SPDX-License-Identifier: Apache-2.0
"""Import a model trained elsewhere: from a file or a live estimator to a bundle that gives the source's labels.

``read_model`` recognises the kind of model, ``import_parts`` makes columns and scorers of it, and ``import_model``
compares them with the source on rows and writes a bundle.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import Bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import MAX_STEPS, Value
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.verifier.verify import verify

from .importing.imported import Imported
from .importing.parts import import_parts
from .importing.read_model import read_model
from .importing.sensor_layout import Layout, make_layout
from .integers.golden_cases import make_golden
from .publish import Published, check_out, publish, read_key
from .sources.source import Source, read_bytes

MIN_AGREEMENT = {True: 1.0, False: 0.999}  # share of rows on which program and source must agree: trees, other models
GOLDEN_ROWS = 64  # rows that golden cases are chosen from
GOLDEN_OPERATIONS = 2_000_000  # of these rows, which Python decides: seconds

NamedRows = tuple[tuple[str, ...], NDArray[np.float64]]  # names of the columns, values (n, n_columns)


@dataclass(frozen=True)
class ImportedBundle(Published):
    """A bundle that was written, and the model in it."""

    imported: Imported


# ---------------------------------------------------------------- the bundle


def import_model(
    model: Any,
    out: str | Path,
    *,
    layout: dict[str, Any] | None = None,
    rows: NamedRows | NDArray[np.float64] | None = None,
    leaves: str = "auto",
    min_agreement: float | None = None,
    n_check: int = 10_000,
    key: str | Path | None = None,
    seed: int = 0,
    force: bool = False,
) -> ImportedBundle:
    """Write the bundle of a model that was trained elsewhere; the same model always gives the same bytes.

    Parameters
    ----------
    model : path of an .onnx, .skops, int8 .tflite, LightGBM text, XGBoost or EBM JSON file, or a fitted estimator
    out : path of the bundle; its signature goes beside it
    layout : sensors and costs, as ``sensor_layout.read_layout`` gives them; None for one sensor at no cost
    rows : (n, n_features) in the model's order, or (names of columns, rows); the program is compared with its source
        on them, and golden cases are chosen from them
    leaves : "auto", "16" or "31": bits of a leaf
    min_agreement : share of the compared rows on which program and source must agree; None for all rows, or 0.999 of
        them if the model is linear or a network
    n_check : number of rows to compare on
    key : path of a private key, or None for a bundle without a signature
    seed : seed of the probe rows and of the choice of golden cases
    force : whether the bundle may replace a file that is not a bundle

    Raises
    ------
    InputError
        The model, the layout or the rows cannot be used.
    BundleError
        Program and source differ on too many rows, or the verifier cannot prove the program safe.
    """
    check_out(out, force)
    private_key = None if key is None else read_key(key)
    _check_arguments(n_check, min_agreement)
    source = read_model(model)
    if leaves != "auto" and not source.trees:
        raise InputError(f"leaves of {leaves} bits are asked for, but the {source.name} has none; leave --leaves out")
    names, table = _columns(source, layout, rows)
    sensors = make_layout(source, layout, names)
    how: dict[str, Any] = {"rows": _ordered(sensors, table), "n_check": n_check, "seed": seed}
    if source.network is not None:
        from .to_tflite.network import import_network

        imported = import_network(source, sensors, **how)
    else:
        imported = import_parts(source, sensors, leaves=leaves, **how)
    _check_agreement(imported, min_agreement)
    if abs(imported.steps or 0) > MAX_STEPS:
        raise InputError(f"the {source.name} answers values too large for a bundle; train it in another unit")
    program = imported.program()
    n = min(GOLDEN_ROWS, len(imported.rows), max(8, GOLDEN_OPERATIONS // verify(program).operations))
    no_replies = np.zeros(n, dtype=np.int64)  # the program never forwards
    golden = make_golden(program, imported.rows[:n], no_replies, no_replies, seed)
    bundle = Bundle(_manifest(imported, model).to_json(), program, golden)
    return ImportedBundle(**vars(publish(bundle, Path(out), private_key, force=force)), imported=imported)


def _check_arguments(n_check: int, min_agreement: float | None) -> None:
    if n_check < 1:
        raise InputError(f"{n_check} rows to compare on are asked for; give at least 1")
    if min_agreement is not None and not 0 <= min_agreement <= 1:
        raise InputError(f"an agreement of {min_agreement} is asked for; give a share from 0 to 1")


def _columns(
    source: Source, layout: dict[str, Any] | None, rows: NamedRows | NDArray[np.float64] | None
) -> tuple[tuple[str, ...], NamedRows | None]:
    """Names of the features, if only the rows have them, and the rows; rows without names are in the model's order."""
    if rows is None:
        return (), None
    n, model = len(source.features), (layout or {}).get("model", {})
    names, X = rows if isinstance(rows, tuple) else ((), np.asarray(rows, dtype=np.float64))
    if X.ndim != 2 or len(X) == 0 or (not names and X.shape[1] != n):
        raise InputError(f"the rows have the shape {X.shape}; give rows of the model's {n} features in numbers")
    own_names = tuple(name for name in names if name != model.get("target"))
    is_nameless = not all(source.features) and not model.get("features")
    return (own_names if is_nameless and len(own_names) == n else ()), (tuple(names), X)


def _ordered(layout: Layout, rows: NamedRows | None) -> NDArray[np.float64] | None:
    """The rows' columns in the model's order."""
    if rows is None or not rows[0]:
        return None if rows is None else rows[1]
    names, X = rows
    absent = [name for name in layout.names if name not in names]
    if absent:
        raise InputError(
            f"the rows lack {len(absent)} of the model's features, first {absent[0]!r}; add its column, in numbers, "
            "or name the model's features in the TOML under [model] features"
        )
    return X[:, [names.index(name) for name in layout.names]]


def _check_agreement(imported: Imported, min_agreement: float | None) -> None:
    is_trees = bool(imported.source.trees)
    min_agreement = MIN_AGREEMENT[is_trees] if min_agreement is None else min_agreement
    match = imported.match
    if match.agreement < min_agreement:
        what = "labels differ" if imported.source.kind.has_classes else "values are further apart than the bound"
        raise BundleError(
            f"{match.differ} of {match.n} {what} from those of {match.reference} (scores off by {match.off:.3g}), but "
            f"{min_agreement:.2%} must agree; {'take wider leaves with --leaves 31, or ' * is_trees}lower "
            "--min-agreement"
        )


def _manifest(imported: Imported, model: Any) -> Manifest:
    layout, source = imported.layout, imported.source
    claims: dict[str, Any] = {"import": {**imported.match.to_json(), "labels": imported.proof, "bound": imported.bound}}
    trained: dict[str, Any] = {"method": "import", "source": source.name, "leaves": imported.summed.bits}
    if isinstance(model, str | Path):
        trained["sha256"] = hashlib.sha256(read_bytes(str(model))).hexdigest()
    value = None if imported.steps is None else Value(layout.target_unit, imported.steps)
    return Manifest(
        name=layout.name, unit=layout.unit, features=layout.names, sensors=layout.sensor_names, classes=layout.classes,
        target=layout.target, claims=claims, trained=trained, value=value,
    )  # fmt: skip
