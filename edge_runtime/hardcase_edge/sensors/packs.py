# SPDX-License-Identifier: Apache-2.0
"""SenML packs as a source, one line with one pack per item (``drivers/senml.py`` says what a pack is).

A feature is the latest measurement of its name, and the samples of a window are the measurements of the sensor's name
in the order of time. A line that is not a pack, or is too long, fails every sensor of its item.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import BinaryIO

from ..base.files import STDIN, close_stream, open_stream
from ..drivers.senml import NAME, Measurement, resolve
from ..errors import InputError, SensorError
from .bank import Wanted

MAX_LINE = 1024 * 1024  # bytes: some 25,000 measurements, of which Python makes objects of some 30 MB


class Packs:
    """A file of SenML packs as a source.

    Parameters
    ----------
    path : the file; ``-`` reads standard input as it comes
    now : Unix time in seconds, for records with relative times

    Raises
    ------
    InputError
        The file cannot be read.
    """

    is_instant = True  # ``next_item`` has read the line

    def __init__(self, path: str, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._wanted: dict[str, Wanted] = {}
        self._values: dict[str, list[Measurement]] | None = None
        name = STDIN if path == "-" else path
        try:
            self._file: BinaryIO = open_stream(name, "senml", lambda: open(name, "rb"))  # noqa: SIM115
        except OSError as error:
            raise InputError(f"SenML file {path} cannot be read: {error.strerror}; name another") from error

    def lacks(self, wanted: Wanted) -> str:
        """Why no pack can serve that sensor: SenML does not allow its name, or that of a feature."""
        for name in (wanted.name,) if wanted.window else wanted.features:
            if not NAME.fullmatch(name):
                return f"sensor {wanted.name}: {name[:80]!r} cannot be a name in SenML; use another source"
        self._wanted[wanted.name] = wanted
        return ""

    def next_item(self) -> bool:
        """Read the next line that is not blank; False at the end of the file."""
        while not self._file.closed and (line := self._file.readline(MAX_LINE)):
            if not line.strip():
                continue
            if line.endswith(b"\n") or len(line) < MAX_LINE:
                self._values = self._resolve(line)
                return True
            while line and not line.endswith(b"\n"):  # skip the rest of a line that is too long, in pieces
                line = self._file.readline(MAX_LINE)
            self._values = None
            return True
        self.close()
        return False

    def read(self, sensor: str) -> object:
        """The current pack's values of one sensor."""
        if self._values is None:
            raise SensorError("bad_row", "a line is not a SenML pack")
        wanted = self._wanted[sensor]
        if wanted.window:
            return [m.value for m in self._values.get(sensor, [])]
        latest = [self._values.get(name) for name in wanted.features]
        return [measurements[-1].value if measurements else None for measurements in latest]

    def close(self) -> None:
        """Close the file."""
        close_stream(self._file)

    def _resolve(self, line: bytes) -> dict[str, list[Measurement]] | None:
        values: dict[str, list[Measurement]] = {}
        try:
            for measurement in resolve(line.decode(), self._now()):
                values.setdefault(measurement.name, []).append(measurement)
        except (SensorError, UnicodeDecodeError):
            return None
        return values
