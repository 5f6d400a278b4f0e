# SPDX-License-Identifier: Apache-2.0
"""Zip files that are odd rather than cut: each reader of one refuses them in a line."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from hardcase.flashing.kernels import PROCESSORS
from hardcase.flashing.wheels import KERNEL_NAME, PYTHON_TAG, kernels_in
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.release.archive import read_zip
from hardcase_export.drafts.rows import KEYS, is_rows, read_rows
from hardcase_export.sources.from_skops import _schema
from hardcase_train.data.table import read_table

WHEEL = f"hardcase_edge-1-{PYTHON_TAG}-{'.'.join(next(iter(PROCESSORS.values())).tags)}.whl"
FAR = struct.pack("<HHQ", 1, 8, 2**64 - 1)  # where a member begins, read if its own field has no room for it
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def zipped(method: int) -> bytearray:
    """A zip file with the members that each reader asks for first, the same array in all of them."""
    array, out = io.BytesIO(), io.BytesIO()
    np.save(array, np.arange(500.0))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name in ("X.npy", *(f"{key}.npy" for key in KEYS if key != "X"), "schema.json", KERNEL_NAME):
            member = zipfile.ZipInfo(name)
            member.extra = FAR
            archive.writestr(member, array.getvalue(), method)
    return bytearray(out.getvalue())


def patched(method: int, signature: bytes, at: int, value: bytes) -> bytes:
    """The zip file with some bytes of each header changed."""
    data = zipped(method)
    start = data.find(signature)
    while start >= 0:
        data[start + at : start + at + len(value)] = value
        start = data.find(signature, start + 1)
    return bytes(data)


ODD = {
    "encrypted": patched(zipfile.ZIP_STORED, CENTRAL, 8, b"\x01\x00"),
    "another version": patched(zipfile.ZIP_STORED, CENTRAL, 6, b"\xff\x00"),
    "unknown compression": patched(zipfile.ZIP_STORED, CENTRAL, 10, b"\x63\x00"),
    "patched data": patched(zipfile.ZIP_STORED, CENTRAL, 8, b"\x20\x00"),
    "broken deflate": patched(zipfile.ZIP_DEFLATED, LOCAL, 90, b"\xff" * 40),
    "broken lzma": patched(zipfile.ZIP_LZMA, LOCAL, 90, b"\xff" * 40),
    "another place": patched(zipfile.ZIP_STORED, CENTRAL, 42, b"\xfe\xff\xff\xff"),
    "a place beyond 63 bits": patched(zipfile.ZIP_STORED, CENTRAL, 42, b"\xff" * 4),
}


def as_file(read: Callable[[Path], object], name: str) -> Callable[[Path, bytes], object]:
    def go(folder: Path, data: bytes) -> object:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return go


READERS = {
    "a card's archive": lambda folder, data: read_zip(data, "it"),
    "rows": as_file(lambda path: (is_rows(path), read_rows(path, cast(Any, "never asked"))), "rows.npz"),
    "a table": as_file(read_table, "t.npz"),
    "a skops model": lambda folder, data: _schema(data),
    "a wheel": as_file(lambda path: kernels_in(path.parent, "1"), WHEEL),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_zip_file_is_refused_in_a_line(odd: str, reader: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        READERS[reader](tmp_path, ODD[odd])
    assert "\n" not in str(refused.value)
