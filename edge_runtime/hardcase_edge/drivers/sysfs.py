# SPDX-License-Identifier: Apache-2.0
"""Files of sysfs: small regular files with one text or number each, read bounded, and never waited for at opening.

A pipe or a device file in the place of such a file is refused, because to open or to read it may take for ever. What
is left to hang is the driver behind a regular file; that happens on the sensor's own thread.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from itertools import islice

from ..errors import InputError, SensorError

MAX_TEXT = 512  # bytes of a file; two lines of a 1-Wire sensor have 80
MAX_NAMES = 4096  # entries of a folder that are looked at
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def read_text(path: str) -> str:
    """The text of a small file, without spaces around it; what is not ASCII is replaced.

    Raises
    ------
    OSError
        It cannot be read, is not a regular file, or has more than ``MAX_TEXT`` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = os.read(descriptor, MAX_TEXT + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_TEXT:
        raise OSError(errno.EFBIG, "too long", path)
    return data.decode("ascii", "replace").strip()


def text_or_empty(path: str) -> str:
    """What ``read_text`` gives, or nothing where there is no such file or it cannot be read."""
    try:
        return read_text(path)
    except OSError:
        return ""


def number(text: str) -> float:
    """The number that a text is.

    Raises
    ------
    SensorError
        It is anything else; ``nan`` and ``1_0`` are, too.

    Examples
    --------
    >>> number("-21562"), number("0.000061035")
    (-21562.0, 6.1035e-05)
    """
    if not NUMBER.fullmatch(text):
        raise SensorError("not_a_number", f"{text[:40]!r} is not a number")
    return float(text)


def read_number(path: str) -> float:
    """The number in a file; see ``read_text`` and ``number`` for what they raise."""
    return number(read_text(path))


def folders(parent: str, is_ours: Callable[[str], bool]) -> list[str]:
    """The names below a folder that are ours, sorted by length and then by letters: ``iio:device2`` before ``...10``.

    None where the folder is missing.
    """
    try:
        with os.scandir(parent) as entries:
            return sorted((e.name for e in islice(entries, MAX_NAMES) if is_ours(e.name)), key=lambda n: (len(n), n))
    except OSError:
        return []


def find_folder(
    noun: str, name: str, parent: str, is_ours: Callable[[str], bool], *files: str, before: str = ""
) -> str:
    """The path of one of our folders, by its name, by what follows ``before`` in it, or by the text of a file in it.

    Raises
    ------
    InputError
        There is none of this name; it says which devices of the kind this machine has.
    """
    paths = {folder: f"{parent}/{folder}" for folder in folders(parent, is_ours)}
    known = paths | ({folder.removeprefix(before): path for folder, path in paths.items()} if before else {})
    for file in files:
        for folder, path in paths.items():
            known.setdefault(text_or_empty(f"{path}/{file}") or folder, path)  # of several alike, the first
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise InputError(f"there is no {noun} {name[:80]!r}; this machine has: {there[:200]}")
    return known[name]
