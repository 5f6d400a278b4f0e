# SPDX-License-Identifier: Apache-2.0
"""A user's function as a source in processes of its own, one for each sensor (``--isolate``).

A process that does not answer within the time limit is killed, with all processes that it has started; so a function
that crashes or never gives Python's lock back costs one sensor, and not the device. A process that has ended is started
again, five times at once and then every ten seconds. ``isolated_child.py`` is the other side.

    device -> process      READ: read the sensor; or WITH_ITEM, length (4 bytes), the item as base/parcel.py packs it
    process -> device      length (4 bytes), JSON: ready or error once, then value or failure for each request
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any

from ..base.parcel import pack
from ..errors import InputError, SensorError
from .bank import Wanted
from .isolated_child import READ, WITH_ITEM
from .plugin import checked_name

CHILD = "hardcase_edge.sensors.isolated_child"
MAX_REPLY = 4 * 1024 * 1024  # bytes; what claims more is not read ...
MAX_ITEM = 64 * 1024 * 1024  # bytes of a packed item
MAX_VALUE = 32  # ... unless so many bytes for each of its values are more: a number in JSON has up to 26
START_S = 120.0  # for Python to start and the module to be imported, by many processes at once on a small machine
LOOK_S = 0.05  # between looks at whether the device ends, while a process takes in an item
END_S = 1.0  # for the module's exit handlers, when the device ends
RESTARTS, RESTART_EVERY_S = 5, 10.0  # so a function that crashes whenever it is called does not keep the machine busy


class Isolated:
    """A ``MODULE:FUNCTION`` as a source; ``start`` says for which sensors.

    Parameters
    ----------
    name : ``MODULE:FUNCTION``
    timeout_s : seconds after which a read has failed, and its process is killed
    item : gives the item that the function is called with behind the sensor's name; None: it gets the name alone

    Raises
    ------
    InputError
        The name has another form.
    """

    is_instant = False
    _item: Callable[[], object] | None = None

    def __init__(self, name: str, timeout_s: float, item: Callable[[], object] | None = None) -> None:
        checked_name(name, "sensor source")
        self._name = name
        self._item = item
        self._timeout_s = timeout_s
        self._processes: dict[str, _Process] = {}

    def start(self, wanted: Sequence[Wanted]) -> None:
        """Start the processes of these sensors, all at once, and wait until they have imported the module.

        Raises
        ------
        InputError
            The module cannot be imported or has no such function, or there are too many processes or open files.
        """
        for w in wanted:
            self._processes[w.name] = _Process(self._name, w, self._timeout_s)
        for process in self._processes.values():
            process.open()

    def lacks(self, wanted: Wanted) -> str:
        """Empty: a function serves every sensor, and gets the sensor's name."""
        return ""

    def next_item(self) -> bool:
        """True: there is always a next item."""
        return True

    def read(self, sensor: str) -> object:
        """The value that the function returns for this sensor, as ``values.as_plain`` makes it.

        Raises
        ------
        SensorError
            The function or its process has failed, or the item cannot be packed; ``reason`` says how.
        """
        return self._processes[sensor].read(READ if self._item is None else _request(self._item()))

    def close(self) -> None:
        """End all processes: each may run its exit handlers, and is killed if that takes longer than a second."""
        for process in self._processes.values():
            process.hang_up()
        until = monotonic() + END_S
        for process in self._processes.values():
            process.end(until)


def _request(item: object) -> bytes:
    """The request for a reading of this item; on the sensor's thread, because an item may be large."""
    data = pack(item)
    if len(data) > MAX_ITEM:
        raise SensorError("raised", f"an item of {len(data)} bytes is refused")
    return WITH_ITEM + len(data).to_bytes(4, "little") + data


class _Process:
    """One process, and the next one after it has ended."""

    def __init__(self, name: str, wanted: Wanted, timeout_s: float) -> None:
        self._words = [name, wanted.name, str(wanted.count)]
        self._max_reply = max(MAX_REPLY, MAX_VALUE * wanted.count)
        self._timeout_s = timeout_s
        self._next_start = monotonic()  # runs ahead of the clock by RESTART_EVERY_S for each start
        self._lock = threading.Lock()  # of what follows: the device closes while a sensor's thread may still read
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._start()

    def open(self) -> None:
        """Wait until the module is imported.

        Raises
        ------
        InputError
            It is not, or there is no process; the message says why.
        """
        if self._child is None:
            raise InputError(f"{self._words[0]} gets no process: there are too many, or too many open files")
        try:
            self._be_ready()
        except SensorError as error:
            raise InputError(str(error)) from error

    def read(self, request: bytes) -> object:
        """One reading; see ``Isolated.read``."""
        if self._child is None and not self._start():
            raise SensorError("crashed", "the process has ended and cannot be started yet; it is tried again later")
        self._be_ready()
        until = monotonic() + self._timeout_s
        self._ask(request, until)
        reply = self._receive(until)
        if "value" not in reply:
            raise SensorError(reply.get("failure", "raised"), str(reply.get("detail", "")))
        value: object = reply["value"]
        return value

    def hang_up(self) -> None:
        """Tell the process to end."""
        with self._lock:
            self._is_closed = True
            if self._child is not None:
                os.close(self._requests)

    def end(self, until: float) -> None:
        """Wait for its end until this time of ``time.monotonic``, then kill what is left of it."""
        with self._lock:
            if self._child is None:
                return
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT  # it stays a zombie, so that nobody gets its number
            while os.waitid(os.P_PID, self._child.pid, options) is None and monotonic() < until:
                sleep(0.005)
            self._bury()

    # ------------------------------------------------------------ parts

    def _start(self) -> bool:
        """Start a process, unless there were too many; whether there is one now."""
        with self._lock:
            now = monotonic()
            if self._is_closed or self._next_start > now + RESTARTS * RESTART_EVERY_S:
                return False
            self._next_start = max(self._next_start, now) + RESTART_EVERY_S
            self._child = self._popen()
            self._began, self._is_ready = now, False
            return self._child is not None

    def _popen(self) -> subprocess.Popen[bytes] | None:
        """A process with its two pipes; None, and no pipe, if there are too many processes or open files."""
        files: list[int] = []
        try:
            files += os.pipe()
            files += os.pipe()
            requests, self._requests, self._replies, replies = files
            command = [sys.executable, "-P", "-m", CHILD, str(requests), str(replies), *self._words]
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(requests, replies), start_new_session=True
            )
        except OSError:
            for file in files:
                os.close(file)
            return None
        os.close(requests)
        os.close(replies)
        os.set_blocking(self._requests, False)  # an item may be longer than a pipe, and the process may not read it
        return child

    def _be_ready(self) -> None:
        if not self._is_ready:
            reply = self._receive(self._began + START_S)
            if "ready" not in reply:
                self._kill()
                raise SensorError("crashed", str(reply.get("error"))[:400])
            self._is_ready = True

    def _ask(self, request: bytes, until: float) -> None:
        """Send a request; what the process does not take in time is seen by ``_receive``, as is its end."""
        rest = memoryview(request)
        while True:
            with self._lock:
                if self._is_closed or self._child is None:
                    raise SensorError("crashed", "the device is about to end")
                file = self._requests
                try:
                    rest = rest[os.write(file, rest) :]
                except BlockingIOError:
                    pass
                except OSError:  # the process has ended since its last reply
                    return
            if not rest or monotonic() > until:
                return
            poll = select.poll()
            poll.register(file, select.POLLOUT)
            poll.poll(max(0.0, min(until - monotonic(), LOOK_S)) * 1000)

    def _receive(self, until: float) -> dict[str, Any]:
        """The next reply. The process is killed, and a new one started, if it gives none."""
        try:
            length = int.from_bytes(self._bytes(4, until), "little")
            if length > self._max_reply:
                raise SensorError("wrong_shape", f"a reply of {length} bytes is refused")
            reply = json.loads(self._bytes(length, until))
            if not isinstance(reply, dict):
                raise SensorError("crashed", "its process wrote what it must not")
        except Exception as error:
            self._kill()
            self._start()
            if isinstance(error, SensorError):
                raise
            raise SensorError("crashed", f"{self._words[0]} ended or wrote what it must not") from error
        return reply

    def _bytes(self, n: int, until: float) -> bytearray:
        data = bytearray()
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        while len(data) < n:
            if not poll.poll(max(0.0, until - monotonic()) * 1000):
                raise SensorError("timed_out", f"{self._words[0]} does not answer")
            part = os.read(self._replies, n - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def _kill(self) -> None:
        with self._lock:
            if self._child is not None and not self._is_closed:
                os.close(self._requests)
                self._bury()

    def _bury(self) -> None:
        assert self._child is not None
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except OSError:
            self._child.kill()  # it has not made its group yet
        self._child.wait()
        os.close(self._replies)
        self._child = None
