# SPDX-License-Identifier: Apache-2.0
"""What a request that comes alone costs at the least: a socket that echoes, and what a worker must add, step by step.

    python -m benchmarks.alone

Messages of 100 bytes come to a process of its own at 100 a second, and again as fast as they are answered. Its CPU is
divided by their number: the difference of the two is what a processor pays that has done something else meanwhile.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pages import ROOT

__all__ = ["STEPS", "alone"]

STEPS = {
    "receives and sends": "",
    "and has waited for a message or a time": "w",
    "and calls a function on another thread": "wt",
    "and asks a small ONNX model instead": "wm",
}
N, EACH_S, BYTES = 300, 0.01, 100


def serve(parts: str, port: int) -> None:
    """Answer N messages twice, and print microseconds of CPU a message of both rounds."""
    from hardcase_cloud.answer.onnx_model import Hpc
    from hardcase_edge.sensors.timeout import TimedCall
    from tests.helpers.cloud.requests import write_model

    with tempfile.TemporaryDirectory() as folder:
        hpc = Hpc(write_model(Path(folder)))
    call = TimedCall(lambda x: x)
    row = [(1.0, 4.0)]
    line = socket.create_connection(("127.0.0.1", port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    poll = select.poll()
    poll.register(line, select.POLLIN)
    spent = []
    for _ in range(2):
        line.sendall(b"!")  # ready
        began = time.process_time()
        for _ in range(N):
            if "w" in parts:
                poll.poll(200)
            data = line.recv(65_536)
            if "t" in parts:
                call.begin(data).result(time.monotonic() + 1)
            if "m" in parts:
                hpc.answer(row)
            line.sendall(data)
        spent.append(1e6 * (time.process_time() - began) / N)
    print(json.dumps(spent), flush=True)


def alone() -> dict[str, list[float]]:
    """Of each step: microseconds of CPU a message at 100 a second, and at once after each other."""
    found = {}
    for name, parts in STEPS.items():
        listener = socket.create_server(("127.0.0.1", 0))
        words = [sys.executable, "-m", "benchmarks.alone", f"={parts}", str(listener.getsockname()[1])]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
        line, _ = listener.accept()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pause_s in (EACH_S, 0.0):
            line.recv(1)
            for _ in range(N):
                line.sendall(bytes(BYTES))
                line.recv(BYTES)
                time.sleep(pause_s)
        found[name] = json.loads(server.communicate()[0])
        line.close()
        listener.close()
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(sys.argv[1].removeprefix("="), int(sys.argv[2]))
    else:
        for step, (apart, at_once) in alone().items():
            print(f"{step}: {apart:.0f} us at 100 a second, {at_once:.0f} us at once after each other")
