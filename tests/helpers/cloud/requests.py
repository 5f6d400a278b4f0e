# SPDX-License-Identifier: Apache-2.0
"""For the cloud's tests: a tiny model, requests to it, a program of two sensors, processes of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.link.wire import Reading, Request, pack_request
from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import request_bytes

DTYPES = ("f32", "f32")
N_CLASSES = 3
FAKE = "ab" * 32  # the digest of a model that is none
PATIENT_MS = 120_000  # a deadline by the real clock that a busy machine keeps, too


def tiny_model(
    metadata: dict[str, str] | None = None, n_features: int = 2, names: tuple[str, str] = ("label", "probabilities")
) -> bytes:
    """An ONNX classifier of three classes: argmax of (x0, x1, 0), missing as 0."""
    weights = np.zeros((n_features, N_CLASSES), np.float32)
    weights[0, 0] = weights[min(1, n_features - 1), 1] = 1.0
    nodes = [
        helper.make_node("IsNaN", ["X"], ["missing"]),
        helper.make_node("Where", ["missing", "zero", "X"], ["present"]),
        helper.make_node("MatMul", ["present", "weights"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], [names[0]], axis=1, keepdims=0),
        helper.make_node("Softmax", ["scores"], [names[1]], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, n_features])],
        [
            helper.make_tensor_value_info(names[0], TensorProto.INT64, [None]),
            helper.make_tensor_value_info(names[1], TensorProto.FLOAT, [None, N_CLASSES]),
        ],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.float32(0), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if metadata is None:
        metadata = {"hardcase.dtypes": ",".join(DTYPES), "hardcase.classes": str(N_CLASSES)}
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def write_model(folder: Path) -> Path:
    """``tiny_model`` as a file."""
    path = folder / "hpc.onnx"
    path.write_bytes(tiny_model())
    return path


def ask(id_: int, readings: tuple[Reading, ...], sha256: str = FAKE, deadline_ms: int = 1000) -> bytes:
    """A request's bytes."""
    request = Request(id_.to_bytes(16, "big"), bytes.fromhex(sha256), deadline_ms, readings)
    return pack_request(request, DTYPES[: len(readings)])


class FakeModel:
    """Answers every row with class 1, or raises what one of them ``fails`` with; keeps batches and the time it took."""

    def __init__(
        self, fails: Callable[[Sequence[Any]], Exception | None] = lambda row: None, row_s: float = 0.0,
        dtypes: tuple[str, ...] = DTYPES,
    ) -> None:  # fmt: skip
        self.fails, self.row_s, self.dtypes, self.sha256 = fails, row_s, dtypes, FAKE
        self.batches, self.now = list[int](), 0.0

    def answer(self, rows: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
        self.batches.append(len(rows))
        for error in filter(None, map(self.fails, rows)):
            raise error
        self.now += self.row_s * len(rows)
        return [(1, 5000)] * len(rows)


def half_forwarding(sha256: str) -> Loaded:
    """A bundle that reads sensor a; where it is above 0 it forwards (sensor b too), else answers class 2."""
    uplink = d.Uplink(request_bytes(DTYPES), (0, 1))
    program = d.Program(
        features=(d.Feature("f32"), d.Feature("f32")),
        sensors=(d.Sensor((0,), (1_000_000,)), d.Sensor((1,), (2_000_000,))),
        uplink=uplink,
        columns=(d.Column(0, d.Affine(8, 1, 0, 0)),),
        scorers=(
            d.Polynomial((0,), (0,), 1, ((0,),), ((1,),), (0,)),  # code of a
            d.Polynomial((), (), 1, ((0,),), ((0,), (0,), (1,)), (0, 0, 0)),  # always class 2
        ),
        nodes=(
            d.Acquire((0,), 1, 2), d.Branch(d.Slice(0, 0, 1), d.ARGMAX, (2, 3)), d.Answer(d.Slice(1, 0, 3)),
            d.Forward((1,), 4), d.Answer(d.Slice(1, 0, 3)),
        ),
        n_classes=N_CLASSES,
        costs=d.Costs(100_000_000, 20_000),
    )  # fmt: skip
    manifest = Manifest(
        name="half", unit="mJ", features=("x0", "x1"), sensors=("a", "b"), classes=("red", "green", "blue"), hpc=sha256
    )
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program, ())))


class Command:
    """A running ``hardcase`` process whose lines are JSON events."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hardcase.cli", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def wait_for(self, event: str, count: int = 1, seconds: float = 90.0) -> dict[str, Any]:
        """The ``count``-th event of that name; fails with what was said if the process ends first."""
        until = time.monotonic() + seconds
        while True:
            found = [e for e in self.events if e["event"] == event]
            if len(found) >= count:
                return found[count - 1]
            if self.process.poll() is not None and not self._reader.is_alive():
                raise AssertionError(f"no {event!r}: ended with {self.process.returncode}: {self.stderr()}")
            assert time.monotonic() < until, f"no {event!r} within {seconds} s; events: {self.events}"
            time.sleep(0.01)

    def stderr(self) -> str:
        """What it said on standard error; waits for its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def finish(self, seconds: float = 60.0) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(seconds)
        self._reader.join(seconds)
        return status


@contextmanager
def command(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Command]:
    """A command that runs while the block does."""
    running = Command(*arguments, environment=environment)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(10)
        running._reader.join(10)
        for stream in (running.process.stdout, running.process.stderr):
            assert stream is not None
            stream.close()
