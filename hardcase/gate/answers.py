# SPDX-License-Identifier: Apache-2.0
"""A log of answers of models or APIs, one row a request, as a table in which each API is a sensor with its price.

Columns are recognised by their endings: ``NAME_label``, ``NAME_confidence``, ``NAME_price``, ``NAME_ms`` and a few
others, and the truth by its name. A sensor reads the label as a category, and the confidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardcase_edge.base.toml import toml_value
from hardcase_edge.errors import InputError
from hardcase_train.columns.kinds import BOOLEAN
from hardcase_train.data.table import Table, read_table
from hardcase_train.settings.amounts import MAX_COST

from .file import MAX_APIS, NAME, Api, is_share

__all__ = ["CONFIDENCE", "LABEL", "Log", "read_log", "write_problem"]

LABEL, CONFIDENCE = "_label", "_confidence"  # of the features of a sensor
ENDINGS = {
    "label": ("label", "pred", "prediction", "answer"),
    "confidence": ("confidence", "score", "probability", "prob"),
    "price": ("price", "cost"),
    "ms": ("latency_ms", "ms", "latency"),
}
KIND_OF = {ending: kind for kind, endings in ENDINGS.items() for ending in endings}
COLUMN = re.compile(rf"(.+?)[_.]({'|'.join(KIND_OF)})", re.IGNORECASE)
TRUTHS = ("truth", "label", "y", "target")
TARGET = "truth"
LEAST = 1e-5  # mean of a column, unless it is 0: a cost has six decimals


@dataclass(frozen=True)
class Log:
    """What a log says of each API.

    labels : of each API, (n,) texts, None where it did not answer
    confidences : of the APIs that have them, (n,) numbers from 0 to 1, NaN for missing
    truth : (n,) labels, text or whole numbers
    stands_in : the API whose label is the truth, if the log has none
    notes : what the user should know, a line each
    """

    apis: tuple[Api, ...]
    labels: dict[str, list[str | None]]
    confidences: dict[str, np.ndarray]
    truth: list[str | int]
    stands_in: str | None
    notes: tuple[str, ...]


def read_log(path: Path) -> Log:
    """Read a CSV, Parquet or Feather file, or an .npz, of answers.

    Raises
    ------
    InputError
        It is no table, has fewer than two APIs, one of them lacks a label or a price, or a confidence is none.
    """
    table = read_table(path)
    booleans = [name for name, kind in table.kinds.items() if kind == BOOLEAN]
    if booleans:
        table = read_table(path, as_text=booleans)
    columns = tuple(table.kinds) or table.names
    found, rest = _recognised(path, columns)
    apis = tuple(_api(path, table, name, of) for name, of in found.items())
    labels = {name: _texts(path, table, of["label"]) for name, of in found.items()}
    confidences = {name: _shares(path, table, of["confidence"]) for name, of in found.items() if "confidence" in of}
    truths = [name for name in rest if name.lower() in TRUTHS]
    if len(truths) > 1:
        raise InputError(f"{path} has {len(truths)} columns of truth, {', '.join(truths)}; rename all but one")
    dearest = max(apis, key=lambda api: api.price).name
    truth: list[str | int | None] = [*(_column(path, table, truths[0]) if truths else labels[dearest])]
    keep = [k for k, value in enumerate(truth) if value is not None]
    if not keep:
        raise InputError(f"{path}: no row has a truth; fill in the column, or leave it out")
    lines = [f"no column of truth ({', '.join(TRUTHS)}): the label of {dearest}, the dearest, stands in"] * (not truths)
    if len(keep) < len(truth):
        lines.append(f"left out {len(truth) - len(keep)} rows without a truth")
    others = [name for name in rest if name not in truths]
    lines += [f"left out columns of no API: {', '.join(others[:10])}"] if others else []
    return Log(
        apis,
        {name: [values[k] for k in keep] for name, values in labels.items()},
        {name: values[keep] for name, values in confidences.items()},
        [value for value in truth if value is not None],
        None if truths else dearest,
        tuple(lines),
    )


def write_problem(log: Log, folder: Path, unit: str) -> tuple[Path, Table]:
    """Write ``calls.parquet`` and the ``hardcase.toml`` that trains on it; the path of the latter, and the table.

    No policy forwards (``max_forward = 0``), because there is nobody to ask beside the APIs: f0 is a model of all
    answers that only says what could be had.
    """
    columns: dict[str, pa.Array] = {TARGET: pa.array(log.truth)}
    sensors = []
    for api in log.apis:
        columns[api.name + LABEL] = pa.array(log.labels[api.name], pa.string())
        if api.name in log.confidences:
            columns[api.name + CONFIDENCE] = pa.array(log.confidences[api.name], from_pandas=True)
        features = [name for name in (api.name + LABEL, api.name + CONFIDENCE) if name in columns]
        sensors.append(
            f"\n[[sensor]]\nname = {toml_value(api.name)}\nfeatures = {toml_value(features)}\ncost = {api.price!r}\n"
        )
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "calls.parquet")
    path = folder / "hardcase.toml"
    path.write_text(
        "# Written by hardcase gate: each sensor is an API, its cost the mean price of a call.\n\n"
        f'[data]\nfile = "calls.parquet"\ntarget = "{TARGET}"\n\n'
        f"[cost]\nunit = {toml_value(unit)}\n\n[cost.uplink]\nper_request = 0.0\n\n"
        '[policy]\nsize = "small"\nmax_forward = 0.0\n'  # a few readings need no large model, which may not fit
        + "".join(sensors),
        encoding="utf-8",
    )
    table = read_table(folder / "calls.parquet")
    return path, replace(table, categories={api.name + LABEL: () for api in log.apis})


def _recognised(path: Path, columns: tuple[str, ...]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Of each API the column of each kind, and the other columns."""
    found: dict[str, dict[str, str]] = {}
    rest = []
    for column in columns:
        match = COLUMN.fullmatch(column)
        if match is None:
            rest.append(column)
            continue
        name, kind = match[1], KIND_OF[match[2].lower()]
        of = found.setdefault(name, {})
        if kind in of:
            raise InputError(f"{path}: {of[kind]!r} and {column!r} are both the {kind} of {name!r}; drop one")
        of[kind] = column
    for name in [name for name, of in found.items() if not {"label", "price"} & of.keys()]:
        rest += found.pop(name).values()  # such as a column ``brier_score``
    if not 2 <= len(found) <= MAX_APIS:
        raise InputError(
            f"{path} has answers of {len(found)} models or APIs, 2 to {MAX_APIS} are expected; name the columns of "
            "each as NAME_label, NAME_confidence, NAME_price, NAME_ms"
        )
    for name, of in found.items():
        if not NAME.fullmatch(name):
            raise InputError(f"{path}: {name[:40]!r} is no name; use letters, digits, _ and -, at most 40")
        for kind in ("label", "price"):
            if kind not in of:
                raise InputError(f"{path}: {name!r} has no {kind}; add a column {name}_{kind}")
    return found, rest


def _api(path: Path, table: Table, name: str, of: dict[str, str]) -> Api:
    mean = {kind: _mean(path, table, of[kind]) for kind in ("price", "ms") if kind in of}
    return Api(name, mean["price"], mean.get("ms"))


def _mean(path: Path, table: Table, column: str) -> float:
    values = _numbers(path, table, column)
    values = values[~np.isnan(values)]
    if not len(values) or (values < 0).any():
        raise InputError(f"{path}: {column!r} has {'a negative number' if len(values) else 'no number'}; correct it")
    if (values > MAX_COST).any():
        raise InputError(f"{path}: {column!r} has a number above {MAX_COST:g}; scale the column")
    mean = float(values.mean())
    if 0 < mean < LEAST:
        raise InputError(
            f"{path}: {column!r} has a mean of {mean:g}, of which six decimals keep no digit; scale all prices alike"
        )
    return float(np.round(mean, 6))


def _numbers(path: Path, table: Table, column: str) -> np.ndarray:
    if column not in table.names:
        raise InputError(f"{path}: {column!r} holds something else than numbers; correct it")
    return table.X[:, table.names.index(column)]


def _shares(path: Path, table: Table, column: str) -> np.ndarray:
    values = _numbers(path, table, column)
    strange = [x for x in values.tolist() if x == x and not is_share(x)]
    if strange:
        raise InputError(f"{path}: {column!r} holds {strange[0]:g}, a confidence from 0 to 1 is expected; scale it")
    return values


def _column(path: Path, table: Table, column: str) -> list[Any]:
    """A column's labels, None for a missing one: whole numbers, though a gap in the column made them 1.0; else text."""
    if column not in table.labels:
        raise InputError(f"{path}: {column!r} holds neither text nor numbers; correct it")
    values = [None if value != value else value for value in table.labels[column]]
    whole = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    if all(value is None or type(value) is int for value in whole):
        return whole
    return [None if value is None else str(value) for value in whole]


def _texts(path: Path, table: Table, column: str) -> list[str | None]:
    return [None if value is None else str(value) for value in _column(path, table, column)]
