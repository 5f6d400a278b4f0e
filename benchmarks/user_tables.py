# SPDX-License-Identifier: Apache-2.0
"""The tables of ``users.py``: other people's, or made of them, and what a user adds to the TOML of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A table, what of its TOML a user changes, and what that is called on the page.

    make : writes the table into a folder and returns its path
    edit : changes the text of the TOML
    others : tables of the same kind, which count beside the first in the mean total cost; the first is the page's row
    """

    name: str
    make: Callable[[Path], Path]
    edit: Callable[[str], str] = lambda text: text
    note: str = ""
    others: tuple[Callable[[Path], Path], ...] = ()


def write(path: Path, names: list[str], columns: list[Any], separator: str = ",", encoding: str = "utf-8") -> Path:
    """A CSV of these columns."""
    rows = zip(*(np.asarray(c).tolist() for c in columns), strict=True)
    lines = [separator.join(names), *(separator.join("" if v != v else str(v) for v in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def toy(load: Callable[..., Any]) -> Callable[[Path], Path]:
    """One of scikit-learn's own tables."""

    def make(folder: Path) -> Path:
        bunch = load()
        names = [str(n).replace(",", ";") for n in bunch.feature_names]
        label = np.asarray(bunch.target_names)[bunch.target]
        return write(folder / "t.csv", [*names, "target"], [*bunch.data.T, label])

    return make


def stored(file: str, n: int = 0, label: str = "label", extra: tuple[str, ...] = ()) -> Callable[[Path], Path]:
    """A table of HARDCASE_DATA as CSV, or ``n`` random rows of it; ``extra``: further arrays that become columns."""

    def make(folder: Path) -> Path:
        with np.load(data() / file) as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
            names = [str(name) for name in arrays["feature_names"]]
            classes = [str(c) for c in arrays["class_names"]] if "class_names" in arrays else None
            more = [arrays[key] for key in extra]
        rows = np.sort(np.random.default_rng(0).permutation(len(y))[: n or len(y)])
        labels = np.array(classes)[y] if classes else y
        X = X[rows].reshape(len(rows), -1)
        names = names if len(names) == X.shape[1] else [f"p{k}" for k in range(X.shape[1])]
        return write(folder / "t.csv", [*names, *extra, label], [*X.T, *(m[rows] for m in more), labels[rows]])

    return make


def data() -> Path:
    """The folder of data sets."""
    if "HARDCASE_DATA" not in os.environ:
        sys.exit("HARDCASE_DATA is not set; it names the folder of the data sets")
    return Path(os.environ["HARDCASE_DATA"])


def progression(folder: Path) -> Path:
    """The diabetes table as it is: a number to predict."""
    bunch = datasets.load_diabetes(scaled=False)
    return write(folder / "t.csv", [*bunch.feature_names, "progression"], [*bunch.data.T, bunch.target])


def elevation(folder: Path) -> Path:
    """Covertype's elevation in metres from slope, distances, shades and soils."""
    with np.load(data() / "covertype_sample.npz") as arrays:
        X = arrays["X"].astype(int)
    rows = np.sort(np.random.default_rng(5).permutation(len(X))[:6000])
    soil = X[rows, 14:54].argmax(axis=1)
    names = ["aspect", "slope", "h_water", "v_water", "roads", "shade.0", "shade.1", "shade.2", "fire", "soil"]
    return write(folder / "t.csv", [*names, "elevation"], [*X[rows, 1:10].T, soil, X[rows, 0]])


def documents(folder: Path) -> Path:
    """MQ2008's first 250 queries."""
    with np.load(data() / "mq2008.npz") as arrays:
        X, y, query = arrays["X"].astype(np.float64), arrays["y"], arrays["qid"]
        names = [str(name) for name in arrays["feature_names"]]
    rows = np.isin(query, np.unique(query)[:250])
    return write(folder / "t.csv", [*names, "query", "relevance"], [*X[rows].T, query[rows], y[rows]])


def by_query(text: str) -> str:
    """Ranks within queries, which ``init`` writes as the group since it takes what looks like one."""
    return text.replace('task = "class"', 'task = "rank"').replace("Classifier", "Regressor")


def diabetes(folder: Path) -> Path:
    """Progression above the upper quartile or not, with missing cells as a clinic has them."""
    bunch = datasets.load_diabetes(scaled=False)
    X = bunch.data.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    y = np.where(bunch.target > np.quantile(bunch.target, 0.75), "fast", "slow")
    return write(folder / "t.csv", [*bunch.feature_names, "progression"], [*X.T, y])


def faults(fault: str) -> Callable[[Path], Path]:
    """Letters of which one in a hundred is this one, the fault."""

    def make(folder: Path) -> Path:
        with np.load(data() / "letter.npz") as arrays:
            X, y = arrays["X"], arrays["y"]
        is_fault = y == ord(fault) - ord("A")
        rng = np.random.default_rng(1)
        chosen = np.concatenate(
            [rng.choice(np.flatnonzero(is_fault), 120, replace=False), np.flatnonzero(~is_fault)[:12000]]
        )
        rows = np.sort(chosen)
        names = [f"r{k}" for k in range(X.shape[1])]
        return write(folder / "t.csv", [*names, "state"], [*X[rows].T, np.where(is_fault[rows], "fault", "ok")])

    return make


def texts(folder: Path) -> Path:
    """Covertype with its wilderness area and soil as texts, semicolons and Latin-1, as an office exports it."""
    with np.load(data() / "covertype_sample.npz") as arrays:
        X, y = arrays["X"].astype(int), arrays["y"]
    rows = np.sort(np.random.default_rng(2).permutation(len(y))[:6000])
    area = np.array(["Rawah", "Neota", "Comanche", "Cache la Poudré"])[X[rows, 10:14].argmax(axis=1)]
    soil = np.array([f"sol nº {k}" for k in range(40)])[X[rows, 14:54].argmax(axis=1)]
    names = ["elevation", "aspect", "slope", "h_water", "v_water", "roads", "shade.0", "shade.1", "shade.2", "fire"]
    columns = [*X[rows, :10].T, area, soil, y[rows]]
    return write(folder / "t.csv", [*names, "area", "soil", "cover"], columns, ";", "latin-1")


def dated(folder: Path) -> Path:
    """Occupancy with a date, a row number and booleans."""
    with np.load(data() / "occupancy_detection.npz") as arrays:
        X, y, names = arrays["X"][:8000], arrays["y"][:8000], [str(n) for n in arrays["feature_names"]]
    minutes = np.arange(len(y))
    stamps = np.datetime_as_string(np.datetime64("2015-02-04T17:51") + minutes.astype("timedelta64[m]"))
    dark = np.where(X[:, names.index("Light")] < 1 if "Light" in names else X[:, 2] < 1, "true", "false")
    columns = [minutes + 1, stamps, *X.T, dark, np.where(y > 0, "yes", "no")]
    return write(folder / "t.csv", ["id", "date", *names, "dark", "Occupancy"], columns)


def wide(folder: Path) -> Path:
    """300 rows of 400 readings, of which a few matter."""
    X, y = datasets.make_classification(600, 400, n_informative=8, n_redundant=4, random_state=3)
    return write(folder / "t.csv", [f"x{k}y" for k in range(400)] + ["target"], [*X.round(5).T, y])


def large(folder: Path) -> Path:
    """60,000 rows of 30 readings in four classes."""
    X, y = datasets.make_classification(60_000, 30, n_informative=12, n_classes=4, random_state=4)
    return write(folder / "t.csv", [f"s{k}v" for k in range(30)] + ["target"], [*X.round(4).T, y])


def costs(text: str) -> str:
    return text.replace("cost = 1.0", "cost = 0.02").replace("per_request = 160.0", "per_request = 1.0") + (
        "\n[cost.errors]\nmiss = { fault = 500 }\nother = 5\n"
    )


CASES = [
    Case("iris", toy(datasets.load_iris)),
    Case("wine", toy(datasets.load_wine)),
    Case("breast cancer", toy(datasets.load_breast_cancer)),
    Case("digits", toy(datasets.load_digits)),
    Case("diabetes", diabetes, note="5 % of cells empty"),
    Case("pima", stored("pima.npz")),
    Case("letters", stored("letter.npz", 6000)),
    Case("satimage", stored("satimage.npz")),
    Case("room occupancy", stored("room_occupancy.npz", label="people")),
    Case("occupancy, dated", dated, note="an id, a date, booleans"),
    Case("covertype, texts", texts, note="`;`, Latin-1, text categories"),
    Case("phones by user", stored("wisdm_transformed.npz", extra=("user",)), note='`group = "user"`'),
    Case("rare faults, plain", faults("M"), note="1 % faults"),
    Case(
        "rare faults, costs",
        faults("M"),
        costs,
        "1 % faults, added `[cost.errors]` 500 and 5, cheap sensors",
        tuple(faults(letter) for letter in "ADGJPSVY"),  # with M every third letter
    ),
    Case("progression", progression, note="numbers to predict"),
    Case("elevation", elevation, note="numbers to predict"),
    Case("documents", documents, by_query, '`group = "query"`, added `task = "rank"`'),
    Case("wide", wide, note="600 x 400"),
    Case("large", large, note="60,000 x 30"),
]
