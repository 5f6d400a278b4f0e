# SPDX-License-Identifier: Apache-2.0
"""Small networks become TFLite files inside a bundle, with the labels of scikit-learn and of onnxruntime."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Opaque
from hardcase_edge.session.session import LOCAL
from hardcase_export.foreign_model import import_model, import_parts, read_model
from hardcase_export.integers.decide import decide
from hardcase_export.sources.from_onnx import read_onnx

from .test_import import fitted, gaps, one_thread, table

__all__ = ["one_thread"]

N = 600
SCALE = np.array([1, 100, 1e-3, 1, 1])


@cache
def network(n_classes: int, activation: str = "relu", *, missing: bool = False) -> Any:
    """A pipeline with a network, on readings of very different sizes far from zero."""
    model = make_pipeline(
        SimpleImputer(), StandardScaler(), MLPClassifier((8, 4), activation=activation, max_iter=60, random_state=0)
    )
    X, y = table(n_classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge
        return model.fit((gaps(X) if missing else X) * SCALE + 300, y)


def given(way: str, model: Any, folder: Path) -> Any:
    if way == "live":
        return model
    path = folder / f"m.{way}"
    if way == "skops":
        skops.io.dump(model, path)
    else:
        path.write_bytes(to_onnx(model, np.zeros((1, 5), dtype=np.float32)).SerializeToString())
    return path


@pytest.mark.parametrize("way", ["live", "skops", "onnx"])
@pytest.mark.parametrize(
    ("n_classes", "activation"), [(2, "relu"), (3, "relu"), (2, "tanh"), (3, "logistic"), (2, "identity")]
)
def test_labels_of_a_network_are_those_of_its_source(way: str, n_classes: int, activation: str, tmp_path: Path) -> None:
    X = table(2)[0] * SCALE + 300
    model = network(n_classes, activation)
    found = import_model(given(way, model, tmp_path), tmp_path / "m.hcb", rows=X, n_check=N).imported
    assert found.match.agreement >= 0.999
    assert found.match.off < 1e-4
    assert isinstance(found.program().scorers[0], Opaque)
    machine = load_bundle(tmp_path / "m.hcb").machine
    rows = X[:30].astype(np.float32).astype(np.float64)
    decisions = [decide(machine, row, None) for row in rows.tolist()]
    assert {d.route for d in decisions} == {LOCAL}
    assert [d.result for d in decisions] == model.predict(rows).tolist()
    truth = model.predict_proba(rows).max(axis=1)
    assert all(d.confidence / 1e4 <= p + 1e-4 for d, p in zip(decisions, truth, strict=True))


@pytest.mark.parametrize("has_imputer", [True, False])
def test_a_missing_reading_gives_the_answer_for_the_imputed_or_the_median_row(
    has_imputer: bool, tmp_path: Path
) -> None:
    X = gaps(table(2)[0]) * SCALE + 300
    model = network(3, missing=True)
    source = model if has_imputer else model[1:]
    found = import_model(source, tmp_path / "m.hcb", rows=X, n_check=N).imported
    said = decide(load_bundle(tmp_path / "m.hcb").machine, [None, *(float(v) for v in X[0, 1:])], None)
    assert not np.isnan(found.rows).any()
    expected = np.full((1, 5), np.nan) if has_imputer else np.median(found.rows, axis=0)[None]
    assert said.result == source.predict(expected)[0]


# ---------------------------------------------------------------- ONNX of other writers


def dense(sizes: tuple[int, ...], end: str = "", *, transposed: bool = True, **attributes: Any) -> bytes:
    """A chain of Gemm and Relu over ``sizes``, with a node of this kind at its end."""
    rng, nodes, constants, x = np.random.default_rng(1), [], [], "x"
    for k, (a, b) in enumerate(pairwise(sizes)):
        weights = rng.normal(size=(b, a) if transposed else (a, b))
        for name, values in ((f"w{k}", weights), (f"b{k}", rng.normal(size=b))):
            constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        nodes.append(helper.make_node("Gemm", [x, f"w{k}", f"b{k}"], [f"g{k}"], transB=int(transposed), **attributes))
        x = f"g{k}"
        if k < len(sizes) - 2:
            nodes.append(helper.make_node("Relu", [x], [f"r{k}"]))
            x = f"r{k}"
    nodes.append(helper.make_node(end or "Identity", [x], ["y"]))
    shapes = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, k]) for n, k in (("x", sizes[0]), ("y", sizes[-1]))
    ]
    graph = helper.make_graph(nodes, "g", shapes[:1], shapes[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(
    ("sizes", "end", "classes"),
    [
        ((5, 8, 3), "", 3),
        ((5, 8, 3), "Softmax", 3),
        ((5, 8, 2), "Softmax", 2),
        ((5, 1), "Sigmoid", 2),
        ((5, 6, 1), "Sigmoid", 2),
    ],
)
def test_a_chain_of_dense_layers_is_read(
    sizes: tuple[int, ...], end: str, classes: int, transposed: bool, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(dense(sizes, end, transposed=transposed))
    found = import_model(tmp_path / "m.onnx", tmp_path / "m.hcb", rows=table(2)[0], n_check=N).imported
    assert found.source.classes == tuple(range(classes))
    assert found.match.agreement >= 0.999
    assert len(set(found.source.predict(found.rows).tolist())) > 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(dense((5, 4, 3), "Erf"), "has a Erf behind a layer", id="odd"),
        pytest.param(dense((5, 4, 3), alpha=2.0), "a Gemm that is not a plain layer", id="alpha"),
        pytest.param(dense((5, *[2] * 20, 3)), "has a Gemm behind a layer", id="deep"),
        pytest.param(dense((5, 4, 1)), "gives one score, which may be a value; end it with a Sigmoid", id="value"),
    ],
)
def test_another_network_is_refused_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_onnx(data)
    assert "\n" not in str(caught.value)


def test_a_network_needs_ranges_and_rows_without_gaps_and_has_no_parts(tmp_path: Path) -> None:
    source = read_model(network(2))
    with pytest.raises(InputError, match="needs the range of its readings; give rows"):
        import_model(network(2), tmp_path / "m.hcb")
    with pytest.raises(InputError, match="every row has a missing reading"):
        import_model(network(2), tmp_path / "m.hcb", rows=np.full((3, 5), np.nan))
    with pytest.raises(InputError, match="which no scorer of integers expresses"):
        import_parts(source)
    clipped = make_pipeline(MinMaxScaler(clip=True), MLPClassifier((4,), max_iter=300, random_state=0))
    with pytest.raises(InputError, match="reads clipped readings"):
        read_model(fitted(clipped))
    X, y = table(2)
    several = fitted_to(MLPClassifier((4,), max_iter=20, random_state=0), X, np.stack([y, 1 - y], axis=1))
    with pytest.raises(InputError, match="gives several labels to a row"):
        read_model(several)
    assert not (tmp_path / "m.hcb").exists()


def fitted_to(model: Any, X: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def test_the_command_says_that_it_is_a_tflite_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(dense((2, 4, 3), "Softmax"))
    (tmp_path / "s.toml").write_text('[model]\nfeatures = ["a", "b"]\n[range]\na = [-1, 1]\nb = [0, 5]\n')
    files = [
        "--model",
        str(tmp_path / "m.onnx"),
        "--sensors",
        str(tmp_path / "s.toml"),
        "--out",
        str(tmp_path / "m.hcb"),
    ]
    assert main(["export", *files, "--check", "200"]) == 0
    said = capsys.readouterr().out
    assert "source     ONNX network, a TFLite model, which devices run by ai-edge-litert; scores within" in said
    assert "of the source's on these rows" in said
