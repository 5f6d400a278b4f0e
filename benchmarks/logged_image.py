# SPDX-License-Identifier: Apache-2.0
"""One file as a file system in user space (FUSE), which logs every write to it and every flush, in order.

    python -m benchmarks run logged_image IMAGE LOG MOUNTPOINT

A loop device over MOUNTPOINT/image, with a real file system on it, then shows what reaches the disk and in which order.
IMAGE is what the file holds at the start; it stays as it was. A record of the log is ``<QI`` offset and length, and the
bytes; a flush has the offset FLUSH. A record is written before the call that it is about returns. Needs mfusepy.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

HEAD = Struct("<QI")
FLUSH = 2**64 - 1
NAME = "/image"


def records(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each write, in order; of a flush FLUSH and nothing."""
    at = 0
    while at < len(log):
        offset, length = HEAD.unpack_from(log, at)
        at += HEAD.size + length
        yield offset, log[at - length : at]


def serve(image: Path, log: Path, mountpoint: Path) -> None:
    """Serve the file until it is unmounted."""
    from mfusepy import FUSE, FuseOSError, Operations

    data = bytearray(image.read_bytes())
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    class Logged(Operations):  # type: ignore[misc]
        use_ns = True

        def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            if path != NAME:
                raise FuseOSError(errno.ENOENT)
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": len(data)}

        def readdir(self, path: str, fh: Any) -> list[str]:
            return [".", "..", NAME[1:]]

        def read(self, path: str, size: int, offset: int, fh: Any) -> bytes:
            return bytes(data[offset : offset + size])

        def write(self, path: str, part: bytes, offset: int, fh: Any) -> int:
            data[offset : offset + len(part)] = part
            os.write(out, HEAD.pack(offset, len(part)) + part)
            return len(part)

        def fsync(self, path: str, datasync: int, fh: Any) -> int:
            os.write(out, HEAD.pack(FLUSH, 0))
            return 0

        def truncate(self, path: str, length: int, fh: Any = None) -> int:
            if length != len(data):
                raise FuseOSError(errno.EPERM)
            return 0

    FUSE(Logged(), str(mountpoint), foreground=True, nothreads=True)


if __name__ == "__main__":
    serve(*map(Path, sys.argv[1:]))
