# SPDX-License-Identifier: Apache-2.0
"""The level of sound at a capture device of ALSA, in dBFS over a window of time, by the program ``arecord``.

The level is 20 log10 of the root mean square of the samples less their mean, as a share of full scale: a square wave of
full scale has 0 dBFS, a sine -3.01. What is below -100 dBFS is reported as -100. ``arecord`` records 48,000 samples a
second on one channel at 16 bits; the device reads as many of them as the window has and kills it, or kills it when it
has been late for two seconds.
"""

from __future__ import annotations

import os
import sys
from array import array
from math import log10
from time import monotonic
from typing import TYPE_CHECKING

from ..errors import InputError, SensorError
from .channel import Channel, Device

if TYPE_CHECKING:
    from subprocess import Popen

NOUN = "capture device"
MATURITY, AGAINST = "tested", "it ran with a stand-in for arecord, and on no sound card"
SAID = (
    "ALSA's name (`plughw:1,0`, [`arecord -L`](https://www.alsa-project.org/) lists them), and behind `@` the window, "
    "0.01 to 10 seconds (0.25)",
    "`level`",
    "the level of sound in dBFS",
)
DEVICE_FILES, GROUP = (
    "char-alsa",
    "audio",
)  # the files below /dev that arecord opens, as systemd names them, and who may
RATE = 48_000  # samples a second, which every converter has or ALSA's plug layer makes
DEFAULT_S, LONGEST_S = 0.25, 10.0  # of the window
LATE_S = 2.0  # for arecord to start and to open the device
SILENCE = -100.0  # dBFS
MAX_NAME = 200


def find(name: str, root: str) -> Device:
    """A capture device by ALSA's name for it, such as ``plughw:1,0``, and behind ``@`` the window in seconds.

    Raises
    ------
    InputError
        ``arecord`` is not installed, the name is empty or has unprintable characters, or the window is out of range.
    """
    program = f"{root}/usr/bin/arecord"
    device, seconds = check(name)
    if not os.access(program, os.X_OK):
        raise InputError(f"{NOUN} {device[:80]!r} needs {program}; install it (Debian: apt install alsa-utils)")
    recorder = _Recorder(program, device, int(RATE * seconds))
    return Device(name, {"level": Channel("dBFS", recorder.read)}, recorder.close)


def check(name: str) -> tuple[str, float]:
    """The device and the window in seconds of a name, as far as they can be told without a machine.

    Raises
    ------
    InputError
        The name is empty or has unprintable characters, or the window is out of range.
    """
    device, at, window = name.partition("@")
    try:
        seconds = float(window) if at else DEFAULT_S
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= LONGEST_S:
        raise InputError(f"the window of {NOUN} {name[:80]!r} is not 0.01 to {LONGEST_S:g} seconds; write DEVICE@0.25")
    if not device or len(device) > MAX_NAME or not device.isprintable():
        raise InputError(f"{name[:80]!r} names no {NOUN}; arecord -L lists them")
    return device, seconds


def level_dbfs(data: bytes) -> float:
    """The level of samples of 16 bits, little endian.

    Examples
    --------
    >>> level_dbfs(bytes(200)), round(level_dbfs(b"\\x00\\x40\\x00\\xc0" * 100), 2)
    (-100.0, -6.02)
    """
    samples = array("h", data)
    if sys.byteorder == "big":
        samples.byteswap()
    n, total = len(samples), sum(samples)
    square = (sum(x * x for x in samples) * n - total * total) / (n * n * 32768.0**2)
    return max(10 * log10(square), SILENCE) if square > 0 else SILENCE


class _Recorder:
    """Runs ``arecord`` once for each reading; ``close`` ends one that another thread waits for."""

    def __init__(self, program: str, device: str, n_samples: int) -> None:
        settings = ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r"]
        self._command = [program, f"--device={device}", *settings, str(RATE)]
        self._n_bytes = 2 * n_samples
        self._limit_s = n_samples / RATE + LATE_S
        self._child: Popen[bytes] | None = None
        self._is_closed = False

    def read(self) -> float:
        """The level of the next window.

        Raises
        ------
        SensorError
            ``arecord`` ended or was late.
        """
        import subprocess

        if self._is_closed:
            raise SensorError("raised", "the device is about to end")
        quiet = subprocess.DEVNULL
        with subprocess.Popen(self._command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet) as child:
            self._child = child
            try:
                assert child.stdout is not None
                data = _read_within(child.stdout.fileno(), self._n_bytes, monotonic() + self._limit_s)
            finally:
                child.kill()
        return level_dbfs(data)

    def close(self) -> None:
        """Kill what still records, and record no more."""
        self._is_closed = True
        if self._child is not None:
            self._child.kill()


def _read_within(descriptor: int, n: int, until: float) -> bytes:
    """So many bytes of a pipe, by this time of ``time.monotonic``."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    data = bytearray()
    while len(data) < n:
        if not poll.poll(max(0.0, until - monotonic()) * 1000):
            raise SensorError("timed_out", "arecord gives no samples")
        part = os.read(descriptor, n - len(data))
        if not part:
            raise SensorError("raised", "arecord has ended; try it by hand")
        data += part
    return bytes(data)
