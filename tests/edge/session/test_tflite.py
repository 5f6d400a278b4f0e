# SPDX-License-Identifier: Apache-2.0
"""A user's TFLite model as a scorer: run by a real interpreter, held to what the bundle declares of it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import BundleError
from hardcase_edge.program import definition as d
from hardcase_edge.session import tflite
from hardcase_edge.session.drive import drive
from hardcase_edge.session.tflite import prepare_opaque

WEIGHTS = np.array([[1.0, 2.0], [10.0, 0.0], [0.0, -1.0]], np.float32)
BIAS = np.array([0.0, 0.5, 0.0], np.float32)


def author(weights=WEIGHTS, bias=BIAS, input_shape=None, input_type="FLOAT32", is_twice=False) -> bytes:
    """A .tflite file of one fully connected layer: outputs = weights x + bias; of other types, of one cast to float."""
    import ai_edge_litert.schema_py_generated as schema
    import flatbuffers

    def tensor(name, shape, buffer=0, kind="FLOAT32"):
        made = schema.TensorT()
        made.name, made.shape, made.buffer = name.encode(), list(shape), buffer
        made.type = getattr(schema.TensorType, kind)
        return made

    def buffer(array=None):
        made = schema.BufferT()
        if array is not None:
            made.data = np.frombuffer(array.tobytes(), np.uint8)
        return made

    m, n = weights.shape
    layer = schema.OperatorT()
    is_cast = input_type != "FLOAT32"
    layer.opcodeIndex, layer.inputs, layer.outputs = 0, [0] if is_cast else [0, 1, 2], [3]
    if not is_cast:
        layer.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
        layer.builtinOptions = schema.FullyConnectedOptionsT()
    graph = schema.SubGraphT()
    graph.tensors = [
        tensor("x", input_shape or (1, n), kind=input_type), tensor("w", (m, n), 1), tensor("b", (m,), 2),
        tensor("y", (1, m)),
    ]  # fmt: skip
    graph.inputs, graph.outputs, graph.operators = [0], [3, 3] if is_twice else [3], [layer]
    code = schema.OperatorCodeT()
    operator = schema.BuiltinOperator.CAST if is_cast else schema.BuiltinOperator.FULLY_CONNECTED
    code.builtinCode = code.deprecatedBuiltinCode = operator
    code.version = 1
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [buffer(), buffer(weights), buffer(bias)]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def scorer(blob=None, n=2, low=(-1000,) * 3, high=(1000,) * 3) -> d.Opaque:
    return d.Opaque(tuple(range(n)), author() if blob is None else blob, low, high)


def make_loaded(opaque: d.Opaque):
    program = d.Program(
        features=(d.Feature("f32"), d.Feature("f32")),
        sensors=(d.Sensor((0, 1), (1,)),),
        uplink=d.Uplink(),
        columns=(),
        scorers=(opaque, d.Polynomial((), (), 1, ((0,),), ((0,),) * 3, (0, 0, 1))),
        nodes=(d.Acquire((0,), 1, 2), d.Answer(d.Slice(0, 0, 3)), d.Answer(d.Slice(1, 0, 3))),
        n_classes=3,
    )
    manifest = Manifest(name="t", unit="mJ", features=("a", "b"), sensors=("s",), classes=("x", "y", "z"))
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program, ())))


@pytest.mark.parametrize(
    ("readings", "scores"),
    [
        ([0.0, 0.0], [0, 0, 0]), ([1.0, 2.0], [5, 10, -2]), ([0.25, 0.0], [0, 3, 0]), ([3, -4], [-5, 30, 4]),
        ([1e6, 0.0], [1000, 1000, 0]), ([-1e6, 0.0], [-1000, -1000, 0]), ([1e300, 0.0], [1000, 1000, -1000]),
        ([1.0, None], [-1000, -1000, -1000]),
    ],
)  # fmt: skip
def test_a_real_model_gives_integers_within_what_is_declared(readings, scores):
    found = prepare_opaque(scorer())(readings)
    assert found == scores
    assert all(type(x) is int for x in found)


def test_each_output_has_a_range_of_its_own():
    score = prepare_opaque(scorer(low=(0, -5, 1), high=(3, 5, 2)))
    assert score([1.0, 2.0]) == [3, 5, 1]
    assert score([float("nan"), 0.0]) == [0, -5, 1]


def test_a_row_may_stand_without_its_batch():
    assert prepare_opaque(scorer(author(input_shape=(2,))))([1.0, 2.0]) == [5, 10, -2]


def test_scores_do_not_depend_on_what_was_scored_before():
    score = prepare_opaque(scorer())
    rows = np.random.default_rng(0).integers(-40, 40, (50, 2)).tolist()
    once = [score(row) for row in rows]
    assert [score(row) for row in reversed(rows)] == once[::-1]
    expected = np.clip(np.rint(np.array(rows) @ WEIGHTS.T + BIAS), -1000, 1000).astype(int).tolist()
    assert once == expected


def test_a_bundle_carries_the_model_and_says_that_it_is_unproved():
    loaded = make_loaded(scorer())
    assert loaded.report.unproved == (0,)
    decided = drive(loaded.machine.session(), lambda sensors: {0: [1.0, 2.0]}, lambda need: None)
    assert decided.result == 1
    decided = drive(loaded.machine.session(), lambda sensors: {0: [-1.0, 0.0]}, lambda need: None)
    assert decided.result == 2
    decided = drive(loaded.machine.session(), lambda sensors: {0: None}, lambda need: None)
    assert (decided.result, decided.trace) == (2, (0, 2)), "the model is not asked about a sensor that failed"


@pytest.mark.parametrize(
    ("opaque", "line"),
    [
        (scorer(b""), "cannot be opened"),
        (scorer(b"no flatbuffer at all" * 10), "cannot be opened"),
        (scorer(n=3), r"input has shape \[1, 2\], \[1, 3\] is expected"),
        (scorer(low=(0, 0), high=(1, 1)), r"output has shape \[1, 3\], \[1, 2\] is expected"),
        (
            scorer(author(np.ones((2, 2), np.float32), input_type="INT32"), low=(0, 0), high=(1, 1)),
            "the TFLite model's input is int32, float32 is expected",
        ),
        (scorer(author(is_twice=True)), "1 inputs and 2 outputs, one of each is expected"),
    ],
    ids=["empty", "garbage", "inputs", "outputs", "whole inputs", "two outputs"],
)
def test_a_model_that_is_none_or_another_is_refused_in_one_line(opaque, line):
    with pytest.raises(BundleError, match=line) as error:
        prepare_opaque(opaque)
    assert "\n" not in str(error.value)


def test_without_an_interpreter_the_bundle_is_refused_in_one_line(monkeypatch):
    blob = author()
    for name in tflite.INTERPRETERS:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BundleError, match="none is installed; pip install ai-edge-litert"):
        make_loaded(scorer(blob))


def test_a_numpy_that_the_interpreter_was_not_built_for_is_one_line(monkeypatch):
    class Interpreter:
        def __init__(self, **_):
            raise SystemError("returned a result with an exception set")

    newer, older = tflite.INTERPRETERS
    blob = author()
    monkeypatch.setitem(sys.modules, newer, None)
    monkeypatch.setitem(sys.modules, older.partition(".")[0], Interpreter)
    monkeypatch.setitem(sys.modules, older, type("module", (), {"Interpreter": Interpreter}))
    with pytest.raises(BundleError, match="tflite_runtime does not work with this numpy; pip install 'numpy<2'"):
        prepare_opaque(scorer(blob))


def test_the_older_interpreter_is_used_where_the_newer_one_is_missing(monkeypatch):
    import ai_edge_litert.interpreter as real

    newer, older = tflite.INTERPRETERS
    blob = author()
    monkeypatch.setitem(sys.modules, newer, None)
    monkeypatch.setitem(sys.modules, older.partition(".")[0], real)
    monkeypatch.setitem(sys.modules, older, real)
    assert prepare_opaque(scorer(blob))([1.0, 2.0]) == [5, 10, -2]
