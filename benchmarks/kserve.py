# SPDX-License-Identifier: Apache-2.0
"""A worker whose f0 is behind a real server of the KServe v2 protocol: MLServer, in an environment of its own.

    make bench NAME=kserve
    python -m benchmarks run kserve [--mlserver build/mlserver/bin/mlserver]

The server runs a model of three classes on two readings. Asked are the model directly, of batches of 1 and 32, and
devices through mosquitto and a worker: every answer is compared with the same function, called here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import ROOT, markdown
from hardcase_cloud.answer.kserve import KserveModel
from hardcase_cloud.mqtt.prober import Prober
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import OK, reply_topic, request_topic, unpack_reply
from tests.helpers.cloud.brokers import free_port, running_mosquitto
from tests.helpers.cloud.requests import N_CLASSES, ask, command, half_forwarding

SHA = "ab" * 32
N_CALLS, N_ASKED = 200, 200
HEAD = """# A model server

`make bench NAME=kserve` wrote this page, on a machine with 2 cores.

"""
MODEL = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


def answer(X):
    e = np.exp(X @ np.array([[1.0, -1.0, 0.5], [0.2, 0.7, -0.4]]))
    return e / e.sum(axis=1, keepdims=True)


class Model(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        X = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output(name="probabilities", payload=answer(X))
        return InferenceResponse(model_name=self.name, outputs=[output])
"""


def expected(X: np.ndarray) -> np.ndarray:
    """What the model computes, (n, 3)."""
    e = np.exp(X @ np.array([[1.0, -1.0, 0.5], [0.2, 0.7, -0.4]]))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


@contextmanager
def serving(mlserver: Path, folder: Path) -> Iterator[int]:
    """The server on a free port."""
    ports = [free_port() for _ in range(3)]
    (folder / "model.py").write_text(MODEL)
    inputs = [{"name": "X", "datatype": "FP64", "shape": [-1, 2]}]
    model = {"name": "toy", "implementation": "model.Model", "inputs": inputs}
    (folder / "model-settings.json").write_text(json.dumps(model))
    settings = {
        "host": "127.0.0.1", "http_port": ports[0], "grpc_port": ports[1], "metrics_port": ports[2],
        "parallel_workers": 0, "debug": False,
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([mlserver, "start", folder], stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        until = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/v2/models/toy/ready", timeout=1).close()
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((folder / "log").read_text()[-800:]) from error
                time.sleep(0.2)
        yield ports[0]
    finally:
        process.terminate()
        process.wait(20)


def measure(mlserver: Path) -> dict[str, Any]:
    """All of it."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"direct": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server").mkdir()
        with serving(mlserver, folder / "server") as port, running_mosquitto(folder) as broker:
            url = f"kserve+http://127.0.0.1:{port}/v2/models/toy"
            model = KserveModel(url, 2, 5.0)
            for n in (1, 32):
                took, wrong = [], 0
                for _ in range(N_CALLS):
                    X = rng.normal(size=(n, 2))
                    began = time.perf_counter()
                    p = model(X, ("x0", "x1"))
                    took.append(1000 * (time.perf_counter() - began))
                    wrong += int((~np.isclose(p, expected(X)).all(axis=1)).sum())
                found["direct"][str(n)] = {"ms": statistics.median(took), "wrong": wrong, "asked": n * N_CALLS}
            (folder / "model.hcb").write_bytes(pack_bundle(half_forwarding(SHA).bundle))
            words = ["cloud", "worker", "--broker", broker.url, "--hpc", url, "--bundle", str(folder / "model.hcb")]
            with command(*words, "--json", "--linger-ms", "0") as worker:
                worker.wait_for("ready", seconds=60)
                client = Prober(parse_address(broker.url), None, "asks")
                client.subscribe(reply_topic("asks"))
                took, wrong = [], 0
                for k in range(N_ASKED):
                    X = rng.normal(size=(1, 2)).astype(np.float32)
                    payload = ask(k + 1, tuple(float(x) for x in X[0]), SHA, 5_000)
                    began = time.perf_counter()
                    client.publish(request_topic("asks"), payload, correlation=payload[8:24], expiry_s=5)
                    message = client.message()
                    took.append(1000 * (time.perf_counter() - began))
                    reply = unpack_reply(message.payload, bytes.fromhex(SHA), N_CLASSES)
                    right = int(expected(X.astype(np.float64)).argmax())
                    wrong += (reply.status, reply.result) != (OK, right)
                    time.sleep(0.002)
                found["worker"] = {"ms": statistics.median(took), "wrong": wrong, "asked": N_ASKED}
    version = subprocess.run([mlserver, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return {**found, "version": version, "load": os.getloadavg()[0]}


def page(m: dict[str, Any]) -> str:
    """The Markdown page."""
    rows = [[f"the server directly, {n} row{'s' * (n != '1')} a call", d] for n, d in m["direct"].items()]
    rows.append(["device, mosquitto, worker, server, and back", m["worker"]])
    cells = [[str(what), f"{d['asked']:,}", f"{d['wrong']}", f"{d['ms']:.2f}"] for what, d in rows]
    wrong = sum(int(row[2]) for row in cells)
    verdict = "Every answer was right." if wrong == 0 else f"Missed: {wrong} answers were wrong."
    table = markdown(("asked", "rows", "wrong", "median, ms"), cells)
    return (
        f"{HEAD}MLServer {m['version']} serves a model of three classes on two readings over HTTP, in its own process, "
        f"while the machine's load average was {m['load']:.0f}: its times say what a busy machine gave."
        f"\n\n{table}\n\n{verdict}\n"
        "Direct calls follow each other at once, and those of the device with 2 ms between them.\n"
        "Triton speaks the same protocol, and could not be had here.\n"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--mlserver", type=Path, default=ROOT / "build" / "mlserver" / "bin" / "mlserver")


def run(args: Any) -> Any:
    """Measure."""
    return measure(args.mlserver.absolute())
