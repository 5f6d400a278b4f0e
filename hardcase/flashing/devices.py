# SPDX-License-Identifier: Apache-2.0
"""Which block devices are cards, and which images nobody uses. Read from /sys and /proc.

A card is removable, on no running system's path, and not mounted.

A device is refused for the first reason that is found, because a card that is refused wrongly costs a minute and a
system disk that is taken wrongly costs everything on it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from hardcase_edge.errors import InputError

MAX_CARD_BYTES = 2**41  # 2 TiB: SDXC ends there


class Candidate(NamedTuple):
    """A block device."""

    path: str
    size: int  # bytes
    model: str
    refusal: str  # "" for one that can be flashed


def candidates(sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> list[Candidate]:
    """Every whole block device with some size, in the order of names."""
    try:
        names = sorted(p.name for p in (sys / "block").iterdir())
    except OSError:
        return []
    disks = [Candidate(f"/dev/{n}", _size(sys, n), _model(sys, n), _refusal(sys, proc, n)) for n in names]
    return [c for c in disks if c.size]


def check_card(path: Path, sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> None:
    """Refuse a block device that is not a card which nothing uses.

    Raises
    ------
    InputError
        It is a system disk, mounted, not removable, or not a whole device.
    """
    name = Path(os.path.realpath(path)).name
    reason = _refusal(sys, proc, name) if (sys / "block" / name).exists() else "it is not a whole device"
    if reason:
        raise InputError(f"{path} is not flashed: {reason}; hardcase flash --list shows what can be")


def check_image(path: Path, proc: Path = Path("/proc")) -> None:
    """Refuse an image that another process has open, such as an emulator whose system runs from it.

    Raises
    ------
    InputError
        One has, as far as this user may see, or holds a lock on it.
    """
    own = os.stat(path)
    for process in _list(proc):
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        for file in _list(process / "fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(file), own):
                    name = _text(process / "comm")[:40] or "a program"
                    raise InputError(f"{path} is open in {name} (process {process.name}); end that first")
    with contextlib.suppress(OSError), open(path, "rb+") as image:
        try:
            fcntl.lockf(image, fcntl.LOCK_EX | fcntl.LOCK_NB)  # QEMU locks the images that it runs
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise InputError(f"{path} is locked by another program; end that first") from error


def _refusal(sys: Path, proc: Path, name: str) -> str:
    folder = sys / "block" / name
    parts = [name, *sorted(p.name for p in _list(folder) if (p / "partition").exists())]
    mounted = _mounted(proc)
    numbers = {_text(folder / "dev")} | {_text(folder / p / "dev") for p in parts[1:]}
    places = [place for number, source, place in mounted if number in numbers or source in parts]
    system = [p for p in places if p in ("/", "/usr", "/boot", "/boot/efi", "/boot/firmware", "/home", "/var")]
    if system:
        return f"the running system is on it ({system[0]})"
    if places:
        return f"it is mounted at {places[0]}; unmount it"
    if any(
        line.split()[0].rpartition("/")[2] in parts for line in _text(proc / "swaps").splitlines()[1:] if line.split()
    ):
        return "the running system swaps to it"
    if any(_list(folder / p / "holders") for p in ("", *parts[1:])):
        return "something is built on it (RAID, LVM or encryption)"
    if _text(folder / "ro") == "1":
        return "it is read-only; slide the card's lock"
    is_sd = name.startswith("mmcblk") and _text(folder / "device" / "type") == "SD"
    bus = os.path.realpath(folder)
    if _text(folder / "removable") != "1" and not is_sd and "/usb" not in bus:
        return "it is not removable"
    if not _size(sys, name):
        return "no card is in it"
    return "it is larger than any card" if _size(sys, name) > MAX_CARD_BYTES else ""


def _mounted(proc: Path) -> list[tuple[str, str, str]]:
    """(major:minor, name of the source, place) of each mount."""
    rows = []
    for line in _text(proc / "self" / "mountinfo").splitlines():
        head, _, tail = line.partition(" - ")
        words, source = head.split(), tail.split()
        if len(words) > 4 and len(source) > 1:
            rows.append((words[2], source[1].rpartition("/")[2], words[4]))
    return rows


def _size(sys: Path, name: str) -> int:
    text = _text(sys / "block" / name / "size")
    return int(text) * 512 if text.isascii() and text.isdigit() else 0


def _model(sys: Path, name: str) -> str:
    device = sys / "block" / name / "device"
    return _text(device / "model") or _text(device / "name")


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:1_048_576].decode(errors="replace").strip()
    except OSError:
        return ""


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
