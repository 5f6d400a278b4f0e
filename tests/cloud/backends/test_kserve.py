# SPDX-License-Identifier: Apache-2.0
"""A model behind KServe's protocol: what it answers is the HPC's answer, and whatever else it says is one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hardcase_cloud.answer.service import Service
from hardcase_cloud.backends.backend import KSERVE
from hardcase_cloud.backends.kserve import KserveModel
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import OK, REFUSED, request_topic, unpack_reply

from ...helpers.cloud import json_server
from ...helpers.cloud.requests import N_CLASSES, ask, half_forwarding

SHA = "ab" * 32
META = {"name": "m", "inputs": [{"name": "X", "datatype": "FP64", "shape": [-1, 2]}]}


@contextmanager
def serving(answer: Any, meta: Any = META) -> Iterator[str]:
    """A v2 server on loopback; yields the model's URL."""
    with json_server.serving(lambda path, headers, body: answer(body["inputs"][0]) if body else meta) as port:
        yield f"kserve+http://127.0.0.1:{port}/v2/models/m"


def by_first(inputs: Any) -> Any:
    """Class 1 with 0.9 where the first reading is above 0, otherwise class 0."""
    n, width = inputs["shape"]
    rows = [[0.05, 0.9, 0.05] if inputs["data"][k * width] > 0 else [0.9, 0.05, 0.05] for k in range(n)]
    return {"outputs": [{"name": "p", "datatype": "FP64", "shape": [n, 3], "data": [x for row in rows for x in row]}]}


def test_probabilities_of_the_model_are_the_answers_of_the_service(tmp_path):
    bundle = tmp_path / "model.hcb"
    bundle.write_bytes(pack_bundle(half_forwarding(SHA).bundle))
    with serving(by_first) as url:
        service = Service(KSERVE.open(f"{url}?missing=-1", bundle, 60.0))
        for k, x in enumerate((2.0, -2.0, None)):
            service.receive(request_topic("pi-1"), ask(k, (x, 1.0), SHA), 0.0)
        replies = [unpack_reply(out.payload, bytes.fromhex(SHA), N_CLASSES) for out in service.run(0.0)]
    assert [(r.status, r.result, r.confidence) for r in replies] == [(OK, 1, 9000), (OK, 0, 9000), (OK, 0, 9000)]


def test_without_a_number_for_missing_a_row_that_lacks_one_is_refused_alone(tmp_path):
    bundle = tmp_path / "model.hcb"
    bundle.write_bytes(pack_bundle(half_forwarding(SHA).bundle))
    with serving(by_first) as url:
        service = Service(KSERVE.open(url, bundle, 60.0))
        for k, x in enumerate((2.0, None)):
            service.receive(request_topic("pi-1"), ask(k, (x, 1.0), SHA), 0.0)
        replies = [unpack_reply(out.payload, bytes.fromhex(SHA), N_CLASSES) for out in service.run(0.0)]
    assert [r.status for r in replies] == [OK, REFUSED]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param((500, b"no memory"), "status 500: no memory", id="a-status"),
        pytest.param((200, b"<html>"), "no JSON object", id="no-json"),
        pytest.param((200, b"[" * 100_000), "no JSON", id="deep"),
        pytest.param([1], "not an object", id="a-list"),
        pytest.param({}, "nothing with a row", id="no-outputs"),
        pytest.param({"outputs": [{"shape": [1, 3], "data": [1]}]}, "no array of shape", id="too-few"),
        pytest.param({"outputs": [{"shape": [1, "x"], "data": [1]}]}, "no array of shape", id="a-shape-of-words"),
        pytest.param({"outputs": [{"shape": [7, 3], "data": [1] * 21}]}, "nothing with a row", id="other-rows"),
    ],
)
def test_whatever_it_answers_is_one_line_and_no_crash(answer, message):
    import numpy as np

    with serving(lambda inputs: answer) as url:
        model = KserveModel(url, 2, 60.0)
        with pytest.raises(InputError, match=message):
            model(np.ones((1, 2)), ("a", "b"))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        pytest.param({}, "other inputs", id="none"),
        pytest.param({"inputs": [{"name": "X", "datatype": "BYTES", "shape": [-1, 2]}]}, "takes BYTES", id="bytes"),
        pytest.param({"inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 5]}]}, "sends 2 readings", id="width"),
        pytest.param({"inputs": [{"name": "X", "datatype": [], "shape": [-1, 2]}]}, r"takes \[\]", id="type-of-none"),
        pytest.param((404, b"no such model"), "status 404", id="no-model"),
    ],
)
def test_a_model_that_takes_something_else_is_refused_at_the_start(meta, message):
    with serving(by_first, meta) as url, pytest.raises(InputError, match=message):
        KserveModel(url, 2, 60.0)


@pytest.mark.parametrize(
    "url",
    [f"kserve+{rest}" for rest in (
        "https://h/v2/models/m", "http://h/models/m", "http://h:99999/v2/models/m", "http://h/v2/models/m?missing=nan",
        "http://h/v2/models/m?missing=1.1.1", "http://h/v2/models/a b", "http://u:s3cret@h/v2/models/m",
    )],
)  # fmt: skip
def test_a_url_that_is_none_is_one_line(url):
    with pytest.raises(InputError, match="kserve") as raised:
        KserveModel(url, 2, 60.0)
    assert "s3cret" not in str(raised.value)
