# SPDX-License-Identifier: Apache-2.0
"""The HPC: a hardcase ONNX file is answered with, anything else is refused in one line."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from hardcase_cloud.answer import onnx_model as hpc_module
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.errors import InputError

from ...helpers.cloud.requests import N_CLASSES, tiny_model, write_model

GOOD = {"hardcase.dtypes": "f32,f32", "hardcase.classes": "3"}


def test_a_model_knows_its_name_and_its_layout(tmp_path):
    path = write_model(tmp_path)
    hpc = Hpc(path)
    assert hpc.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (hpc.dtypes, hpc.n_classes) == (("f32", "f32"), N_CLASSES)


def test_a_batch_answers_as_its_rows_alone_and_missing_is_missing(tmp_path):
    hpc = Hpc(write_model(tmp_path))
    rows = [(2.0, 1.0), (1.0, 3.0), (-1.0, -1.0), (None, 1.0), (None, None), (1, -0.0)]
    together = hpc.answer(rows)
    assert [k for k, _ in together] == [0, 1, 2, 1, 0, 0]
    assert together == [hpc.answer([row])[0] for row in rows]
    e = np.exp([2.0, 1.0, 0.0])
    assert together[0] == (0, round(10_000 * e[0] / e.sum()))


def test_no_rows_have_no_answers(tmp_path):
    assert Hpc(write_model(tmp_path)).answer([]) == []


def test_readings_beyond_float32_do_not_raise(tmp_path):
    assert len(Hpc(write_model(tmp_path)).answer([(1e300, -1e300)])) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(None, "cannot be read", id="missing"),
        pytest.param(bytes(10_001), "larger than 10000 bytes", id="oversized"),
        pytest.param(b"", "has no bytes", id="empty"),
        pytest.param(b"no model at all", "is not an ONNX model", id="rubbish"),
        pytest.param(tiny_model()[:-40], "is not an ONNX model|does not say|has other inputs", id="cut"),
        pytest.param(tiny_model({}), "hardcase.dtypes", id="no-metadata"),
        pytest.param(tiny_model({**GOOD, "hardcase.dtypes": "f32,f16"}), "hardcase.dtypes", id="unknown-type"),
        pytest.param(tiny_model({**GOOD, "hardcase.dtypes": "f32"}), "takes 2 features", id="other-width"),
        pytest.param(tiny_model({**GOOD, "hardcase.classes": "one"}), "hardcase.classes", id="classes-no-number"),
        pytest.param(tiny_model({**GOOD, "hardcase.classes": "1"}), "hardcase.classes", id="one-class"),
        pytest.param(tiny_model(names=("y", "p")), "label and probabilities are expected", id="other-outputs"),
    ],
)
def test_a_file_that_is_no_hpc_is_refused_in_one_line(tmp_path, monkeypatch, data, message):
    monkeypatch.setattr(hpc_module, "MAX_HPC_BYTES", 10_000)
    path = tmp_path / "hpc.onnx"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        Hpc(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "row", "message"), [("2", (1.0, 2.0), "of 2 classes"), ("3", (1.0, 2.0, 3.0), "fails on a batch")]
)
def test_a_model_that_lies_or_rows_of_another_width_are_an_error_not_a_wrong_answer(tmp_path, classes, row, message):
    path = tmp_path / "hpc.onnx"
    path.write_bytes(tiny_model({**GOOD, "hardcase.classes": classes}))
    with pytest.raises(InputError, match=message):
        Hpc(path).answer([row])
