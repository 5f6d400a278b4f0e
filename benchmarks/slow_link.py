# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces with a slow and lossy link between them, which is a process of ours; needs root.

Each namespace has a tun device. A thread reads the packets of both, drops some, holds each of the others back for its
own time, so that packets overtake each other, and counts bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from types import TracebackType

__all__ = ["CLOUD", "CLOUD_IP", "DEVICE", "SlowLink"]

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
CLOUD, DEVICE = "hardcase-cloud", "hardcase-device"  # names of the namespaces
CLOUD_IP, DEVICE_IP = "10.77.0.1", "10.77.0.2"
MTU = 1_500


class SlowLink:
    """The namespaces and the link, while a ``with`` block runs.

    Parameters
    ----------
    delay_s, jitter_s : of each packet one way: uniform within the jitter of the delay
    loss : share of packets that are dropped
    """

    def __init__(self, delay_s: float = 0.05, jitter_s: float = 0.01, loss: float = 0.05, seed: int = 1) -> None:
        if os.geteuid() != 0:
            raise SystemExit("network namespaces and tun devices need root: run it with sudo")
        self._delay_s, self._jitter_s, self._loss = delay_s, jitter_s, loss
        self._random = random.Random(seed)
        self.n_bytes = 0  # sent into the link on either side, lost ones too
        self._files: list[int] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self) -> SlowLink:
        for name, ip in ((CLOUD, CLOUD_IP), (DEVICE, DEVICE_IP)):
            tun = f"hct{len(self._files)}"
            _ip("netns", "add", name)
            file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", tun.encode(), IFF_TUN | IFF_NO_PI))
            self._files.append(file)
            _ip("link", "set", tun, "netns", name)
            _ip("-n", name, "address", "add", f"{ip}/24", "dev", tun)
            for link in ("lo", tun):
                _ip("-n", name, "link", "set", link, "up")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._thread.join()
        for file in self._files:
            os.close(file)
        for name in (CLOUD, DEVICE):
            _ip("netns", "delete", name)

    def _carry(self) -> None:
        first, second = self._files
        to = {first: second, second: first}
        waiting: list[tuple[float, int, int, bytes]] = []
        n = 0
        while not self._is_over:
            wait_s = min(0.1, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for file in select.select(self._files, [], [], max(0.0, wait_s))[0]:
                packet = os.read(file, MTU + 100)
                self.n_bytes += len(packet)
                if self._random.random() >= self._loss:
                    delay_s = self._delay_s + self._jitter_s * self._random.uniform(-1, 1)
                    heapq.heappush(waiting, (time.monotonic() + delay_s, n, to[file], packet))
                    n += 1
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, file, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the device's queue is full: lost, too
                    os.write(file, packet)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
