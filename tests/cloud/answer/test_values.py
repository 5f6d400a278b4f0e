# SPDX-License-Identifier: Apache-2.0
"""f0 of values: a file or a function answers with scaled integers, and what is not a number is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hardcase_cloud.answer.function import FunctionHpc
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service
from hardcase_edge.bundle.value import MAX_RESULT, Value
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import OK, REFUSED, request_topic, unpack_reply

from ...helpers.cloud.requests import ask, half_forwarding

VALUE = {"hardcase.task": "value", "hardcase.dtypes": "f32,f32", "hardcase.steps": "4"}
SHA = "cd" * 32


def quotient(metadata: dict[str, str], *, is_wide: bool = False, is_flat: bool = False, name: str = "value") -> bytes:
    """x0 / x1 as an ONNX model of values, float or double, of shape (n, 1) or (n,)."""
    dtype = TensorProto.DOUBLE if is_wide else TensorProto.FLOAT
    nodes = [
        helper.make_node("Split", ["X"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("Div", ["a", "b"], ["quotient"]),
        helper.make_node("Cast", ["quotient"], ["cast"], to=dtype),
        helper.make_node("Constant", [], ["shape"], value_ints=[-1] if is_flat else [-1, 1]),
        helper.make_node("Reshape", ["cast", "shape"], [name]),
    ]
    given = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])
    result = helper.make_tensor_value_info(name, dtype, [None] if is_flat else [None, 1])
    graph = helper.make_graph(nodes, "quotient", [given], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def hpc_of(folder: Path, metadata: dict[str, str], **more: Any) -> Hpc:
    path = folder / "hpc.onnx"
    path.write_bytes(quotient(metadata, **more))
    return Hpc(path)


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_file_of_values_answers_in_steps_with_halves_to_even(tmp_path: Path, is_wide: bool, is_flat: bool) -> None:
    hpc = hpc_of(tmp_path, VALUE, is_wide=is_wide, is_flat=is_flat)
    assert (hpc.steps, hpc.n_classes, hpc.dtypes) == (4, 0, ("f32", "f32"))
    assert hpc.answer([(1.5, 1.0), (1.0, 32.0), (3.0, 32.0), (-3.0, 32.0)]) == [(24, 0), (0, 0), (2, 0), (-2, 0)]
    assert hpc.answer([(1e30, 1.0), (-1e30, 1.0)]) == [(MAX_RESULT, 0), (-MAX_RESULT, 0)]


def test_the_scale_may_be_coarse_and_the_confidence_is_the_files(tmp_path: Path) -> None:
    hpc = hpc_of(tmp_path, {**VALUE, "hardcase.steps": "-10", "hardcase.confidence": "6800"})
    assert hpc.answer([(1e6, 1.0)]) == [(977, 6_800)]


@pytest.mark.parametrize("row", [(1.0, 0.0), (None, 1.0), (0.0, 0.0)])
def test_a_value_that_is_not_a_number_is_refused(tmp_path: Path, row: Any) -> None:
    with pytest.raises(InputError, match=r"hpc\.onnx returns a value that is not a finite number"):
        hpc_of(tmp_path, VALUE).answer([(1.0, 1.0), row])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hardcase.steps": ""}, "does not declare its steps"),
        ({"hardcase.steps": "1.5"}, "does not declare its steps"),
        ({"hardcase.steps": "257"}, "does not declare its steps .* from -256 to 256"),
        ({"hardcase.steps": "9" * 400}, "does not declare its steps"),
        ({"hardcase.steps": "²"}, "does not declare its steps"),
        ({"hardcase.confidence": "10001"}, "does not declare its confidence"),
        ({"hardcase.confidence": "-1"}, "does not declare its confidence"),
        ({"hardcase.task": "values"}, "does not declare its classes"),
        ({"name": "variable"}, "has the outputs variable, value are expected"),
    ],
)
def test_metadata_of_values_are_checked(tmp_path: Path, change: dict[str, str], said: str) -> None:
    name = {"name": change.pop("name")} if "name" in change else {}
    with pytest.raises(InputError, match=said):
        hpc_of(tmp_path, {**VALUE, **change}, **name)


def test_the_service_refuses_the_row_that_has_no_value_and_answers_the_others(tmp_path: Path) -> None:
    hpc = hpc_of(tmp_path, VALUE)
    service = Service(hpc)
    for k, row in enumerate([(3.0, 2.0), (1.0, 0.0), (-1.0, 1.0)]):
        service.receive(request_topic("pump"), ask(k, row, hpc.sha256), 0.0)
    replies = [unpack_reply(out.payload, bytes.fromhex(hpc.sha256), 0) for out in service.run(0.1)]
    assert [(r.status, r.result) for r in replies] == [(OK, 24), (REFUSED, 0), (OK, -16)]


# ---------------------------------------------------------------- a function


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes the HPC of an expression, for a bundle of values with 2^4 steps in a unit."""
    monkeypatch.chdir(tmp_path)
    loaded = half_forwarding(SHA)
    manifest = replace(loaded.manifest, classes=(), value=Value("kWh", 4))

    def make(expression: str) -> FunctionHpc:
        name = f"values_{abs(hash((expression, tmp_path)))}"
        (tmp_path / f"{name}.py").write_text(f"import numpy as np\ndef answer(X, names):\n    return {expression}\n")
        return FunctionHpc(f"{name}:answer", loaded.bundle.program, manifest)

    return make


@pytest.mark.parametrize("expression", ["[1.5, -2]", "np.array([[1.5], [-2.0]], np.float32)", "X[:, 0] + [0.5, -3]"])
def test_a_function_may_return_numbers(answering: Any, expression: str) -> None:
    assert answering(expression).answer([(1.0, 2.0), (1.0, None)]) == [(24, 0), (-32, 0)]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("[1.0]", "float64 of shape (1,); one number for each of 2 rows is due"),
        ("[[1.0, 2.0], [1.0, 2.0]]", "of shape (2, 2)"),
        ("['1', '2']", "<U1 of shape (2,)"),
        ("None", "object of shape ()"),
        ("[1.0, float('nan')]", "a value that is not a finite number"),
        ("[1.0, float('inf')]", "a value that is not a finite number"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_is_no_value_is_one_line(answering: Any, expression: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        answering(expression).answer([(1.0, 2.0), (1.0, 2.0)])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_numbers_of_any_kind_are_values(answering: Any) -> None:
    assert answering("np.array([True, False])").answer([(1.0, 2.0)] * 2) == [(16, 0), (0, 0)]
    assert answering("np.array([3, -7], np.int64)").answer([(1.0, 2.0)] * 2) == [(48, 0), (-112, 0)]
    assert np.iinfo(np.int32).max == MAX_RESULT
