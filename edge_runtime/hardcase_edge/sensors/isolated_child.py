# SPDX-License-Identifier: Apache-2.0
"""The process of an isolated function: calls it for one sensor, as often as the device asks (``isolated.py``).

    python -P -m hardcase_edge.sensors.isolated_child REQUESTS REPLIES MODULE:FUNCTION SENSOR COUNT

REQUESTS and REPLIES are numbers of open files. When the device closes the first one, or is gone, the process ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from ..base.parcel import unpack
from ..base.printing import print_to_stderr
from ..errors import InputError, SensorError, one_line, type_and_line
from .plugin import load_function
from .values import NEITHER, as_plain

READ, WITH_ITEM = b"r", b"i"  # the first byte of a request
END_S = 1.0  # for exit handlers, as in isolated.py; longer after a device that was killed


def main(requests: int, replies: int, name: str, sensor: str, count: int) -> None:
    """Serve one sensor until the device closes ``requests``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)  # the device ends first, in its own time
    for file in (requests, replies):
        os.set_inheritable(file, False)
    print_to_stderr()
    threading.Thread(target=_end_with_device, args=(requests,), daemon=True).start()
    try:
        function = load_function(name, "sensor source")
    except InputError as error:
        _send(replies, {"error": str(error)})
        return
    try:
        _serve(requests, replies, lambda *item: _read(function, sensor, count, *item))
    except BrokenPipeError:  # the device was killed
        return


def _ignore(number: int, frame: object) -> None:
    """Do nothing, unlike SIG_IGN in this process alone: programs that the function starts can be terminated."""


def _serve(requests: int, replies: int, read: Callable[..., dict[str, object]]) -> None:
    process = os.getpid()
    _send(replies, {"ready": True})
    while kind := os.read(requests, 1):
        reply = read() if kind == READ else read(_bytes(requests, int.from_bytes(_bytes(requests, 4), "little")))
        if os.getpid() != process:
            os._exit(1)  # the function has forked, and its child must not answer, too
        _send(replies, reply)


def _bytes(requests: int, n: int) -> bytearray:
    data = bytearray()
    while len(data) < n:
        part = os.read(requests, n - len(data))
        if not part:
            os._exit(0)  # the device has ended
        data += part
    return data


def _read(function: Callable[..., object], sensor: str, count: int, item: bytearray | None = None) -> dict[str, object]:
    try:
        items = () if item is None else (unpack(bytes(item)),)
        value = as_plain(function(sensor, *items), count)
        reply: dict[str, object] = {"value": [NEITHER] if value is NEITHER else value}
        json.dumps(reply)  # an integer may have too many digits
    except SensorError as error:
        return {"failure": str(error.reason), "detail": one_line(error)}
    except BaseException as error:  # SystemExit too
        return {"failure": "raised", "detail": type_and_line(error)}
    return reply


def _send(replies: int, reply: dict[str, object]) -> None:
    data = json.dumps(reply).encode()
    data = len(data).to_bytes(4, "little") + data
    while data:
        data = data[os.write(replies, data) :]


def _end_with_device(requests: int) -> None:
    """End the process a moment after the device has closed its end, even if the function hangs."""
    poll = select.poll()
    poll.register(requests, 0)  # tells only that the other end was closed
    poll.poll()
    time.sleep(END_S)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
