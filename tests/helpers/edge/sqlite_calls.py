# SPDX-License-Identifier: Apache-2.0
"""The writes, flushes and removals of SQLite itself, noted for the model of power cuts.

SQLite writes by its own layer over the system (a VFS), which Python does not see. ``noting`` puts a layer over that
layer, by ctypes in the library that Python's own ``sqlite3`` has loaded: each call is made, and then noted. A folder
counts as flushed where SQLite's layer has opened it and ended the call without an error.
"""

from __future__ import annotations

import ctypes
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, cast
from pathlib import Path

from tests.helpers.edge.power_cuts import Recorder

__all__ = ["library", "noting"]

CREATE = 0x4
NAME = b"noting"

Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)  # its name must outlive the call: a pointer
Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
Sync = CFUNCTYPE(c_int, c_void_p, c_int)
OpenFolder = CFUNCTYPE(c_int, c_char_p, c_void_p)
SetCall = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
GetCall = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


class Vfs(Structure):
    """``sqlite3_vfs``, version 3."""

    _fields_ = (
        ("version", c_int), ("file_bytes", c_int), ("longest_path", c_int), ("next", c_void_p), ("name", c_char_p),
        ("data", c_void_p), ("open", Open), ("delete", Delete), ("others", c_void_p * 10), ("time", c_void_p),
        ("set_call", SetCall), ("get_call", GetCall), ("next_call", c_void_p),
    )  # fmt: skip


class Methods(Structure):
    """``sqlite3_io_methods``, version 3."""

    _fields_ = (("version", c_int), ("close", c_void_p), ("read", c_void_p), ("write", Write), ("truncate", Truncate),
                ("sync", Sync), ("others", c_void_p * 13))  # fmt: skip


class File(Structure):
    """``sqlite3_file``: whatever the layer keeps of an open file stands behind it."""

    _fields_ = (("methods", POINTER(Methods)),)


def library() -> ctypes.CDLL | None:
    """The library that ``sqlite3`` uses; None where it is a part of Python, or cannot be told."""
    sqlite3.connect(":memory:").close()
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = {line.split()[-1] for line in lines if "libsqlite3" in line}
    return ctypes.CDLL(paths.pop()) if len(paths) == 1 else None


@contextmanager
def noting(sqlite: ctypes.CDLL, recorder: Recorder) -> Iterator[None]:
    """All connections that are opened meanwhile note their calls; they are to be closed before the end."""
    sqlite.sqlite3_vfs_find.restype = POINTER(Vfs)
    below = sqlite.sqlite3_vfs_find(None).contents
    above = Vfs()
    ctypes.memmove(ctypes.byref(above), ctypes.byref(below), ctypes.sizeof(Vfs))
    files: dict[int, tuple[Path, Methods]] = {}
    kept: list[object] = []  # what SQLite points to
    folders: list[Path] = []  # opened to be flushed by the call under way

    def note_folders() -> None:
        for folder in folders:
            recorder.note("sync", folder)
        folders.clear()

    def open_(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        path = Path(ctypes.string_at(name).decode()) if name else None
        is_new = path is not None and bool(flags & CREATE) and not path.exists()
        status: int = below.open(vfs, name, file, flags, out)
        if status or path is None or not path.is_relative_to(recorder.root):
            return status
        if is_new:
            recorder.note("create", path)
        real = cast(file, POINTER(File)).contents.methods.contents
        methods = Methods()
        ctypes.memmove(ctypes.byref(methods), ctypes.byref(real), ctypes.sizeof(Methods))
        methods.write, methods.truncate, methods.sync = write, truncate, sync
        files[file] = path, real
        kept.append(methods)
        cast(file, POINTER(File)).contents.methods = ctypes.pointer(methods)
        return status

    def write_(file: int, data: int, n: int, at: int) -> int:
        path, real = files[file]
        status: int = real.write(file, data, n, at)
        if not status:
            recorder.note("patch", path, data=(at or 0).to_bytes(8, "little") + ctypes.string_at(data, n))
        return status

    def truncate_(file: int, size: int) -> int:
        path, real = files[file]
        status: int = real.truncate(file, size)
        if not status:
            recorder.note("truncate", path, data=size.to_bytes(8, "little"))
        return status

    def sync_(file: int, flags: int) -> int:
        path, real = files[file]
        status: int = real.sync(file, flags)
        if not status:
            recorder.note("sync", path)
            note_folders()
        return status

    def delete_(vfs: int, name: bytes, is_synced: int) -> int:
        path = Path(name.decode())
        was_there = path.exists()
        status: int = below.delete(vfs, name, is_synced)
        if not status and was_there and path.is_relative_to(recorder.root):
            recorder.note("unlink", path)
            note_folders()
        return status

    def open_folder(name: bytes, out: int) -> int:
        status: int = real_open_folder(name, out)
        folder = Path(name.decode()).parent
        if not status and folder.is_relative_to(recorder.root):
            folders.append(folder)
        return status

    write, truncate, sync = Write(write_), Truncate(truncate_), Sync(sync_)
    above.name, above.open, above.delete = NAME, Open(open_), Delete(delete_)
    address = ctypes.addressof(below)
    real_open_folder = cast(below.get_call(address, b"openDirectory"), OpenFolder)
    folder_call = OpenFolder(open_folder)
    kept += [above, above.open, above.delete, folder_call]
    assert sqlite.sqlite3_vfs_register(ctypes.byref(above), 1) == 0
    below.set_call(address, b"openDirectory", cast(folder_call, c_void_p))
    try:
        yield
    finally:
        below.set_call(address, b"openDirectory", None)
        sqlite.sqlite3_vfs_unregister(ctypes.byref(above))
        sqlite.sqlite3_vfs_register(ctypes.byref(below), 1)
