# SPDX-License-Identifier: Apache-2.0
"""The steps of a retraining: settings of the old bundle, table, build, bundle, and its place in the signed list."""

from __future__ import annotations

import argparse
import csv
import io
import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_cloud.keep.records.came_back import fair
from hardcase_edge.base.files import read_bounded, write_whole
from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit
from hardcase_export.bundle import NoPricesError, export_bundle
from hardcase_export.integers.point import Build
from hardcase_export.picking.risk_choice import RiskTerms, terms_in
from hardcase_train.data.table import Labels, Table
from hardcase_train.settings.config import Config, SensorConfig

from ...training.build import build
from ...training.folders import locked
from ..export import terms_of
from ..keys import keys_beside
from ..train import configured
from .rows import Rows, carried

SPLIT, WEIGHT = "hardcase split", "hardcase weight"  # columns of the table; a feature may not be called so
NOTE = "retrain.json"
REMEDY = "name another file"
LIST_LIFE_S = 30 * 86_400  # how long the signed list counts, as of hardcase keys
TRAINED_BY = (  # flags on which depends what comes out
    "audited", "with_old", "seed", "method", "no_baselines", "effort", "all", "max_models", "time_limit",
    "max_loss", "budget", "hard_budget", "risk", "delta", "max_forward", "excess", "prices", "monitors",
    "atypical", "min_agreement", "sign",
)  # fmt: skip


def inputs_of(args: argparse.Namespace, found: Rows) -> str:
    """A digest of all that decides what comes out: with the same one there is nothing to train."""
    digest = sha256()
    for path in (args.config, *([args.hpc] if args.hpc else []), *args.bundle):
        digest.update(sha256(read_bounded(path, 1 << 31, "input", remedy=REMEDY)).digest())
    digest.update(json.dumps([getattr(args, key) for key in TRAINED_BY]).encode())
    for row in found.rows:
        digest.update(repr((row.device, row.boot, row.sequence, row.share, row.readings, row.label, row.part)).encode())
    if found.old is not None:
        digest.update(found.old.X.tobytes() + repr((found.old.labels, found.old.weight.tolist())).encode())
    return digest.hexdigest()


def noted(out: Path) -> dict[str, Any]:
    """The note of the bundle that lies in this folder: its ``inputs``, and ``lines`` about it; {} if there is none."""
    try:
        note = json.loads(read_bounded(out / NOTE, 65_536, "note", remedy=REMEDY))
        same = sha256(read_bounded(out / "model.hcb", 1 << 28, "bundle", remedy=REMEDY)).hexdigest() == note["bundle"]
        return {"inputs": str(note["inputs"]), "lines": [str(line) for line in note["lines"]]} if same else {}
    except (InputError, ValueError, KeyError, TypeError):
        return {}


def settings(args: argparse.Namespace, old: Loaded) -> tuple[Config, tuple[str, ...]]:
    """The configuration of the TOML with what the old bundle says of itself, and the methods to train.

    Sensors, their features and their order are the bundle's, and so are target, unit and name; what sensors and
    requests cost, errors, quality and methods are the TOML's.

    Raises
    ------
    InputError
        The TOML is of another target, unit or task than the bundle, or asks for what audits do not carry.
    """
    config, methods = configured(args)
    manifest, program = old.manifest, old.machine.program
    for what, ours, its in (
        ("target", config.target, manifest.target), ("unit of cost", config.unit, manifest.unit),
        ("clock", config.clock, manifest.clock),
    ):  # fmt: skip
        if ours != its:
            raise InputError(
                f"{args.config} has the {what} {str(ours)[:60]!r}, and the bundle {str(its)[:60]!r}; name the TOML "
                "that the bundle was trained with"
            )
    for key in ("item_size", "sequence", "item"):
        if getattr(config, key) is not None:
            raise InputError(
                f"{args.config} has [data] {key}, which requests of audits and cases do not carry; train such a bundle "
                "with hardcase train"
            )
    costs = {s.name: s.cost for s in config.sensors}
    names, sent = manifest.features, set(carried(old))
    sensors = []
    for name, s in zip(manifest.sensors, program.sensors, strict=True):
        features = tuple(names[f] for f in s.features if names[f] in sent)
        own = tuple(to_unit(c) for c in s.cost)
        if features:
            sensors.append(
                SensorConfig(name=name, features=features, cost=costs.get(name, own[0] if len(own) == 1 else own))
            )
    config = config.but(name=manifest.name, sensors=tuple(sensors), split=SPLIT, weight=WEIGHT, group=None, drop=(),
        dates="leave", legacy=None, legacy_name="",
    )  # fmt: skip
    return config, methods


def train(
    args: argparse.Namespace, old: Loaded, found: Rows, config: Config, methods: tuple[str, ...], inputs: str
) -> list[str]:
    """Write the table, the build, the bundle and, when all of them are there, the note; lines about them.

    Raises
    ------
    InputError
        The build or the bundle cannot be made, or the bundle could not run in the old one's place.
    """
    path = args.out / "rows.csv"
    table = _table(old, found, config, path)
    where = {"dask": args.dask, "jobs": args.jobs, "time_limit": args.time_limit, "quiet": True}
    _, front, made = build(config.but(file=path), methods, args.out / "build", table=table, **where)
    if args.hpc is not None and front["hpc"]["sha256"] != _digest(args.hpc):
        raise InputError(f"{args.hpc} cannot be kept as f0 byte by byte; name the hpc.onnx of a build")
    lines, digest = _export(args, old, made)
    _check_place(old, args.out / "model.hcb")
    write_whole(args.out / NOTE, json.dumps({"inputs": inputs, "bundle": digest, "lines": lines}).encode())
    return lines


def _export(args: argparse.Namespace, old: Loaded, build: Build) -> tuple[list[str], str]:
    """Write the bundle with what the old one has, and say what it lacks of it; and its SHA-256."""
    has_prices = old.manifest.prices is not None
    own = terms_of(args)
    wishes = (args.max_loss, args.budget, args.hard_budget, own)
    terms = _promised(old) if wishes == (None, None, None, None) else own
    what: dict[str, Any] = {
        "max_loss": args.max_loss, "budget": args.budget, "hard_budget": args.hard_budget,
        "terms": terms, "key": args.sign, "of_best": True,
        "method": args.method[0] if len(args.method or ()) == 1 else None,
        "min_agreement": args.min_agreement,
        "monitors": args.monitors or old.manifest.monitors is not None,
        "atypical": _share_of_atypical(old) if args.atypical is None else args.atypical,
    }  # fmt: skip
    out, lines = args.out / "model.hcb", list[str]()
    try:
        exported = export_bundle(build, out, prices=args.prices or has_prices, **what)
    except NoPricesError:
        if args.prices:
            raise
        lines.append(
            "the new policy has no threshold that prices could move: running budgets only stretch its interval"
        )
        exported = export_bundle(build, out, prices=False, **what)
    except InputError as error:
        if terms is None or terms is own:
            raise
        raise InputError(
            f"the promise of the old bundle cannot be renewed: {error}; or wait for more rows with labels, or state "
            "another wish, such as --risk or --max-loss"
        ) from error
    audits = "audits" in old.manifest.claims
    if audits and exported.path is not None and not _has_audits(exported.path):
        lines.append("the new bundle promises no agreement with f0, because it asks nobody or answers nothing alone")
    return lines, exported.sha256


def _has_audits(path: Path) -> bool:
    return "audits" in load_bundle(path).manifest.claims


def _promised(old: Loaded) -> RiskTerms | None:
    """The terms of the old bundle's promise, for the new one; None if it has none."""
    promise = old.manifest.claims.get("promise")
    return terms_in(promise) if isinstance(promise, dict) else None


def _share_of_atypical(old: Loaded) -> float | None:
    """The share that the old bundle's score of atypical cases was set to; None if it has no such score."""
    found = old.manifest.claims.get("atypical")
    share = found.get("share") if isinstance(found, dict) and old.manifest.atypical else None
    return share if isinstance(share, float) and 0 < share <= 0.5 else None


def _check_place(old: Loaded, new: Path) -> None:
    """The new bundle reads what the device of the old one gives, under the same names."""
    ours, its = load_bundle(new).manifest, old.manifest
    for key in ("name", "target", "unit", "classes", "windows", "categories", "clock"):
        if getattr(ours, key) != getattr(its, key):
            raise InputError(
                f"the new bundle has other {key} than the old one ({str(getattr(ours, key))[:60]}), so devices could "
                "not run it in its place; is the TOML that of the old bundle?"
            )


def _digest(path: Path) -> str:
    return sha256(read_bounded(path, 1 << 31, "model", remedy=REMEDY)).hexdigest()


def sign(bundle: Path, folder: Path, private: Path | None) -> None:
    """List the bundle in a folder of signed metadata, as ``hardcase keys sign`` does.

    Raises
    ------
    InputError
        The folder or its keys cannot be used, or python-tuf is not installed.
    """
    try:
        from ...keys.repository import Lives, Places
        from ...keys.repository import sign as list_bundles
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("tuf", "securesystemslib"):
            raise
        raise InputError("the tuf package is missing; pip install 'hardcase[keys]'") from error
    keys = private or keys_beside(folder)
    with locked(folder):
        data = bundle.read_bytes()
        list_bundles(Places(folder, keys, (keys,)), {bundle.name: data}, Lives(LIST_LIFE_S, 0), int(time.time()))


# ---------------------------------------------------------------- the table


def _table(old: Loaded, found: Rows, config: Config, path: Path) -> Table:
    """The rows as a table with the types, windows and categories of the old bundle; also written as CSV, for people.

    Rows on which a promise is tested, or a figure is only reported, all weigh the same: of those that stand for fewer
    decisions, so many fewer are taken. No device gives more of these than its share (``came_back.fair``).
    """
    manifest, program, names = old.manifest, old.machine.program, carried(old)
    clashes = {SPLIT, WEIGHT, config.target} & set(names)
    if clashes:
        raise InputError(f"a feature is called {min(clashes)!r}, which the table needs for itself; rename it")
    heaviest = float(found.weights.max())
    chosen = []
    for part in ("train", "valid", "calibration", "test"):
        rows = [(r, w) for r, w in zip(found.rows, found.weights.tolist(), strict=True) if r.part == part]
        if part in ("calibration", "test"):
            rows = [(row, heaviest) for row in fair([r for r, w in rows if r.draw < w / heaviest])]
        chosen += rows
    label_of = {str(c): c for c in manifest.classes}
    X = np.array([[np.nan if x is None else x for x in row.readings] for row, _ in chosen]).reshape(-1, len(names))
    labels, parts = [label_of[row.label] for row, _ in chosen], [row.part for row, _ in chosen]
    weights = [w for _, w in chosen]
    if found.old is not None:
        X, labels = np.concatenate([X, found.old.X]), [*labels, *found.old.labels]
        parts, weights = parts + ["train"] * len(found.old.labels), weights + found.old.weight.tolist()
    data = _csv(names, manifest.categories, X.tolist(), config.target, labels, parts, weights)
    write_whole(path, data)
    features = {manifest.features[f]: program.features[f] for f in program.uplink.features}
    given = {SPLIT: parts, WEIGHT: weights, config.target: labels}
    return Table(
        tuple(names), X, Labels({name: values.copy for name, values in given.items()}), sha256(data).hexdigest(),
        windows=dict(manifest.windows), declared=features,
        categories={name: texts for name, texts in manifest.categories.items() if name in names},
    )  # fmt: skip


def _csv(names: Any, categories: Any, X: Any, target: str, labels: Any, parts: Any, weights: Any) -> bytes:
    """The rows as CSV: readings by name, the target, the part of each row, and its weight."""
    texts = [categories.get(name) for name in names]
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow([*names, target, SPLIT, WEIGHT])
    for readings, label, part, weight in zip(X, labels, parts, weights, strict=True):
        cells = [_cell(value, of) for value, of in zip(readings, texts, strict=True)]
        writer.writerow([*cells, label, part, repr(weight)])
    return file.getvalue().encode()


def _cell(value: float, texts: Any) -> Any:
    """A reading in the table: a number, the text of a category's code, or nothing."""
    if value != value:
        return ""
    if texts is None:
        return repr(value)
    return texts[int(value)] if value == int(value) and 0 <= value < len(texts) else ""
