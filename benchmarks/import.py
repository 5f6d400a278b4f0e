# SPDX-License-Identifier: Apache-2.0
"""Models of other libraries as programs, beside emlearn and m2cgen: which labels change, how many bytes.

    HARDCASE_DATA=folder python -m benchmarks run import [--rows 100000] [--only digits]

Every model is trained on training rows of digits (scikit-learn's own) or covertype. Then labels are compared on --rows
rows that nobody has seen, at thresholds, one beside them and between them: once with whole numbers, as both data sets
have and emlearn takes by default; once, ours alone, with any numbers of the source's own type, some of them missing
where the source allows that. Peers are compiled by the machine's gcc at -Os; their bytes are those of the object,
ours are the program's tensors, without the evaluator. Time is of a whole conversion: read, compared on 10,000 rows,
proved, with golden cases, packed, loaded again. Writes benchmarks/results/import.json and docs/benchmarks/import.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import emlearn
import lightgbm
import m2cgen
import numpy as np
import skops.io
import xgboost
from emlearn.common import get_include_dir
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.pages import markdown, rest
from hardcase_edge.more.batch.scores import scores_of
from hardcase_edge.program.definition import Feature
from hardcase_edge.program.encode import encode
from hardcase_export.foreign_model import import_model
from hardcase_export.importing.imported import Imported
from hardcase_export.importing.parts import import_parts
from hardcase_export.importing.read_model import read_model
from hardcase_export.importing.reference import labels_of_scores
from hardcase_export.importing.sensor_layout import make_layout
from hardcase_export.sources.source import Source

MAX_C_BYTES = 500_000  # of C that gcc is given
KNOWN_TO_M2CGEN = ("DecisionTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier", "LGBMClassifier")
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X and y to train on, X and y to test on
Labels = Callable[[np.ndarray], np.ndarray]

MODELS: dict[str, tuple[Any, bool]] = {  # an estimator, and whether it is trained for two classes
    "tree of depth 8": (DecisionTreeClassifier(max_depth=8, random_state=0), False),
    "forest, 30 trees": (RandomForestClassifier(30, random_state=0, n_jobs=1), False),
    "forest, 30 of depth 8": (RandomForestClassifier(30, max_depth=8, random_state=0, n_jobs=1), False),
    "forest, 30 of depth 8, 2 classes": (RandomForestClassifier(30, max_depth=8, random_state=0, n_jobs=1), True),
    "extra trees, 30": (ExtraTreesClassifier(30, random_state=0, n_jobs=1), False),
    "gradient boosting, 100 of depth 4, 2 classes": (GradientBoostingClassifier(max_depth=4, random_state=0), True),
    "gradient boosting, 300 of depth 5, 2 classes": (
        GradientBoostingClassifier(n_estimators=300, max_depth=5, random_state=0),
        True,
    ),
    "histogram boosting, 30": (HistGradientBoostingClassifier(max_iter=30, random_state=0), False),
    "LightGBM, 30": (lightgbm.LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1), False),
    "XGBoost, 30": (xgboost.XGBClassifier(n_estimators=30, n_jobs=1), False),
    "scaled forest, 30 of depth 8": (
        make_pipeline(SimpleImputer(), StandardScaler(), RandomForestClassifier(30, max_depth=8, random_state=0)),
        False,
    ),
    "logistic regression": (make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)), False),
}
AS_ONNX = (
    "forest, 30 of depth 8", "gradient boosting, 300 of depth 5, 2 classes", "histogram boosting, 30", "LightGBM, 30",
    "scaled forest, 30 of depth 8", "logistic regression",
)  # fmt: skip
ON_COVERTYPE = (
    "tree of depth 8", "forest, 30 of depth 8", "forest, 30 of depth 8, 2 classes",
    "gradient boosting, 100 of depth 4, 2 classes", "LightGBM, 30", "XGBoost, 30", "scaled forest, 30 of depth 8",
    "logistic regression",
)  # fmt: skip
AS_SKOPS = ("forest, 30 of depth 8", "histogram boosting, 30")
AS_JSON = ("XGBoost, 30",)
N_ROWS = 100_000
LIMIT_SECONDS = 1.0  # of processor time, gradient boosting of 300 trees of depth 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--only", metavar="DATA")


def run(args: Any) -> dict[str, Any]:
    """Measure."""
    found = args.known().get("rows", [])
    for data, load in (("digits", digits), ("covertype", covertype)):
        if args.only in (None, data):
            found = [row for row in found if row["data"] != data]
            for row in measure(data, load(), args.rows):
                found.append(row)
                args.save({"rows": found})
    return {"rows": found, "n_rows": args.rows, "peers": {name: version(name) for name in ("emlearn", "m2cgen")}}


def problems(results: dict[str, Any]) -> list[str]:
    """Labels that differ, and conversions that are slow."""
    found = results["rows"]
    slow = [r for r in found if "300 of depth 5" in r["source"] and r["seconds"] > LIMIT_SECONDS]
    wrong = [r for r in found if r["kind"] == "trees" and (r["differ"] or r["native_differ"])]
    return [f"{r['source']}, {r['way']}: slow" for r in slow] + [f"{r['source']}, {r['way']}: differs" for r in wrong]


def digits() -> Split:
    """1,797 rows of 64 whole numbers from 0 to 16; 40 % of them to test on."""
    X, y = load_digits(return_X_y=True)
    X, test, y, truth = train_test_split(X, y, test_size=0.4, random_state=0)
    return X, y, test, truth


def covertype() -> Split:
    """12,000 training and 20,000 test rows of 54 whole numbers."""
    if "HARDCASE_DATA" not in os.environ:
        sys.exit("HARDCASE_DATA is not set: expected the folder of covertype_sample.npz")
    with np.load(Path(os.environ["HARDCASE_DATA"]) / "covertype_sample.npz") as data:
        X, y, split = data["X"].astype(np.float64), data["y"].astype(np.int64), data["split_sizes_of_adapt"]
    train, test = (np.flatnonzero(split == k)[:n] for k, n in ((0, 12_000), (2, 20_000)))
    return X[train], y[train], X[test], y[test]


def measure(data: str, split: Split, n_rows: int) -> Iterator[dict[str, Any]]:
    """One figure per model and way of handing it over."""
    for name in MODELS if data == "digits" else ON_COVERTYPE:
        model, is_two = MODELS[name]
        X, y, test, truth = split
        y, truth = ((v > np.median(split[1])).astype(np.int64) if is_two else v for v in (y, truth))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        for way, names in (("live", MODELS), ("ONNX", AS_ONNX), ("skops", AS_SKOPS), ("JSON", AS_JSON)):
            if name in names:
                row = {
                    "data": data,
                    "source": name,
                    "way": way,
                    **ours(given(model, way, X), X, test, truth, n_rows),
                }
                rows = row.pop("probed")
                if way == "live":
                    row |= peers(model, rows, test, truth)
                print(json.dumps(row), flush=True)
                yield row


def given(model: Any, way: str, X: np.ndarray) -> Any:
    """What hardcase is given: the estimator, or the path of a file."""
    if way == "live":
        return model
    path = Path(tempfile.mkdtemp()) / f"model.{way.lower()}"
    if way == "skops":
        skops.io.dump(model, path)
    elif way == "JSON":
        model.save_model(path)
    elif isinstance(model, lightgbm.LGBMClassifier):
        types = [("x", FloatTensorType([None, X.shape[1]]))]
        path.write_bytes(convert_lightgbm(model, initial_types=types, target_opset=15).SerializeToString())
    else:
        path.write_bytes(to_onnx(model, X[:1].astype(np.float32)).SerializeToString())
    return path


# ---------------------------------------------------------------- ours


def ours(model: Any, X: np.ndarray, test: np.ndarray, truth: np.ndarray, n_rows: int) -> dict[str, Any]:
    """Labels, bytes and seconds of the imported model."""
    source = read_model(model)
    rows = X if source.linear is not None else None
    native = import_parts(source, rows=rows, n_check=n_rows, seed=1)
    layout = make_layout(source, {"model": {"type": "i32"}})
    layout = replace(layout, features=tuple(Feature("i32") for _ in layout.features))
    whole = import_parts(source, layout, rows=rows, n_check=n_rows, seed=2)
    said = labels_of(whole, test)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        import_model(model, Path(folder) / "m.hcb", rows=rows, min_agreement=0)
        seconds = time.process_time() - start
    classes = np.array(source.classes)
    return {
        "kind": "linear" if source.linear is not None else "trees",
        "leaves": whole.summed.bits,
        "known": whole.proof,
        "bound": whole.bound,
        "differ": whole.match.differ,
        "ties": whole.match.ties,
        "native_differ": native.match.differ,
        "native_ties": native.match.ties,
        "bytes": sum(len(t) * t.itemsize for t in encode(whole.program()).values()),
        "bytes_16": bytes_in_16(source, layout),
        "seconds": seconds,
        "accuracy": float(np.mean(classes[said] == truth)),
        "probed": whole.rows,
    }


def bytes_in_16(source: Source, layout: Any) -> int:
    """What it takes with leaves of 16 bits, whatever that does to the labels."""
    if source.linear is not None:
        return 0
    program = import_parts(source, layout, n_check=10, leaves="16").program()
    return sum(len(t) * t.itemsize for t in encode(program).values())


def labels_of(found: Imported, X: np.ndarray) -> np.ndarray:
    """Class indices of rows."""
    program = found.program()
    return labels_of_scores(scores_of(program, len(program.scorers) - 1, X))


# ---------------------------------------------------------------- peers


def peers(model: Any, rows: np.ndarray, test: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """What emlearn and m2cgen make of it, where they know its kind."""
    out: dict[str, Any] = {"source_accuracy": float(np.mean(said_by(model, test) == truth))}
    wanted = said_by(model, rows)
    makers = {
        "emlearn": lambda: by_emlearn(model, "int16_t"),
        "emlearn_float": lambda: by_emlearn(model, "float"),
        "m2cgen": lambda: by_m2cgen(model),
    }
    for name, make in makers.items():
        made = make()
        if made is not None:
            labels, n_bytes = made
            classes = model.classes_
            out[f"{name}_differ"] = int(np.sum(classes[labels(rows)] != wanted))
            out[f"{name}_accuracy"] = float(np.mean(classes[labels(test)] == truth))
            out[f"{name}_bytes"] = n_bytes
    return out


def said_by(model: Any, X: np.ndarray) -> np.ndarray:
    """The source's labels, without its word about names of columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(model.predict(X))


def by_emlearn(model: Any, kind: str) -> tuple[Labels, int] | None:
    """emlearn's C: tables of int16, or code that compares floats; forests add shares, as scikit-learn does."""
    if type(model).__name__ not in ("DecisionTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier"):
        return None
    leaf_bits = 8 if hasattr(model, "estimators_") else 0  # shares, as scikit-learn adds them
    method = "loadable" if kind == "int16_t" else "inline"  # its smaller form knows one type
    code = emlearn.convert(model, method=method, dtype=kind, leaf_bits=leaf_bits).save(name="m", include_proba=False)
    if method == "inline" and len(code) > MAX_C_BYTES:
        return None
    call = f"{kind} x[{model.n_features_in_}]; for (int f = 0; f < {model.n_features_in_}; f++) x[f] = ({kind})row[f];"
    return compiled(code, model.n_features_in_, f"{call} return m_predict(x, {model.n_features_in_});")


def by_m2cgen(model: Any) -> tuple[Labels, int] | None:
    """m2cgen's C over doubles; the best score is the label."""
    if type(model).__name__ not in KNOWN_TO_M2CGEN:
        return None
    sys.setrecursionlimit(100_000)
    code = m2cgen.export_to_c(model)
    n = len(model.classes_)
    if len(code) > MAX_C_BYTES:
        return None
    best = f"int k = 0; for (int c = 1; c < {n}; c++) if (out[c] > out[k]) k = c; return k;"
    return compiled(code, model.n_features_in_, f"double out[{n}]; score((double *)row, out); {best}")


def compiled(code: str, n_features: int, body: str) -> tuple[Labels, int]:
    """A function from rows to labels, and the bytes of text and data of the generated code alone."""
    folder = Path(tempfile.mkdtemp())
    loop = (
        "#include <math.h>\n"
        f"static int one(const double *row) {{ {body} }}\n"
        "void all(const double *rows, int n, int *out) { for (int k = 0; k < n; k++) "
        f"out[k] = one(rows + (long)k * {n_features}); }}\n"
    )
    (folder / "alone.c").write_text(code)
    (folder / "m.c").write_text(code + "\n" + loop)
    gcc = ["gcc", "-Os", "-w", "-fPIC", "-I", str(get_include_dir())]
    subprocess.run([*gcc, "-c", folder / "alone.c", "-o", folder / "alone.o"], check=True)
    subprocess.run([*gcc, "-shared", folder / "m.c", "-o", folder / "m.so", "-lm"], check=True)
    sizes = subprocess.run(["size", folder / "alone.o"], check=True, capture_output=True, text=True).stdout
    text, data = map(int, sizes.splitlines()[1].split()[:2])
    library = ctypes.CDLL(str(folder / "m.so"))

    def labels(X: np.ndarray) -> np.ndarray:
        rows, out = np.ascontiguousarray(X, dtype=np.float64), np.zeros(len(X), dtype=np.intc)
        library.all(rows.ctypes.data_as(ctypes.c_void_p), len(rows), out.ctypes.data_as(ctypes.c_void_p))
        return out

    return labels, text + data


# ---------------------------------------------------------------- the page


def page(results: dict[str, Any]) -> str:
    """docs/benchmarks/import.md."""
    found, names = results["rows"], ("emlearn", "emlearn_float", "m2cgen")
    peers = " and ".join(f"{name} {number}" for name, number in results["peers"].items())
    lines = [
        "# Imported models compared with emlearn and m2cgen",
        "",
        f"`make bench NAME=import` counts labels unlike the model's, of {results.get('n_rows', N_ROWS):,} rows "
        "at thresholds, beside and between them, with whole readings; *any*: numbers of the source's own type.",
        "After a plus: where the source's two best scores are nearer than the rounding of its own sums.",
        f"The peers, which read live models, are {peers}; a cell is "
        "empty if one does not support the model, or its C is larger than 0.5 MB.",
        'emlearn writes `x < (int)threshold` for `x <= threshold`, and keeps the threshold with `dtype="float"`.',
        "Ways that agree share a line; of models that are not here no label differs, and no peer has them.",
        "",
    ]
    first = [
        (r["data"], r["source"], r["way"], r["leaves"], counted(r["differ"], r["ties"]),
         counted(r["native_differ"], r["native_ties"]),
         *(f"{r[k]:,}" if (k := f"{n}_differ") in r else "" for n in names))
        for r in found
    ]  # fmt: skip
    heads = ("data", "source", "way", "leaves", "ours", "any", "emlearn", "emlearn, float", "m2cgen")
    lines.append(markdown(heads, merged(first), is_same, "models of which no label differs"))
    below = [
        "Accuracy on test rows in percent, bytes (theirs: code and data at -Os on x86-64; ours: the program's data, in "
        "brackets with leaves of 16 bits where the labels needed 31), and CPU seconds of a whole conversion:\n",
    ]
    second = []
    for r in found:
        wide = f" ({r['bytes_16']:,})" if r["leaves"] == "31" else ""
        second.append((
            r["data"], r["source"], r["way"], percent(r, "source_accuracy"), percent(r, "accuracy"),
            *(percent(r, f"{n}_accuracy") for n in names), f"{r['bytes']:,}{wide}",
            *(f"{r[k]:,}" if (k := f"{n}_bytes") in r else "" for n in names), f"{r['seconds']:.2f}",
        ))  # fmt: skip
    titles = ("data", "source", "way", "accuracy: source", "ours", "emlearn", "emlearn, float", "m2cgen", "bytes: ours",
              "emlearn", "emlearn, float", "m2cgen", "seconds")  # fmt: skip
    second_table = "\n".join([*below, markdown(titles, merged(second, 1))])
    return "\n".join([*lines, rest("accuracies, bytes and seconds", second_table)])


def is_same(row: tuple[str, ...]) -> bool:
    """No label differs, and no peer has the model."""
    return {*row[4:]} <= {"0", ""} and not any(row[6:])


def merged(rows: list[tuple[str, ...]], n_own: int = 0) -> list[tuple[str, ...]]:
    """Rows of one model whose cells agree, but for the way and the last ``n_own``; an empty cell agrees with any.

    >>> merged([("d", "tree", "live", "0", "7"), ("d", "tree", "ONNX", "0", ""), ("d", "tree", "skops", "1", "")])
    [('d', 'tree', 'live, ONNX', '0', '7'), ('d', 'tree', 'skops', '1', '')]
    """
    made: list[list[str]] = []
    for row in rows:
        last = made[-1] if made else list[str]()
        end = len(row) - n_own
        pairs = list(zip(last[3:end], row[3:end], strict=False))
        if last[:2] == list(row[:2]) and all(a == b or "" in (a, b) for a, b in pairs):
            made[-1] = [*row[:2], f"{last[2]}, {row[2]}", *(a or b for a, b in pairs),
                        *(f"{a}, {b}" for a, b in zip(last[end:], row[end:], strict=True))]  # fmt: skip
        else:
            made.append(list(row))
    return [tuple(row) for row in made]


def version(package: str) -> str:
    """The installed version."""
    from importlib.metadata import version as of

    return of(package)


def counted(differ: int, ties: int) -> str:
    """Labels that differ, and those at ties."""
    return f"{differ:,}" + (f" + {ties:,}" if ties else "")


def percent(row: dict[str, Any], key: str) -> str:
    """A share in percent; empty where there is none."""
    return f"{100 * row[key]:.2f}" if key in row else ""
