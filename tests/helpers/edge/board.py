# SPDX-License-Identifier: Apache-2.0
"""MicroPython on an emulated board, spoken to over its serial line as ``mpremote`` does, by its raw prompt."""

from __future__ import annotations

import select
import subprocess
from pathlib import Path
from time import monotonic
from types import TracebackType

FILES = """\
import io, os, vfs
files = {}
class Files:
    def mount(self, readonly, mkfs): pass
    def umount(self): pass
    def chdir(self, path): pass
    def stat(self, path):
        path = path.strip("/")
        if path in files: return (0x8000, 0, 0, 0, 0, 0, len(files[path]), 0, 0, 0)
        if any(name.startswith(path + "/") for name in files): return (0x4000, 0, 0, 0, 0, 0, 0, 0, 0, 0)
        raise OSError(2)
    def open(self, path, mode):
        data = files[path.strip("/")]
        return io.BytesIO(data) if "b" in mode or path.endswith("mpy") else io.StringIO(str(data, "utf-8"))
vfs.mount(Files(), "/")
"""  # a file system in RAM


class Board:
    """A board while the block lasts, with more flags of the emulator; ``run`` gives back what a script prints."""

    def __init__(self, firmware: Path, *flags: str) -> None:
        command = [
            "qemu-system-arm", "-M", "mps2-an385", "-nographic", "-monitor", "null", "-serial", "stdio",
            "-semihosting",
        ]  # fmt: skip
        self._is_mounted = False
        self._process = subprocess.Popen(
            [*command, *flags, "-kernel", str(firmware)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def __enter__(self) -> Board:
        self._until(b">>> ", 30)  # it listens
        self._send(b"\r\x01")
        self._until(b"CTRL-B to exit\r\n>", 60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, script: str, timeout_s: float = 120) -> str:
        """What the script prints; an AssertionError with its error."""
        self._paste(script.encode())
        said, error = self._until(b"\x04>", timeout_s)[:-2].split(b"\x04")
        assert not error, (error + said)[-2000:].decode()
        return said.decode().strip().replace("\r\n", "\n")

    def put(self, files: dict[str, bytes]) -> None:
        """Lay files into the board's RAM, by path."""
        if not self._is_mounted:
            self.run(FILES)
            self._is_mounted = True
        for path, data in files.items():
            self.run(f"files[{path!r}] = bytearray({len(data)}); at = 0")
            for k in range(0, len(data), 1024):
                piece = data[k : k + 1024]
                self.run(f"files[{path!r}][at:at + {len(piece)}] = {piece!r}; at += {len(piece)}")

    def _paste(self, data: bytes) -> None:
        """Send a script in windows, the next when the board has room for it."""
        self._send(b"\x05A\x01")
        assert self._read(2) == b"R\x01"
        window = room = int.from_bytes(self._read(2), "little")
        while data:
            if not room:
                assert self._read(1) == b"\x01"
                room = window
            self._send(data[:room])
            data, room = data[room:], max(0, room - len(data))
        self._send(b"\x04")
        while self._read(1) != b"\x04":
            pass

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def _read(self, n: int, timeout_s: float = 30) -> bytes:
        assert self._process.stdout is not None
        out = b""
        while len(out) < n:
            ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
            assert ready, "the board says no more"
            out += self._process.stdout.read(1)
        return out

    def _until(self, end: bytes, timeout_s: float) -> bytes:
        out, until = b"", monotonic() + timeout_s
        while not out.endswith(end):
            out += self._read(1, max(0.0, until - monotonic()))
        return out
