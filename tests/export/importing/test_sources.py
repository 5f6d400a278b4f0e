# SPDX-License-Identifier: Apache-2.0
"""Models from files: what skl2onnx, onnxmltools, LightGBM and skops write; and what nobody should have written."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pytest
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from hardcase.cli import main
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.more.batch.scores import scores_of
from hardcase_export.foreign_model import import_model, import_parts, read_model
from hardcase_export.importing.reference import labels_of_scores
from hardcase_export.sources.from_lightgbm import read_lightgbm
from hardcase_export.sources.from_onnx import read_onnx
from hardcase_export.sources.from_skops import read_skops

from .test_import import LGBM, N, fitted, gaps, one_thread, same_labels, table

__all__ = ["one_thread"]

Capture = pytest.CaptureFixture[str]

MODELS = {
    "forest": RandomForestClassifier(20, random_state=0),
    "shallow forest": RandomForestClassifier(15, max_depth=3, random_state=0),
    "boosted": GradientBoostingClassifier(n_estimators=8, random_state=0),
    "histogram": HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5, random_state=0),
    "lightgbm": lightgbm.LGBMClassifier(**{**LGBM, "n_estimators": 8}),
    "logistic": LogisticRegression(),
    "margin": LinearSVC(),
    "ridge": RidgeClassifier(),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
}
LINES = ("logistic", "margin", "ridge", "scaled")
BEFORE = {
    "imputed": make_pipeline(SimpleImputer(), StandardScaler(), RandomForestClassifier(3, max_depth=3, random_state=0)),
    "network": make_pipeline(StandardScaler(), MLPClassifier((3,), max_iter=5, random_state=0)),
}


@cache
def written(name: str, n_classes: int = 2) -> bytes:
    """The model as an ONNX file."""
    model = fitted((MODELS | BEFORE)[name], n_classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "lightgbm":
            made = convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, 5]))], target_opset=15)
        else:
            made = to_onnx(model, table(2)[0][:1].astype(np.float32))
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", [name for name in MODELS if name not in LINES])
def test_an_onnx_file_of_trees_keeps_onnxruntime_s_labels(name: str, n_classes: int) -> None:
    source = read_onnx(written(name, n_classes))
    assert source.dtype == "f32"
    assert source.predict is not None
    same_labels(import_parts(source, n_check=N))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", ["forest", "lightgbm"])
def test_probabilities_may_be_a_tensor_or_a_zipmap(name: str, n_classes: int) -> None:
    """onnxmltools multiplies LightGBM's by one then, which no label passes through."""
    model = fitted(MODELS[name], n_classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "lightgbm":
            types = [("x", FloatTensorType([None, 5]))]
            plain = convert_lightgbm(model, initial_types=types, target_opset=15, zipmap=False)
        else:
            plain = to_onnx(model, table(2)[0][:1].astype(np.float32), options={"zipmap": False})
    assert "ZipMap" in str(onnx.load_model_from_string(written(name, n_classes)).graph.node)
    assert "ZipMap" not in str(plain.graph.node)
    source = read_onnx(plain.SerializeToString())
    assert [t.splits for t in source.trees] == [t.splits for t in read_onnx(written(name, n_classes)).trees]
    same_labels(import_parts(source, n_check=N))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", LINES)
def test_an_onnx_file_of_a_linear_model_stays_within_its_bound(name: str, n_classes: int) -> None:
    found = import_parts(read_onnx(written(name, n_classes)), rows=table(2)[0], n_check=N)
    assert found.match.off <= found.bound
    assert found.match.agreement >= 0.999


@pytest.mark.parametrize("model", [GradientBoostingRegressor(n_estimators=8), LinearRegression()])
def test_an_onnx_file_of_values_stays_within_its_bound(model: Any) -> None:
    X = table(2)[0]
    data = to_onnx(model.fit(X, X[:, 0] + X[:, 3]), X[:1].astype(np.float32)).SerializeToString()
    found = import_parts(read_onnx(data), rows=X, n_check=N)
    assert found.match.differ == 0


# ---------------------------------------------------------------- hand-made ONNX


def small(mode: str = "BRANCH_LEQ", track: int = 0, cut: float = 0.5, **changed: Any) -> bytes:
    """A regressor of two trees of one node each; keywords change its attributes, None leaves one out."""
    attributes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2],
        "nodes_featureids": [0, 0, 0, 1, 0, 0],
        "nodes_values": [cut, 0.0, 0.0, cut, 0.0, 0.0],
        "nodes_modes": [mode, "LEAF", "LEAF"] * 2,
        "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [track, 0, 0] * 2,
        "target_treeids": [0, 0, 1, 1],
        "target_nodeids": [1, 2, 1, 2],
        "target_ids": [0] * 4,
        "target_weights": [1.0, -1.0, 0.25, -0.25],
        "n_targets": 1,
    } | changed
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        **{k: v for k, v in attributes.items() if v is not None},
    )
    return wrapped([node])


def wrapped(nodes: list[Any], n_features: int = 2) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, n_features])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("track", [0, 1])
@pytest.mark.parametrize("cut", [0.5, 0.0, -1.5])
@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"])
def test_every_comparison_is_onnxruntime_s(mode: str, cut: float, track: int) -> None:
    source = read_onnx(small(f"BRANCH_{mode}", track, cut))
    found = import_parts(source, n_check=200)
    at = np.float32(cut)
    odd = [at, np.nextafter(at, np.float32(9)), np.nextafter(at, np.float32(-9)), 0.0, -0.0, 7.0, -7.0, np.nan]
    rows = np.array([(a, b) for a in odd for b in odd], dtype=np.float64)
    assert source.predict is not None
    ours = scores_of(found.program(), len(found.parts.scorers) - 1, rows + 0.0)[:, 0] / found.summed.scale
    assert np.allclose(ours, source.predict(rows), atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"nodes_values": [np.nan] * 6}, "threshold of the ONNX trees is not a number", id="nan"),
        pytest.param({"nodes_truenodeids": [0, 0, 0, 1, 0, 0]}, "has two parents", id="circle"),
        pytest.param({"nodes_truenodeids": [9, 0, 0, 1, 0, 0]}, "a child of node 0 that does not exist", id="child"),
        pytest.param({"nodes_modes": None}, "nodes_modes", id="missing-attribute"),
        pytest.param({"nodes_featureids": [7, 0, 0, 1, 0, 0]}, "tests feature 7, out of range 0..1", id="feature"),
        pytest.param({"n_targets": 10**9}, "leaf weights", id="targets"),
        pytest.param({"target_ids": [5, 0, 0, 0]}, "an output out of range 0..0", id="target"),
        pytest.param({"nodes_values": [0.5]}, "attributes of other lengths", id="lengths"),
        pytest.param({"nodes_nodeids": [0, 1, 1, 0, 1, 2]}, "has the node 1 twice", id="twice"),
        pytest.param({"mode": "BRANCH_MEMBER"}, "compare by 'BRANCH_MEMBER'", id="mode"),
        pytest.param({"aggregate_function": "MAX"}, "combined by MAX", id="aggregate"),
        pytest.param({"post_transform": "PROBIT"}, "ends in PROBIT", id="post"),
        pytest.param({"target_weights": [np.inf, 1.0, 1.0, 1.0]}, "leaf that is not finite", id="inf"),
    ],
)
def test_an_onnx_file_that_leads_nowhere_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_onnx(small(**changed))


def test_an_onnx_graph_of_anything_else_is_refused() -> None:
    X, y = table(2)
    with pytest.raises(InputError, match=r"is a graph of .*; write one with a single TreeEnsembleClassifier, "):
        read_onnx(to_onnx(GaussianNB().fit(X, y), X[:1].astype(np.float32)).SerializeToString())
    with pytest.raises(InputError, match="is a graph of Relu"):
        read_onnx(wrapped([helper.make_node("Relu", ["x"], ["y"])]))


def test_numbers_in_another_file_are_not_looked_for() -> None:
    model = onnx.load_model_from_string(small(nodes_values=None))
    tensor = TensorProto(name="v", data_type=TensorProto.DOUBLE, dims=[6], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    model.graph.node[0].attribute.append(helper.make_attribute("nodes_values_as_tensor", tensor))
    with pytest.raises(InputError, match="keeps numbers in another file"):
        read_onnx(model.SerializeToString())


# ---------------------------------------------------------------- LightGBM's text


def text_of(n_classes: int = 2, **settings: Any) -> bytes:
    model = fitted(lightgbm.LGBMClassifier(**{**LGBM, "n_estimators": 4, **settings}), n_classes, missing=True)
    return bytes(model.booster_.model_to_string().encode())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lightgbm_s_text_is_read_as_lightgbm_reads_it(n_classes: int, tmp_path: Path) -> None:
    data = text_of(n_classes, n_estimators=20)
    (tmp_path / "m.txt").write_bytes(data)
    found = import_parts(read_model(tmp_path / "m.txt"), rows=gaps(table(2)[0]), n_check=N)
    same_labels(found)
    said = lightgbm.Booster(model_str=data.decode()).predict(found.rows)
    said = np.stack([1 - said, said], axis=1) if n_classes == 2 else said
    ours = scores_of(found.program(), len(found.parts.scorers) - 1, found.rows)
    assert (labels_of_scores(ours) == said.argmax(axis=1)).all()


def test_a_forest_by_lightgbm_is_an_average() -> None:
    data = text_of(boosting_type="rf", bagging_freq=1, bagging_fraction=0.5, subsample_freq=1, subsample=0.5)
    assert b"average_output" in data
    same_labels(import_parts(read_lightgbm(data), n_check=N))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("\nend of trees\n", "\n", "model is cut", id="end"),
        pytest.param("objective=binary", "objective=lambdarank", "objective 'lambdarank'", id="objective"),
        pytest.param("num_leaves=8", "num_leaves=9", "are expected", id="leaves"),
        pytest.param("num_leaves=8", "num_leaves=many", "damaged", id="number"),
        pytest.param("max_feature_idx=4", "max_feature_idx=9999", "more than the 8192 features", id="features"),
        pytest.param("max_feature_idx=4", "max_feature_idx=0", "tests feature", id="feature"),
        pytest.param("left_child=", "left_child=0 ", "are expected", id="children"),
        pytest.param("num_tree_per_iteration=1", "num_tree_per_iteration=0", "objective", id="none"),
        pytest.param("threshold=", "threshold=nan ", "are expected", id="threshold"),
        pytest.param("pandas_categorical:null", 'pandas_categorical:[["a","b"]]', "named by pandas", id="pandas"),
    ],
)
def test_a_lightgbm_text_that_does_not_hold_together_is_refused(old: str, new: str, said: str) -> None:
    text = text_of().decode()
    assert old in text
    with pytest.raises(InputError, match=said):
        read_lightgbm(text.replace(old, new, 1).encode())


# ---------------------------------------------------------------- skops


@cache
def dumped(name: str) -> bytes:
    return bytes(skops.io.dumps(fitted(MODELS[name], 3)))


@pytest.mark.parametrize("name", ["forest", "boosted", "histogram"])
def test_a_skops_file_is_read_and_never_asked(name: str) -> None:
    source = read_skops(dumped(name))
    assert source.predict is None
    found = import_parts(source, n_check=N)
    same_labels(found)
    ours = scores_of(found.program(), len(found.parts.scorers) - 1, found.rows)
    assert (labels_of_scores(ours) == fitted(MODELS[name], 3).predict(found.rows)).all()


def test_a_skops_file_of_categories_is_read() -> None:
    model = fitted(HistGradientBoostingClassifier(max_iter=5, categorical_features=[3], min_samples_leaf=5))
    same_labels(import_parts(read_skops(skops.io.dumps(model)), n_check=N))


def with_schema(change: Any) -> bytes:
    """A skops file whose description was changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(dumped("forest"))) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "schema.json":
                schema = json.loads(data)
                change(schema)
                data = json.dumps(schema).encode()
            new.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"__module__": "os", "__class__": "system"}, "names os.system, which is not allowed", id="os"),
        pytest.param({"__module__": "builtins", "__class__": "eval"}, "names builtins.eval", id="eval"),
        pytest.param({"__class__": "SVC"}, "names sklearn.ensemble._forest.SVC", id="kind"),
        pytest.param({"__loader__": "MethodNode"}, "asks to be built by 'MethodNode'", id="method"),
        pytest.param({"__loader__": "ReduceNode"}, "asks to be built by 'ReduceNode'", id="reduce"),
        pytest.param({}, r"names sklearn\.svm.*SVC, which is not allowed", id="what-skops-itself-would-load"),
    ],
)
def test_a_skops_file_that_names_anything_else_is_refused(change: dict[str, str], said: str) -> None:
    data = with_schema(lambda schema: schema.update(change)) if change else skops.io.dumps(fitted(SVC()))
    with pytest.raises(InputError, match=said):
        read_skops(data)


def test_a_skops_file_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_export.sources.from_skops.MAX_MODEL_BYTES", 1000)
    with pytest.raises(InputError, match="unpacks to"):
        read_skops(dumped("forest"))


# ---------------------------------------------------------------- damage

FILES = {
    "onnx": (read_onnx, lambda: written("boosted")),
    "onnx small": (read_onnx, small),
    "onnx pipeline": (read_onnx, lambda: written("imputed")),
    "onnx network": (read_onnx, lambda: written("network")),
    "lightgbm": (read_lightgbm, text_of),
    "skops": (read_skops, lambda: dumped("forest")),
}


@cache
def good(kind: str) -> bytes:
    return bytes(FILES[kind][1]())


def survives(kind: str, data: bytes) -> None:
    """It is refused in our own words, or it is a model that can be laid out."""
    with contextlib.suppress(HardcaseError):
        import_parts(FILES[kind][0](data), n_check=20)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=25)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_cut_model_is_refused_or_whole(kind: str, share: float) -> None:
    survives(kind, good(kind)[: int(share * len(good(kind)))])


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=40)
@given(at=st.integers(0, 10**9), flip=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_a_model(kind: str, at: int, flip: int) -> None:
    data = bytearray(good(kind))
    data[at % len(data)] ^= flip
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers of any size
        survives(kind, bytes(data))


@settings(max_examples=40)
@given(st.data())
def test_lightgbm_s_numbers_may_be_anything(data: Any) -> None:
    words = good("lightgbm").decode().split(" ")
    k = data.draw(st.integers(0, len(words) - 1))
    words[k] = data.draw(st.sampled_from(["", "-1", "0", "99", "1e308", "-1e-310", "nan", "inf", "x", str(10**30)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        survives("lightgbm", " ".join(words).encode())


NUMBERS = [-(2**63), -1, 0, 1, 2, 3, 7, 2**31, 2**63 - 1]


@settings(max_examples=60)
@given(st.data())
def test_an_onnx_file_s_numbers_may_be_anything(data: Any) -> None:
    name = data.draw(st.sampled_from(["onnx", "onnx small", "linear"]))
    model = onnx.load_model_from_string(written("logistic") if name == "linear" else good(name))
    found = data.draw(st.sampled_from(list(next(n for n in model.graph.node if n.domain).attribute)))
    for values in (found.ints, found.floats, found.strings):
        if len(values):
            k = data.draw(st.integers(0, len(values) - 1))
            odd = st.sampled_from([b"", b"LEAF", b"BRANCH_GT"]) if values is found.strings else st.sampled_from(NUMBERS)
            values[k] = data.draw(odd)
            if data.draw(st.booleans()):
                del values[k]
    if found.type == onnx.AttributeProto.INT:
        found.i = data.draw(st.sampled_from(NUMBERS))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        survives("onnx", model.SerializeToString())


def test_an_oversized_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_export.sources.source.read_bytes.__defaults__", (100,))
    (tmp_path / "m.onnx").write_bytes(b"\0" * 101)
    with pytest.raises(InputError, match="is larger than 100 bytes"):
        read_model(tmp_path / "m.onnx")


class Bomb:
    """What a pickle would do."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("name", ["m.pkl", "m.onnx", "m.joblib", "m.skops"])
def test_a_pickle_is_never_loaded(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="is a pickle, which can run any code and is never loaded"):
        read_model(tmp_path / name)


# ---------------------------------------------------------------- the command


def test_the_command_writes_a_bundle_that_answers(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "m.onnx").write_bytes(written("forest", 3))
    out = str(tmp_path / "m.hcb")
    assert main(["export", "--model", str(tmp_path / "m.onnx"), "--out", out, "--check", "500"]) == 0
    said = capsys.readouterr().out
    assert "source     ONNX TreeEnsembleClassifier, exact shares" in said
    assert "labels     500 of 500 as those of ONNX TreeEnsembleClassifier; proved for every other row" in said
    assert main(["inspect", out]) == 0
    assert "1 Acquire, 1 Answer" in capsys.readouterr().out


TOML = """
[model]
name = "bearing"
target = "y"
features = ["a", "b", "c", "d", "e"]
classes = ["calm", "worn"]

[cost]
unit = "mJ"
default_sensor = 2

[[sensor]]
name = "near"
features = ["a", "b"]
cost = 1.5

[[sensor]]
name = "count"
features = ["d"]
cost = 0
type = "i32"

[range]
a = [-20, 20]
"""


@pytest.mark.parametrize("name", ["scaled", "network"])
def test_bits_of_leaves_are_refused_where_there_are_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(written(name))
    with pytest.raises(InputError, match=r"leaves of 31 bits are asked for, but the .* has none; leave --leaves out"):
        import_model(tmp_path / "m.onnx", tmp_path / "m.hcb", rows=table(2)[0], leaves="31")


def test_the_command_takes_sensors_rows_and_a_key(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "m.onnx").write_bytes(written("scaled"))
    (tmp_path / "s.toml").write_text(TOML)
    X, y = table(2)
    lines = [",".join(f"{v:g}" for v in (*row[::-1], label)) for row, label in zip(X, y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["e,d,c,b,a,y", *lines]))
    assert main(["keygen", "--out", str(tmp_path / "k")]) == 0
    out = tmp_path / "m.hcb"
    flags = [
        "--sensors",
        str(tmp_path / "s.toml"),
        "--rows",
        str(tmp_path / "rows.csv"),
        "--key",
        str(tmp_path / "k.key"),
        "--json",
    ]
    assert (
        main(
            [
                "export",
                "--model",
                str(tmp_path / "m.onnx"),
                "--out",
                str(out),
                "--check",
                "500",
                *flags,
                "--key",
                f"{tmp_path}/k.key",
            ]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["signed"], report["unit"], report["cost"]) == (True, "mJ", 5.5)
    loaded = load_bundle(out)
    assert loaded.manifest.sensors == ("near", "count", "c", "e")
    assert loaded.manifest.classes == ("calm", "worn")
    assert [f.dtype for f in loaded.bundle.program.features] == ["f32", "f32", "f32", "i32", "f32"]


@pytest.mark.parametrize(
    ("column", "said"), [("x4", "first 'x4'; add its column, in numbers"), ("", "5 features in num")]
)
def test_rows_of_text_are_refused_as_such(column: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    """A column of decimal commas is text, and was said to be absent from the file that has it."""
    (tmp_path / "m.onnx").write_bytes(written("forest"))
    names = [f"x{k}" for k in range(5)]
    rows = [[f'"{k},5"' if name == column or not column else str(k) for name in names] for k in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(",".join(row) for row in [names, *rows]))
    where = [
        "--model",
        str(tmp_path / "m.onnx"),
        "--rows",
        str(tmp_path / "rows.csv"),
        "--out",
        str(tmp_path / "m.hcb"),
    ]
    assert main(["export", *where]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["build", "--model", "m.onnx"], "both BUILD (build) and --model are given", id="both"),
        pytest.param(["--model", "m.onnx", "--method", "static"], "--method requires BUILD", id="point"),
        pytest.param(["--model", "m.onnx", "--monitors"], "--monitors requires BUILD", id="monitors"),
        pytest.param(["--model", "m.onnx", "--risk-per", "class"], "--risk-per requires BUILD", id="promise"),
        pytest.param(["--budget", "1"], "BUILD is missing", id="no-build"),
        pytest.param(["build", "--budget", "1", "--rows", "x.csv"], "--rows requires --model", id="rows"),
        pytest.param(["build", "--leaves", "31"], "--leaves requires --model", id="leaves"),
        pytest.param(["build", "--check", "5"], "--check requires --model", id="rows-to-check"),
        pytest.param(["--model", "no.onnx"], "model no.onnx cannot be read: No such file", id="absent"),
        pytest.param(["--model", "m.onnx", "--sensors", "no.toml"], "no.toml cannot be read", id="toml"),
        pytest.param(["--model", "m.onnx", "--check", "0"], "0 rows", id="check"),
        pytest.param(["--model", "m.onnx", "--seed", "-1"], "--seed is -1; give a whole number from 0", id="seed"),
    ],
)
def test_a_wrong_wish_is_one_line(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *flags, "--out", str(tmp_path / "m.hcb")]) == 2
    found = capsys.readouterr().err
    assert said in found
    assert found.count("\n") == 1


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        pytest.param("[modle]\n", "unknown key 'modle'; did you mean 'model'", id="section"),
        pytest.param("[model]\nfeatures = ['a']\n", "1 different names of features are given", id="names"),
        pytest.param("[model]\nclasses = ['a']\n", "has 1 names, but the model has 2 classes", id="classes"),
        pytest.param("[model]\ntype = 'f64'\n", "type 'f64' are asked for, but the model compares in f32", id="type"),
        pytest.param(
            "[[sensor]]\nname = 's'\nfeatures = ['z']\ncost = 1\n", "is not a feature of the model", id="feature"
        ),
        pytest.param("[[sensor]]\nname = 'x1'\ncost = -1\n", "a cost from 0 to", id="cost"),
        pytest.param("[[sensor]]\nname = 'x1'\n", "has no cost", id="no-cost"),
        pytest.param("[[sensor]]\nname = 'x1'\ncost = 1e-7\n", "which six decimals round to nothing", id="tiny-cost"),
        pytest.param("[range]\nx1 = [2, 1]\n", "write it as [lowest, highest]", id="range"),
        pytest.param("[model\n", "is not TOML", id="syntax"),
        pytest.param(f"[[sensor]]\nname = 'x1'\ncost = {'9' * 5000}\n", "is not TOML", id="5,000-digits"),
        pytest.param(f"[range]\nx1 = [1, 0x{'f' * 5000}]\n", "'x1' has a whole number of more than 64 bits", id="hex"),
    ],
)
def test_a_wrong_toml_is_one_line(toml: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "m.onnx").write_bytes(written("forest"))
    (tmp_path / "s.toml").write_text(toml)
    where = [
        "--model",
        str(tmp_path / "m.onnx"),
        "--sensors",
        str(tmp_path / "s.toml"),
        "--out",
        str(tmp_path / "m.hcb"),
    ]
    assert main(["export", *where]) == 2
    assert said in capsys.readouterr().err
