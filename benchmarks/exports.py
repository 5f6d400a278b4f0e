# SPDX-License-Identifier: Apache-2.0
"""A policy's parts as ONNX and TFLite: bytes, time of a row, and scores that differ; in tflite-runtime 2.14 too.

    python -m benchmarks run exports [--rows 300] [--runs 5] [--no-old]

Boosted trees are scikit-learn's on its digits, odd against even, quantised as any draft is; the linear scorer has the
same 64 features. Beside our files: skl2onnx's of the same booster (float probabilities, not our integers), and the
batched matrix product that trees become where there is no tree operator. tflite-runtime and numpy 1.26 are installed
in an environment of their own, and given the same files, and those of the random programs of the tests.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import (
    CODE_MAX,
    Acquire,
    Answer,
    Column,
    Feature,
    Polynomial,
    Program,
    Rank,
    Sensor,
    Slice,
    Tree,
    Trees,
    Uplink,
)
from hardcase_edge.session.tflite import open_interpreter
from hardcase_export.integers.decide import codes_of, readings_of
from hardcase_export.integers.quantise import quantise
from hardcase_export.scorers.comparisons import Splits, splits_of
from hardcase_export.scorers.parts import ScorerPart, parts_of
from hardcase_export.scorers.replay import expected_scores, feeds_of, open_onnx
from hardcase_export.to_onnx.scorer import onnx_of
from hardcase_export.to_tflite.graph import OPTIONS, TfliteGraph
from hardcase_export.to_tflite.int8 import int8_of
from hardcase_export.to_tflite.scorer import tflite_of
from hardcase_train.linear.standardise import make_standard

OLD = ("tflite-runtime==2.14.0", "numpy==1.26.4")
KINDS = ("linear", "polynomial", "trees", "stack")
Row = dict[str, Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-old", action="store_true")


def run(args: Any) -> Any:
    """Measure."""
    return measure(args.rows, args.runs, has_old=not args.no_old)


# ---------------------------------------------------------------- programs


def data() -> tuple[np.ndarray, np.ndarray]:
    """Digits with a little noise, so that readings are no small integers; odd or even."""
    X, y = load_digits(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=X.shape) * 0.1
    return (X + noise).astype(np.float32).astype(np.float64), y % 2


def boosted(n_trees: int, depth: int) -> tuple[Program, GradientBoostingClassifier]:
    """One score per class of two, so that both forms of an answer are alike."""
    X, y = data()
    model = GradientBoostingClassifier(n_estimators=n_trees, max_depth=depth, random_state=0).fit(X, y)
    fitted = [e[0].tree_ for e in model.estimators_]
    ranks = [
        sorted({float(np.float32(t)) for f in fitted for t in f.threshold[f.feature == j]}) for j in range(X.shape[1])
    ]
    columns = tuple(Column(f, Rank(tuple(r))) for f, r in enumerate(ranks))
    trees = tuple(_tree(f, ranks, model.learning_rate) for f in fitted)
    base = float(np.log(y.mean() / (1 - y.mean())))
    return _program(columns, Trees(tuple(range(X.shape[1])), (base,), trees)), model


def _tree(fitted: Any, ranks: list[list[float]], rate: float) -> Tree:
    inner = [i for i in range(fitted.node_count) if fitted.children_left[i] >= 0]
    leaves = [i for i in range(fitted.node_count) if fitted.children_left[i] < 0]
    place = {i: k for k, i in enumerate(inner)} | {i: -1 - k for k, i in enumerate(leaves)}
    codes = [ranks[fitted.feature[i]].index(float(np.float32(fitted.threshold[i]))) - CODE_MAX for i in inner]
    return Tree(
        output=0,
        width=1,
        splits=tuple(int(fitted.feature[i]) for i in inner),
        thresholds=tuple(codes),
        missing_left=(True,) * len(inner),
        children=tuple((place[fitted.children_left[i]], place[fitted.children_right[i]]) for i in inner),
        leaves=tuple(float(rate * fitted.value[i, 0, 0]) for i in leaves),
    )


def linear() -> Program:
    """A logistic regression on standardised columns."""
    X, y = data()
    standard = make_standard(X)
    used = [c for c in standard.columns if c is not None]
    model = LogisticRegression(max_iter=2000).fit(standard.transform(X)[:, [c.feature for c in used]], y)
    weights = (*(float(w) / 2048 for w in model.coef_[0]), float(model.intercept_[0]) / 2048)
    n = len(used)
    scorer = Polynomial(
        tuple(range(n)), (0,) * n, 2048, tuple((k,) for k in range(n + 1)), (weights,), (0.0,), weight_bits=16
    )
    return _program(tuple(used), scorer)


def _program(columns: tuple[Column, ...], scorer: Trees | Polynomial) -> Program:
    n = data()[0].shape[1]
    nodes = (Acquire((0,), 1, 1), Answer(Slice(0, 0, 1)))
    draft = Program(
        features=tuple(Feature("f32", nullable=True) for _ in range(n)),
        sensors=(Sensor(tuple(range(n)), (1,)),),
        uplink=Uplink(),
        columns=columns,
        scorers=(scorer,),
        nodes=nodes,
        n_classes=2,
    )
    return quantise(draft).program


# ---------------------------------------------------------------- measuring


def measure(n_rows: int, n_runs: int, *, has_old: bool) -> dict[str, Any]:
    """All rows of the table."""
    rows: list[Row] = []
    files: dict[str, tuple[bytes, Any, np.ndarray]] = {}
    for case, (program, booster) in {
        "100 trees of depth 4": boosted(100, 4),
        "300 trees of depth 5": boosted(300, 5),
        "linear, 64 features": (linear(), None),
    }.items():
        (part,) = parts_of(program)
        readings = readings_of(program, data()[0][:n_rows])
        feeds = feeds_of(part, readings)
        wanted, _ = expected_scores(program, part, readings)
        names = [f"x{k}" for k in range(len(program.features))]
        manifest = Manifest(name=case, unit="mJ", features=tuple(names), sensors=("s",), classes=(0, 1))
        made = {"ONNX": onnx_of(program, part, manifest), "TFLite": tflite_of(program, part)}
        rows.append(_onnx(case, "ONNX", made["ONNX"], feeds, wanted, n_runs))
        rows.append(_tflite(case, "TFLite", made["TFLite"], feeds, wanted, n_runs))
        files[case] = (made["TFLite"], feeds, wanted)
        if booster is not None:
            product = matrix_product(program, part)
            rows.append(_tflite(case, "TFLite, matrix product", product, feeds, wanted, n_runs))
            rows.append(_skl2onnx(case, booster, feeds, n_runs))
        else:
            small = int8_of(program, part, codes_of(program, readings))
            assert small is not None
            near = small.expected(codes_of(program, readings))
            row = _tflite(case, "TFLite int8", small.data, feeds, near, n_runs, is_near=True)
            rows.append({**row, "allowed": small.allowed, "span": small.range[1] - small.range[0]})
    said: dict[str, Any] = {"rows": rows, "n_rows": n_rows, "machine": platform.machine(), **_versions()}
    return said | ({"old": old_runtime(files)} if has_old else {})


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("onnxruntime", "ai-edge-litert", "skl2onnx", "numpy")}


def _row(case: str, file: str, data: bytes, took: float, differ: int | None) -> Row:
    return {"case": case, "file": file, "bytes": len(data), "us": round(took * 1e6, 2), "differ": differ}


def _best(run: Callable[[int], Any], n: int, n_runs: int) -> float:
    """Seconds a row: the best of several passes over all rows."""
    passes = []
    for _ in range(n_runs):
        began = time.perf_counter()
        for k in range(n):
            run(k)
        passes.append((time.perf_counter() - began) / n)
    return min(passes)


def _onnx(case: str, file: str, data: bytes, feeds: Any, wanted: np.ndarray, n_runs: int) -> Row:
    session = open_onnx(data)
    (found,) = session.run(["scores"], feeds)
    single = [{k: v[i : i + 1] for k, v in feeds.items()} for i in range(len(wanted))]
    took = _best(lambda i: session.run(["scores"], single[i]), len(wanted), n_runs)
    return _row(case, file, data, took, int((found != wanted).any(axis=1).sum()))


def _tflite(
    case: str, file: str, data: bytes, feeds: Any, wanted: np.ndarray, n_runs: int, *, is_near: bool = False
) -> Row:
    interpreter = open_interpreter(data)
    (into,), (out,) = interpreter.get_input_details(), interpreter.get_output_details()
    X = next(iter(feeds.values()))

    def run(i: int) -> Any:
        interpreter.set_tensor(into["index"], X[i : i + 1])
        interpreter.invoke()
        return interpreter.get_tensor(out["index"])

    found = np.vstack([run(i) for i in range(len(X))])
    took = _best(run, len(X), n_runs)
    if is_near:
        return {**_row(case, file, data, took, None), "gap": float(np.abs(found - wanted).max())}
    return _row(case, file, data, took, int((found != wanted).any(axis=1).sum()))


def _skl2onnx(case: str, model: Any, feeds: Any, n_runs: int) -> Row:
    from hardcase_export.to_onnx.from_sklearn import convert_hpc

    data = convert_hpc(model, 2, ["f32"] * 64)
    session = open_onnx(data)
    X = next(iter(feeds.values()))
    took = _best(lambda i: session.run(["probabilities"], {"X": X[i : i + 1]}), len(X), n_runs)
    return _row(case, "ONNX by skl2onnx", data, took, None)


# ---------------------------------------------------------------- trees as a matrix product


class _Product(TfliteGraph):
    options = OPTIONS | {"BATCH_MATMUL": "BatchMatMul", "EQUAL": "Equal"}


def matrix_product(program: Program, part: ScorerPart) -> bytes:
    """All comparisons, then per tree and leaf: how many on its path came out as the path wants."""
    trees, (scorer,) = splits_of(program, part.scores), program.scorers
    assert isinstance(scorer, Trees)
    n_nodes, n_leaves = max(len(t.children) for t in trees), max(len(t.leaves) for t in trees)
    columns, bounds = (np.zeros((len(trees), n_nodes)) for _ in range(2))
    wants = np.zeros((len(trees), n_leaves, n_nodes), np.float32)
    counts = np.full((len(trees), n_leaves, 1), -1e9, np.float32)
    leaves = np.zeros((len(trees), n_leaves))
    for k, t in enumerate(trees):
        features = [program.columns[c].feature for c in t.columns]
        columns[k, : len(features)], bounds[k, : len(t.bounds)] = features, t.bounds
        for leaf, path in _paths(t).items():
            leaves[k, leaf] = t.leaves[leaf][0]
            for node, is_left in path:
                wants[k, leaf, node] = 1 if is_left else -1
            counts[k, leaf] = sum(is_left for _, is_left in path)
    g = _Product()
    x = g.reshape(g.input("f32", "f4", (1, len(program.features))), len(program.features))
    left = g.compare("LESS_EQUAL", g.gather(x, columns.ravel().astype(np.int32)), g.const(bounds.ravel(), "f4"))
    left = g.reshape(g.cast(left, "f4"), len(trees), n_nodes, 1)
    met = g.op("BATCH_MATMUL", g.const(wants, "f4"), left, shape=counts.shape, dtype="f4")
    reached = g.reshape(g.cast(g.compare("EQUAL", met, g.const(counts, "f4")), "f4"), 1, counts.size)
    weights, base = g.const(leaves.reshape(1, -1), "f4"), g.const(scorer.base, "f4")
    return g.model("product", {"scores": g.op("FULLY_CONNECTED", reached, weights, base, shape=(1, 1))})


def _paths(t: Splits) -> dict[int, list[tuple[int, bool]]]:
    """Per leaf: the nodes on its path, and whether it goes left there."""
    out: dict[int, list[tuple[int, bool]]] = {}
    todo: list[tuple[int, list[tuple[int, bool]]]] = [(0, [])]
    while todo:
        node, path = todo.pop()
        if node < 0:
            out[-1 - node] = path
            continue
        left, right = t.children[node]
        todo += [(left, [*path, (node, True)]), (right, [*path, (node, False)])]
    return out


# ---------------------------------------------------------------- tflite-runtime

OLD_SCRIPT = """
import json, sys, time
import numpy as np
from pathlib import Path
from benchmarks.pages import ROOT
from tflite_runtime.interpreter import Interpreter
folder, out = Path(sys.argv[1]), {}
for path in sorted(folder.glob("*.tflite")):
    held = np.load(path.with_suffix(".npz"))
    it = Interpreter(model_content=path.read_bytes(), num_threads=1)
    it.allocate_tensors()
    details, y = it.get_input_details(), it.get_output_details()[0]["index"]
    wanted, able = held["wanted"], held["able"]
    def run(k):
        for d in details:
            it.set_tensor(d["index"], held_inputs[d["name"]][k:k+1])
        it.invoke()
        return it.get_tensor(y)[0]
    held_inputs = {d["name"]: held[d["name"]] for d in details}
    found = np.array([run(k) for k in range(len(wanted))])
    passes = []
    for _ in range(5):
        began = time.perf_counter()
        for k in range(len(wanted)):
            run(k)
        passes.append((time.perf_counter() - began) / len(wanted) * 1e6)
    differ = int((found[able] != wanted[able]).any(axis=1).sum())
    out[path.stem] = {"rows": int(able.sum()), "differ": differ, "us": min(passes)}
print(json.dumps(out))
"""


def old_runtime(files: dict[str, tuple[bytes, Any, np.ndarray]]) -> dict[str, Any]:
    """The same files and those of random programs in tflite-runtime: rows, rows that differ, times."""
    from tests.helpers.export.scorer_parts import cases

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for k, (data_, feeds, wanted) in enumerate(files.values()):
            _save(folder / f"case-{k}.tflite", data_, feeds, wanted, np.ones(len(wanted), bool))
        for kind in KINDS:
            for k, case in enumerate(cases(kind)):
                wanted, able = expected_scores(case.program, case.part, case.rows)
                feeds = feeds_of(case.part, case.rows)
                _save(folder / f"{kind}-{k}.tflite", tflite_of(case.program, case.part), feeds, wanted, able)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *OLD], check=True)
        done = subprocess.run([python, "-c", OLD_SCRIPT, name], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    random = [v for k, v in found.items() if not k.startswith("case-")]
    return {
        "cases": {case: found[f"case-{k}"] for k, case in enumerate(files)},
        "random": {"files": len(random), **{key: sum(v[key] for v in random) for key in ("rows", "differ")}},
    }


def _save(path: Path, data: bytes, feeds: Any, wanted: np.ndarray, able: np.ndarray) -> None:
    path.write_bytes(data)
    np.savez(path.with_suffix(".npz"), wanted=wanted, able=able, **feeds)


# ---------------------------------------------------------------- the page


def page(said: dict[str, Any]) -> str:
    """docs/benchmarks/exports.md."""
    lines = [
        "# Files of other runtimes: bytes and times",
        "",
        f"`make bench NAME=exports` (`benchmarks/exports.py`) wrote this page on {said['machine']}, with one thread, "
        f"onnxruntime {said['onnxruntime']} and ai-edge-litert {said['ai-edge-litert']}.",
        f"Times are microseconds of one row from Python, the best of several passes over {said['n_rows']} rows.",
        "Rows that differ have another score than the program.",
        "skl2onnx gives float probabilities, which are not compared.",
        "",
        "| case | file | bytes | us | rows that differ |",
        "|---|---|---|---|---|",
    ]
    for r in said["rows"]:
        differ = "" if r["differ"] is None else str(r["differ"])
        if "allowed" in r:
            near, may = (100 * r[key] / r["span"] for key in ("gap", "allowed"))
            differ = f"off by at most {near:.1f} % of its range, {may:.1f} % allowed"
        lines.append(f"| {r['case']} | {r['file']} | {r['bytes']:,} | {r['us']:.1f} | {differ} |")
    old = said.get("old")
    if old:
        lines += ["", f"These are the same TFLite files in {' with '.join(o.replace('==', ' ') for o in OLD)}:", ""]
        lines += ["| case | us | rows that differ |", "|---|---|---|"]
        lines += [f"| {case} | {v['us']:.1f} | {v['differ']} of {v['rows']} |" for case, v in old["cases"].items()]
        r = old["random"]
        lines += [
            "",
            f"Of the {r['files']} files of the tests' random programs, {r['differ']} of {r['rows']} rows differ.",
        ]
    return "\n".join(lines) + "\n"
