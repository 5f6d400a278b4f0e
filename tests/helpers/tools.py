# SPDX-License-Identifier: Apache-2.0
"""Tools that tests need from the system, and what becomes of a test whose tools are not here.

It is left out; ``conftest`` says so at the end of the run, with how to have the tools.
"""

from __future__ import annotations

import os
import shutil

import pytest

_AARCH64 = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
_ARMHF = "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"
_CORTEX = "gcc-arm-none-eabi libnewlib-arm-none-eabi"
PACKAGES = {
    "cc": "gcc libc6-dev", "g++": "g++ libc6-dev", "make": "make", "aarch64-linux-gnu-gcc": _AARCH64,
    "arm-linux-gnueabihf-gcc": _ARMHF, "arm-none-eabi-gcc": _CORTEX, "qemu-aarch64": "qemu-user",
    "qemu-arm": "qemu-user", "qemu-xtensa": "qemu-user", "xtensa-lx106-elf-gcc": "gcc-xtensa-lx106",
    "qemu-system-arm": "qemu-system-arm", "chromium": "chromium", "node": "nodejs", "mkfs.vfat": "dosfstools",
    "fsck.vfat": "dosfstools", "mcopy": "mtools", "mtype": "mtools", "sfdisk": "fdisk", "sshd": "openssh-server",
}  # fmt: skip


def with_sbin() -> str:
    """The search path with the folders of administrators' tools."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def need(*tools: str) -> list[str]:
    """Go on only if these commands are here; their paths."""
    paths = [shutil.which(t, path=with_sbin()) for t in tools]
    absent = [t for t, path in zip(tools, paths, strict=True) if path is None]
    if absent:
        packages = sorted({p for t in absent for p in PACKAGES[t].split()})
        pytest.skip(f"{' and '.join(absent)}: apt install {' '.join(packages)}, or, as root, make toolchains")
    return [str(path) for path in paths]
