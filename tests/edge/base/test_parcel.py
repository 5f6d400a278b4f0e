# SPDX-License-Identifier: Apache-2.0
"""Plain values for another process: what goes comes as it was, and nothing else goes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from hardcase_edge.base.parcel import pack, unpack


def test_what_is_packed_comes_as_it_was() -> None:
    value = [
        None, True, 2**70, 1e-300, "\u00e9", b"\x00\xff", (1, [2, ()]), {},
        {1: {"a": [b"", bytes(3)]}, (2, "b"): -0.0},
    ]  # fmt: skip
    assert repr(unpack(pack(value))) == repr(value)
    assert math.isnan(unpack(pack(float("nan"))))


@pytest.mark.parametrize("dtype", ["u1", ">i4", "f2", "<f8", "?"])
def test_an_array_keeps_its_type_and_shape_and_may_be_written_to(dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)[:, ::-1]
    other = unpack(pack({"crop": array, "next": b"1"}))
    assert other["next"] == b"1"
    assert (other["crop"].dtype, other["crop"].tolist()) == (array.dtype, array.tolist())
    other["crop"][0, 0, 0] = 1
    assert unpack(pack(np.float32(0.5))) == 0.5


@pytest.mark.parametrize(
    "value",
    [object(), len, {1, 2}, Counter(), np.array([object()]), np.array(["a"]), [lambda: 1], {"a": 1j}, np.dtype("f4")],
    ids=["object", "function", "set", "counter", "objects", "texts", "lambda", "complex", "dtype"],
)
def test_a_value_of_another_kind_does_not_go(value: object) -> None:
    with pytest.raises(TypeError, match="cannot go to another process; give numbers, texts, bytes or arrays"):
        pack(value)
