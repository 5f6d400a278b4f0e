# SPDX-License-Identifier: Apache-2.0
"""Evidence beside an audit: a small picture or sound that a plug-in gives of what its sensor saw, for who labels it.

    # my_sensors.py
    def evidence(sensor):        # asked only when an audit of this item is kept
        return open("frame.jpg", "rb").read()    # PNG, JPEG or WAV of at most 12 KB; None: there is none

What comes is bounded and looked at here, and again by whoever shows it: a type follows from the first bytes, and a
picture has at most ``MOST_PIXELS`` in each direction, because a few bytes can be a huge one.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...errors import SensorError
from ...sensors.timeout import TimedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_EVIDENCE_BYTES = 12_288  # of one audit, so that its record stays below 32 KB
MOST_PIXELS = 4_096
PNG = b"\x89PNG\r\n\x1a\n"
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of JPEG that tell a size
ALONE = frozenset([0x01, *range(0xD0, 0xDA)])  # and those without a length


def type_of(data: bytes) -> str:
    """``image/png``, ``image/jpeg`` or ``audio/wav`` by the first bytes; "" of anything else, and of a huge picture.

    >>> type_of(b"RIFF....WAVEfmt "), type_of(b"<svg>")
    ('audio/wav', '')
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "audio/wav"
    if data[:8] == PNG and data[12:16] == b"IHDR" and len(data) >= 24:
        return "image/png" if _is_size(*struct.unpack(">II", data[16:24])) else ""
    return "image/jpeg" if data[:3] == b"\xff\xd8\xff" and _is_size(*_jpeg_size(data)) else ""


def _is_size(width: int, height: int) -> bool:
    return 0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height; zeros if no frame tells them."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        if marker == 0xFF:  # a filler
            at += 1
        elif marker in ALONE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def from_record(fields: Mapping[str, Any]) -> dict[str, bytes]:
    """The evidence in a record of an audit by the sensor's name; what is not evidence is left out."""
    texts = fields.get("evidence")
    found: dict[str, bytes] = {}
    left = MAX_EVIDENCE_BYTES
    for name, text in list(texts.items())[:16] if isinstance(texts, dict) else ():
        if not isinstance(text, str) or len(text) > 4 * (left + 2) // 3 + 4 or not text.isascii():
            continue
        try:
            data = a2b_base64(text.encode(), strict_mode=True)
        except ValueError:
            continue
        if len(data) <= left and type_of(data):
            found[name] = data
            left -= len(data)
    return found


class Evidence:
    """Asks the plug-ins of a run.

    Parameters
    ----------
    functions : by sensor, what gives its evidence
    timeout_s : for each of them
    tell : called with a line for the log, once for each sensor that gives none although it has a function
    """

    def __init__(
        self, functions: Mapping[str, Callable[[str], object]], timeout_s: float, tell: Callable[[str], object]
    ) -> None:
        self._calls = {name: TimedCall(lambda name=name, f=f: f(name)) for name, f in functions.items()}
        self._timeout_s, self._tell = timeout_s, tell
        self._told: set[str] = set()

    def take(self) -> dict[str, str]:
        """Of the current item, in base64 by the sensor's name, ``MAX_EVIDENCE_BYTES`` together at most."""
        taken: dict[str, str] = {}
        left = MAX_EVIDENCE_BYTES
        for name, call in self._calls.items():
            data, trouble = self._ask(call, left)
            if trouble and name not in self._told:
                self._told.add(name)
                self._tell(f"sensor {name} gives no evidence for audits: {trouble}")
            if data:
                left -= len(data)
                taken[name] = b2a_base64(data, newline=False).decode()
        return taken

    def close(self) -> None:
        """End the threads."""
        for call in self._calls.values():
            call.close()

    def _ask(self, call: TimedCall, left: int) -> tuple[bytes, str]:
        ticket = call.begin()
        if ticket is None:
            return b"", "an earlier call has not returned yet"
        try:
            data = ticket.result(monotonic() + self._timeout_s)
        except SensorError as error:
            is_late = error.reason == "timed_out"
            return b"", f"nothing within {self._timeout_s * 1000:g} ms" if is_late else f"it raised {error}"
        if data is None:
            return b"", ""
        if type(data) is not bytes:
            return b"", f"it is a {type(data).__name__}; give bytes or None"
        if len(data) > left:
            return b"", f"it has {len(data)} bytes, and {left} are left of {MAX_EVIDENCE_BYTES}; make it smaller"
        if not type_of(data):
            return b"", f"it is no PNG, JPEG or WAV, or has more than {MOST_PIXELS} pixels in a row or column"
        return data, ""
