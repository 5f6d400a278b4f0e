# SPDX-License-Identifier: Apache-2.0
"""How much memory a table may take, known before it is unpacked; and .npz files, read within that limit.

A number counts as 8 bytes, which is what it takes in a table, and anything else as what its file says of it. The limit
is ``DEFAULT_GB``, or what the environment variable ``HARDCASE_MAX_TABLE_GB`` says.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Collection
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from ...errors import InputError

VARIABLE = "HARDCASE_MAX_TABLE_GB"
DEFAULT_GB = 1.0  # 125 million numbers; training then takes a few times as much
NUMBER_BYTES = 8
MAX_MEMBERS = 1000  # arrays in an .npz file


def max_bytes() -> int:
    """The limit in bytes.

    Raises
    ------
    InputError
        The environment variable is not a number of gigabytes.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        gigabytes = float(text or DEFAULT_GB)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes <= 1e6:
        raise InputError(f"{VARIABLE} is {text[:40]!r}; expected a number of gigabytes, such as 4")
    return round(gigabytes * 1e9)


def check_size(what: object, n_bytes: int) -> None:
    """Refuse what would take more memory than the limit; ``what`` names it in the message.

    Raises
    ------
    InputError
        It would.
    """
    limit = max_bytes()
    if n_bytes > limit:
        raise InputError(
            f"{what} would take {n_bytes / 1e9:.3g} GB in memory, and at most {limit / 1e9:.3g} GB are read; use fewer "
            f"rows or columns, or set {VARIABLE} to more"
        )


def read_npz(what: object, source: bytes | Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, or those of these names; none is unpickled.

    Raises
    ------
    InputError
        They would take more memory than the limit, or there are more than ``MAX_MEMBERS``.
    One of ``UNREADABLE_ZIP``
        The file is not an .npz file, or is damaged.
    """
    with zipfile.ZipFile(BytesIO(source) if isinstance(source, bytes) else source) as archive:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise InputError(f"{what} holds {len(members)} arrays, at most {MAX_MEMBERS} are read; save fewer")
        check_size(what, sum(member.file_size for member in members))  # zipfile unpacks no more than it says here
        check_size(what, sum(max(member.file_size, _needed(archive, member)) for member in members))
    with np.load(BytesIO(source) if isinstance(source, bytes) else source, allow_pickle=False) as file:
        return {name: file[name] for name in file.files if names is None or name in names}


def _needed(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes that an array of numbers takes as float64; of another array or file, those of its header's claim."""
    if not member.filename.endswith(".npy"):
        return 0
    with archive.open(member) as file:
        shape, dtype = _header(file)
    return math.prod(shape) * max(dtype.itemsize, NUMBER_BYTES)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
