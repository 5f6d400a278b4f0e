# SPDX-License-Identifier: Apache-2.0
"""Builder of an ONNX graph, node by node; constants are stored once, and the same graph gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPSETS = {"": 18, "ai.onnx.ml": 5}
IR_VERSION = 10
TENSOR_TYPES = {"f32": "FLOAT", "f64": "DOUBLE", "i32": "INT32", "i64": "INT64"}


class OnnxGraph:
    """A graph under construction; its values are identified by name."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[Any] = []

    def const(self, values: Any, dtype: str) -> str:
        """The name of a constant of this numpy type."""
        from onnx import numpy_helper

        array = np.asarray(values, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self._initializers.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def op(self, kind: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        """Append a node with one output; returns the name of the output."""
        from onnx import helper

        output = output or f"v{len(self._nodes)}"
        node = helper.make_node(kind, list(inputs), [output], name=f"to_{output}", domain=domain, **attributes)
        self._nodes.append(node)
        return output

    def cast(self, value: str, dtype: str) -> str:
        """A value cast to float32, float64 or int64; ``dtype`` is ``f32``, ``f64`` or ``i64``."""
        from onnx import TensorProto

        return self.op("Cast", value, to=getattr(TensorProto, TENSOR_TYPES[dtype]))

    def floored(self, value: str, divisors: str) -> str:
        """int64 quotients by divisors above 0, rounded down; Div alone would round towards zero."""
        return self.op("Div", self.op("Sub", value, self.op("Mod", value, divisors)), divisors)

    def clamp(self, value: str, low: Any, high: Any) -> str:
        """int64 values from ``low`` to ``high``."""
        for compare, bounds in (("Less", high), ("Greater", low)):
            # Min and Max of int64 compare the lower 32 bits as signed in onnxruntime 1.31
            bound = self.const(bounds, "i8")
            value = self.op("Where", self.op(compare, value, bound), value, bound)
        return value

    def tensor(self, values: NDArray[Any]) -> Any:
        """A tensor for an attribute of a node."""
        from onnx import numpy_helper

        return numpy_helper.from_array(values)

    def model(self, name: str, inputs: Mapping[str, int], output: str, width: int, notes: Mapping[str, str]) -> bytes:
        """The bytes of the file, which has passed the ONNX checker.

        Parameters
        ----------
        inputs : number of columns of each input, by declared type, which is also the input's name; rows are ``n``
        output : an int64 value of shape (n, width)
        notes : metadata of the file
        """
        import onnx
        from onnx import helper

        model = self.unchecked(name, inputs, output, width, "i64", OPSETS)
        helper.set_model_props(model, dict(notes))
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))

    def unchecked(
        self, name: str, inputs: Mapping[str, int], output: str, width: int, dtype: str, opsets: Mapping[str, int]
    ) -> Any:
        """The model in memory, as for ``model``; ``dtype``: of the output."""
        from onnx import TensorProto, helper

        input_infos = [
            helper.make_tensor_value_info(dtype, getattr(TensorProto, TENSOR_TYPES[dtype]), ["n", k])
            for dtype, k in inputs.items()
        ]
        output_type = getattr(TensorProto, TENSOR_TYPES[dtype])
        output_infos = [helper.make_tensor_value_info(output, output_type, ["n", width])]
        graph = helper.make_graph(self._nodes, name, input_infos, output_infos, self._initializers)
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="hardcase")
