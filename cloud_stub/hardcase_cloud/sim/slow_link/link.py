# SPDX-License-Identifier: Apache-2.0
"""The link's owner: starts its process, gives a thread the devices' namespace, cuts devices off, reads the counters.

with SlowLink("127.0.0.1", 1883, Weather(loss=0.02), n_devices=100) as link:
    link.enter()                     this thread's new sockets are at the near end, and see nothing but the gate
    sock.bind(link.source(7))        as device 7
    sock.connect(link.gate)          which is the broker, over the link
    link.cut(0.3, 5.0)
link.counters
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from types import TracebackType
from typing import Any

from hardcase_edge.errors import InputError

from .namespaces import enter
from .process import GATE, address_of
from .way import Weather

COMMAND = [sys.executable, "-m", "hardcase_cloud.sim.slow_link.process"]
END_S = 10.0


class SlowLink:
    """A link to one broker, while a ``with`` block runs.

    Parameters
    ----------
    host, port : of the broker
    weather : Weather
    n_devices : that will use it
    seed : for what happens to packets; which packets there are, the machine's timing decides

    Attributes
    ----------
    counters : dict of str to int
        At the end: packets, bytes, and what became of them, as of ``Way``; ``cpu_ms`` is what the process needed.

    Raises
    ------
    InputError
        On entry: this process may not make network namespaces or tun devices.
    """

    def __init__(self, host: str, port: int, weather: Weather, n_devices: int, seed: int = 1) -> None:
        self.counters: dict[str, int] = {}
        self.gate = (GATE, 0)
        self._asked = {"host": host, "port": port, "weather": asdict(weather), "devices": n_devices, "seed": seed}
        self._process: subprocess.Popen[bytes] | None = None
        self._namespace = -1

    def __enter__(self) -> SlowLink:
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._tell(self._asked)
        answer = self._line()
        if "namespace" not in answer:
            self._end()
            why = answer.get("error", "its process has ended")
            raise InputError(
                f"a link with losses needs network namespaces and tun devices, which cannot be had here: {why}; run it "
                "as root, or behind `unshare --user --map-root-user`, or leave out [network]"
            )
        self.gate = (GATE, answer["port"])
        self._namespace = os.open(f"/proc/{self._process.pid}/fd/{answer['namespace']}", os.O_RDONLY | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.counters = self._line()
        self._end()
        os.close(self._namespace)

    def enter(self) -> None:
        """Move the calling thread into the devices' namespace, for good.

        Raises
        ------
        OSError
            The process may not.
        """
        enter(self._namespace)

    def source(self, device: int) -> tuple[str, int]:
        """What the socket of a device is bound to: an address of its own, and any port."""
        return address_of(device), 0

    def cut(self, share: float, seconds: float) -> None:
        """Drop all packets of this share of the devices for so many seconds; their connections notice by themselves."""
        self._tell([share, seconds])

    def _end(self) -> None:
        assert self._process is not None
        with self._process as process:  # closes its pipes
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def _tell(self, what: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
        except BrokenPipeError:  # it has ended: no packet passes, which the devices' connections tell
            return

    def _line(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or b"{}")
        return answer
