# SPDX-License-Identifier: Apache-2.0
"""The power from a recording that another instrument has made meanwhile: a CSV of a PPK2, of a Joulescope or alike.

Nobody knows by the device's clock when a recording began. So the processor works and rests in a pattern before the
first round, the Barker code of 13 chips, and where the recording's power is most like that pattern, it was played. The
pattern is no read of a sensor: one that draws nothing is not found to draw something by where it was looked for.
"""

from __future__ import annotations

import re
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from math import isfinite
from typing import BinaryIO

from ...device.output import note
from ...errors import InputError
from .energy import Times, rounds

CODE = "1111100110101"
CHIP_S = 0.2
REST_S = 0.5  # before and behind the code, and behind the last round
BIN_S = 0.001  # the energy is known at the multiples of this
COARSE = 10  # bins between two places where the code is looked for at first
LIKENESS = 0.8  # least correlation of the thirteen powers with the code
MAX_BYTES = 1 << 30
MAX_LINE = 4096
MAX_S = 1800.0
MAX_GAP_S = 0.01  # between two samples; rarer ones do not show the phases
MOST = {"time": 1e12, "current": 100.0, "voltage": 1000.0, "power": 1e5}  # s, A, V, W
PREFIXES = {"": 1.0, "m": 1e-3, "u": 1e-6, "\u00b5": 1e-6, "\u03bc": 1e-6, "n": 1e-9}
COLUMN = re.compile(
    r"#?\s*(?:main )?(time|current|voltage|power)(?:stamp)?\s*(?:[(\[]\s*([mun\u00b5\u03bc]?)[savw]\s*[)\]])?"
)


class Recorded:
    """A recording beside the run, as ``Live`` is a power sensor.

    Parameters
    ----------
    spec : FILE, or FILE@VOLTS if the file has currents without voltages, such as a PPK2's
    """

    def __init__(self, spec: str) -> None:
        path, at, volts = spec.rpartition("@")
        self._path = path if at else spec
        self._volts = _in_volts(spec, volts) if at else None
        self._began: float | None = None
        self._joules = array("d")
        self._offset = 0.0

    def rounds(self, read: Callable[[], object]) -> list[Times]:
        """The times of rounds of reads; before the first of all, the code is played."""
        if self._began is None:
            note("the recording must run by now; the processor plays its code, then sensors are read")
            self._began = play_code()
        return rounds(read)

    def finish(self) -> None:
        """Wait until a person has saved the file, then read it.

        Raises
        ------
        InputError
            It is no recording, or does not hold the code.
        """
        if self._began is None:
            return
        time.sleep(REST_S)  # the recorder's clock is not this one's
        note(f"stop the recording, save it as {self._path}, and press Enter")
        sys.stdin.readline()
        self._joules = read_recording(self._path, self._volts)
        self._offset = find_code(self._path, self._joules) - self._began

    def close(self) -> None:
        """Nothing is open."""

    def watts(self, began: float, ended: float) -> float:
        """The mean power between two times of ``time.monotonic``.

        Raises
        ------
        InputError
            The recording had ended by then.
        """
        return (self._until(ended) - self._until(began)) / (ended - began)

    def _until(self, moment: float) -> float:
        place = (moment + self._offset) / BIN_S
        k = int(place)
        if not 0 <= k < len(self._joules) - 1:
            raise InputError(f"{self._path} ended before the rounds did; record until measure says that it may stop")
        return self._joules[k] + (place - k) * (self._joules[k + 1] - self._joules[k])


def _in_volts(spec: str, text: str) -> float:
    try:
        volts = float(text)
    except ValueError:
        volts = -1.0
    if not 0 < volts <= MOST["voltage"]:
        raise InputError(f"the voltage of recording {spec[:80]!r} is not a number of volts; use FILE@3.3")
    return volts


def play_code(chip_s: float = CHIP_S) -> float:
    """Let the processor work in the chips that are 1 and rest in the others; when it began, by ``time.monotonic``."""
    time.sleep(REST_S)
    began = time.monotonic()
    for k, chip in enumerate(CODE):
        end = began + (k + 1) * chip_s
        if chip == "1":
            while time.monotonic() < end:
                pass
        else:
            time.sleep(max(0.0, end - time.monotonic()))
    time.sleep(REST_S)
    return began


def find_code(path: str, joules: array[float], chip_s: float = CHIP_S) -> float:
    """When the code begins, in seconds of the recording.

    Parameters
    ----------
    path : for messages
    joules : energy since the recording began, at every bin

    Raises
    ------
    InputError
        There is nothing that is like the code.
    """
    chip = round(chip_s / BIN_S)
    last = len(joules) - 1 - chip * len(CODE)
    best = max(range(0, last + 1, COARSE), key=lambda k: _likeness(joules, k, chip)[0], default=0)
    near = range(max(0, best - COARSE), min(last, best + COARSE) + 1)
    best = max(near, key=lambda k: _likeness(joules, k, chip)[0], default=0)
    if last < 0 or _likeness(joules, best, chip)[1] < LIKENESS:
        raise InputError(
            f"{path} does not show the code that measure plays at its beginning; record all of the machine's supply, "
            "from before measure starts"
        )
    return best * BIN_S


def _likeness(joules: array[float], start: int, chip: int) -> tuple[float, float]:
    """How much more is drawn in the chips that are 1, weighted with, and its correlation with the code."""
    powers = [joules[start + (k + 1) * chip] - joules[start + k * chip] for k in range(len(CODE))]
    ones = CODE.count("1")
    zeros = len(CODE) - ones
    high = sum(p for p, c in zip(powers, CODE, strict=True) if c == "1") / ones
    low = (sum(powers) - high * ones) / zeros
    mean = sum(powers) / len(CODE)
    spread = sum((p - mean) ** 2 for p in powers)
    if high <= low or not spread:
        return 0.0, 0.0
    correlation = (high - low) * (ones * zeros / len(CODE) / spread) ** 0.5
    return (high - low) * correlation, correlation


def read_recording(path: str, volts: float | None = None) -> array[float]:
    """The energy in J since the recording began, at every multiple of ``BIN_S``.

    The columns are found by their names and units, as ``Timestamp(ms),Current(uA)`` of a PPK2 or
    ``#time,current,voltage`` of a Joulescope; a column ``power`` comes before current and voltage.

    Raises
    ------
    InputError
        It cannot be read, is too large or too long, or a line is not one of a recording.
    """
    joules, total, before = array("d", [0.0]), 0.0, None
    began = power = 0.0
    try:
        with open(path, "rb") as file:
            for number, at, watts in _samples(path, file, volts):
                if before is None:
                    before = began = at
                if not 0 <= at - before <= MAX_GAP_S or at - began > MAX_S:
                    raise InputError(
                        f"{path}, line {number}: the time is {at - began:g} s after {before - began:g} s; a recording "
                        f"has a sample every {MAX_GAP_S * 1e3:g} ms at least, in order, and {MAX_S:g} s at most"
                    )
                while len(joules) * BIN_S <= at - began:
                    joules.append(total + power * (len(joules) * BIN_S - (before - began)))
                total += power * (at - before)
                before, power = at, watts
    except OSError as error:
        raise InputError(f"recording {path} cannot be read: {error.strerror}; name the file that was saved") from error
    return joules


def _samples(path: str, file: BinaryIO, volts: float | None) -> Iterator[tuple[int, float, float]]:
    """The lines' numbers, times in s and powers in W."""
    columns = _columns(path, file.readline(MAX_LINE), volts)
    size, number = 0, 1
    while line := file.readline(MAX_LINE):
        size, number = size + len(line), number + 1
        if not line.strip():
            continue
        cells = line.split(b",", max(k for k, _ in columns.values()) + 1)
        try:
            found = {name: float(cells[k]) * unit for name, (k, unit) in columns.items()}
        except (ValueError, IndexError):
            found = {"time": float("nan")}
        if size > MAX_BYTES or not all(isfinite(value) and abs(value) <= MOST[name] for name, value in found.items()):
            raise InputError(f"{path}, line {number}: this is no sample of a recording up to {MAX_BYTES >> 20} MiB")
        power = found["power"] if "power" in found else found["current"] * found.get("voltage", volts or 0.0)
        yield number, found["time"], power


def _columns(path: str, head: bytes, volts: float | None) -> dict[str, tuple[int, float]]:
    """The place of each quantity in a line, and its unit in SI."""
    columns: dict[str, tuple[int, float]] = {}
    for k, cell in enumerate(head.decode("utf-8-sig", "replace").strip().split(",")):
        match = COLUMN.fullmatch(cell.strip().strip('"').lower())
        if match:
            columns.setdefault(match[1], (k, PREFIXES[match[2] or ""]))
    if "current" in columns and "voltage" not in columns and "power" not in columns and volts is None:
        raise InputError(f"{path} has currents and no voltages; name the supply's: recording:{path}@3.3")
    wanted = (
        {"time", "power"} if "power" in columns else {"time", "current"} | ({"voltage"} if volts is None else set())
    )
    if not wanted <= columns.keys():
        raise InputError(f"{path} has no columns time and current, or power, in its first line; export it with them")
    return {name: columns[name] for name in wanted}
