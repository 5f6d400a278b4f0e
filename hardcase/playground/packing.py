# SPDX-License-Identifier: Apache-2.0
"""The data of the page: JSON and blobs of bytes, deflated together, as text.

Blobs stand behind the JSON as they are, because base64 within what is deflated would hide their repetitions.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.kernel.image import make_image


class Blobs:
    """Blobs of bytes, which JSON names by their place.

    >>> blobs = Blobs()
    >>> blobs.add(b"abc"), blobs.add(b"de")
    ([0, 3], [3, 2])
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> list[int]:
        """Where this blob begins, and its length."""
        self._bytes += data
        return [len(self._bytes) - len(data), len(data)]

    def packed(self, values: Any) -> str:
        """JSON of these values behind its length (32 bits), then the blobs; deflated, in base64."""
        head = json.dumps(values, allow_nan=False, separators=(",", ":")).encode()
        return base64.b64encode(zlib.compress(len(head).to_bytes(4, "little") + head + self._bytes, 9)).decode("ascii")


def image_of(loaded: Loaded) -> bytes:
    """The image of a program, as the page's kernel takes it.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    """
    moved = () if loaded.manifest.prices is None else loaded.manifest.prices.nodes
    return make_image(loaded.bundle.program, loaded.report.outlines, moved)


def split_bytes(data: bytes) -> bytes:
    """The even bytes, then the odd ones: numbers of 16 bits deflate better so.

    >>> split_bytes(b"a1b2c3")
    b'abc123'
    """
    return data[::2] + data[1::2]
