# SPDX-License-Identifier: Apache-2.0
"""ONNX files of QuantizeLinear and DequantizeLinear become the scorers that TFLite files of the same network do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.program.definition import Network
from hardcase_export.foreign_model import import_model, import_parts, read_model
from hardcase_export.sources.int8 import scorer_of
from hardcase_export.to_onnx.from_qdq import read_qdq
from tests.helpers.export.int8_nets import conv, dense, depthwise, pool, qdq_model, random_network

CASES = {
    "dense": ((1, 1, 20), [dense(16), dense(5)]),
    "separable": ((12, 10, 2), [conv(8, 3, 2), depthwise(), conv(6), depthwise(3, 2, is_same=False), dense(4)]),
    "largest": ((6, 6, 1), [conv(4, 3, 2), pool(3, 3, "MAX"), dense(3)]),
}
SMALL = random_network(5, (6, 4, 2), [conv(4, 3, 2), depthwise(), dense(3)])


@pytest.mark.parametrize("is_unsigned", [False, True])
@pytest.mark.parametrize("activation", ["RELU", "RELU6", "NONE"])
@pytest.mark.parametrize("case", CASES)
def test_the_layers_are_those_of_the_network_and_outputs_those_of_onnxruntime_but_for_steps(
    case: str, activation: str, is_unsigned: bool
) -> None:
    network = random_network(len(case), *CASES[case], activation)
    source = read_qdq(qdq_model(network, "Softmax", is_unsigned=is_unsigned))
    assert source.int8 is not None
    own, written = (scorer_of(n, [0] * len(source.features)) for n in (source.int8, network))
    assert own.layers == written.layers
    match = import_parts(source, n_check=300).match
    assert match.differ <= 1
    assert match.off <= 3


def test_readings_are_in_the_order_of_onnx_and_outputs_are_onnxruntimes(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(qdq_model(SMALL, "Softmax"))
    found = import_model(tmp_path / "m.onnx", tmp_path / "m.hcb", n_check=200).imported
    assert found.source.name == "int8 ONNX network"
    assert found.match.differ == 0
    scorer = found.parts.scorers[0]
    assert isinstance(scorer, Network)
    assert scorer.columns[:4] == (0, 24, 1, 25)  # two channels of 6 x 4


class Rows:
    """Random rows for onnxruntime's quantiser."""

    def __init__(self, n: int, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(0)
        self._rows = iter([{"x": rng.uniform(0, 16, (1, *shape)).astype(np.float32)} for _ in range(n)])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._rows, None)


def float_model() -> Any:
    """A network of floats: a convolution, a depthwise one, a pool and a dense layer, over 8 x 8 numbers."""
    rng, helper = np.random.default_rng(0), onnx.helper
    shapes = {"a": (8, 1, 3, 3), "a0": (8,), "b": (8, 1, 3, 3), "b0": (8,), "d": (8, 5), "d0": (5,)}
    weights = {name: (rng.normal(size=shape) * 0.4).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "a", "a0"], ["1"], pads=[1] * 4),
        helper.make_node("Relu", ["1"], ["2"]),
        helper.make_node("Conv", ["2", "b", "b0"], ["3"], group=8),
        helper.make_node("Relu", ["3"], ["4"]),
        helper.make_node("GlobalAveragePool", ["4"], ["5"]),
        helper.make_node("Flatten", ["5"], ["6"]),
        helper.make_node("Gemm", ["6", "d", "d0"], ["7"]),
        helper.make_node("Softmax", ["7"], ["y"]),
    ]
    dims = {"x": [1, 1, 8, 8], "y": [1, 5]}
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in dims.items())
    constants = [onnx.numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("is_unsigned", [False, True])
def test_a_file_of_onnxruntimes_own_quantiser_keeps_its_labels(is_unsigned: bool, tmp_path: Path) -> None:
    onnx.save(float_model(), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx", tmp_path / "m.onnx", Rows(20, (1, 8, 8)), quant_format=QuantFormat.QDQ,
        per_channel=True, activation_type=QuantType.QUInt8 if is_unsigned else QuantType.QInt8,
    )  # fmt: skip
    found = import_model(tmp_path / "m.onnx", tmp_path / "m.hcb", n_check=300).imported
    assert isinstance(found.parts.scorers[0], Network)
    assert found.match.differ <= 1
    assert found.match.off <= 3


def changed(kind: str, into: str = "", **attributes: Any) -> bytes:
    """The small network, with these attributes of its first node of a kind, or another kind for it."""
    model = onnx.load_model_from_string(qdq_model(SMALL))
    node = next(n for n in model.graph.node if n.op_type == kind)
    node.op_type = into or kind
    for name, value in attributes.items():
        for old in [a for a in node.attribute if a.name == name]:
            node.attribute.remove(old)
        node.attribute.append(onnx.helper.make_attribute(name, value))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (changed("Relu", "Tanh"), "a Tanh stands where a QuantizeLinear is expected"),
        (changed("Flatten", "Erf"), "the node Erf '' is no layer of a program; leave it out"),
        (changed("Conv", dilations=[2, 2]), "is dilated"),
        (changed("Conv", group=2), "is grouped"),
        (changed("Conv", auto_pad="SAME_UPPER"), "has auto_pad"),
        (changed("Gemm", alpha=2.0), "is not x W + b"),
        (b"QuantizeLinear", "cannot be read"),
    ],
)
def test_another_graph_is_refused_in_one_line_that_names_the_node(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_model(tmp_path / "m.onnx")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused_or_are_other_networks() -> None:
    data, rng, messages = qdq_model(SMALL, "Softmax"), random.Random(1), list[str]()
    for k in range(200):
        damaged = bytearray(data[: rng.randrange(len(data))] if k < 40 else data)
        for _ in range(rng.choice([1, 2, 8]) if k >= 40 else 0):
            damaged[rng.randrange(len(data))] = rng.choice([0, 255, rng.randrange(256)])
        try:
            source = read_qdq(bytes(damaged))
            assert source.int8 is not None
            scorer_of(source.int8, np.zeros(len(source.features), int).tolist())
        except HardcaseError as error:
            messages.append(str(error))
    assert 20 < len(messages) < 200
    assert not [message for message in messages if "\n" in message]
