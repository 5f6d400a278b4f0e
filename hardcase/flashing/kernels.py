# SPDX-License-Identifier: Apache-2.0
"""The C kernel for other processors: compiled by Zig's C compiler for a stated glibc, and looked at before it is used.

The limited API makes one file serve every Python from 3.11 on. What the file needs is read from its own symbol
versions, not assumed.
"""

from __future__ import annotations

import re
import struct
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

from hardcase_edge.errors import InputError
from hardcase_edge.kernel.sources import EXTENSION, FLAGS, FOLDER
from hardcase_export.zig import compile_c

GLIBC = (2, 17)  # of 2012: older than every Debian with Python 3.11
SHARED = ["-g0", "-s", "-shared", "-fPIC"]
# What Python.h wants to know, from the compiler instead of from the machine that Python was built on.
PYCONFIG = """\
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SSIZE_T 1
#define HAVE_WCHAR_H 1
#define SIZEOF_SHORT __SIZEOF_SHORT__
#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
#define ALIGNOF_LONG __SIZEOF_LONG__
"""


class Processor(NamedTuple):
    """A processor: Zig's names for it, what its ELF files say, and the tags of its wheels."""

    zig: str
    flags: tuple[str, ...]
    machine: int  # e_machine of ELF
    bits: int
    tags: tuple[str, ...]


_MANYLINUX = f"manylinux_{GLIBC[0]}_{GLIBC[1]}"
PROCESSORS = {
    "x86_64": Processor("x86_64-linux-gnu", (), 62, 64, (f"{_MANYLINUX}_x86_64",)),
    "aarch64": Processor("aarch64-linux-gnu", (), 183, 64, (f"{_MANYLINUX}_aarch64",)),
    # every Raspberry Pi in 32 bits, down to the first and the Zero, which have an ARMv6 with floating point
    "armv6": Processor(
        "arm-linux-gnueabihf", ("-mcpu=arm1176jzf_s",), 40, 32, ("linux_armv6l", f"{_MANYLINUX}_armv7l")
    ),
}


def compile_kernel(name: str) -> bytes:
    """The kernel for one of ``PROCESSORS``, as a shared object.

    Raises
    ------
    InputError
        Zig or Python's headers are missing, the kernel does not compile, or it needs a newer glibc.
    """
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        raise InputError(f"a kernel needs Python's headers, and {headers} has none: apt install python3-dev")
    processor = PROCESSORS[name]
    with tempfile.TemporaryDirectory() as folder:
        own, out = Path(folder) / "include", Path(folder) / "kernel.so"
        own.mkdir()
        for header in headers.iterdir():  # Python.h reads pyconfig.h from the folder that it stands in
            if header.name != "pyconfig.h":
                (own / header.name).symlink_to(header)
        (own / "pyconfig.h").write_text(PYCONFIG)
        target = f"{processor.zig}.{GLIBC[0]}.{GLIBC[1]}"
        flags = ["-target", target, *processor.flags, *FLAGS, *SHARED, f"-I{own}", f"-I{FOLDER}"]
        compile_c(
            f"the kernel for {name}", [*flags, *(str(FOLDER / unit) for unit in EXTENSION), "-lc", "-o", str(out)]
        )
        data = out.read_bytes()
    check_kernel(data, name)
    return data


def check_kernel(data: bytes, name: str) -> None:
    """Return if a shared object is for this processor and needs no newer glibc than ``GLIBC``.

    Raises
    ------
    InputError
        It is not, or it does.
    """
    processor = PROCESSORS[name]
    class_, machine = processor.bits // 32, processor.machine
    is_elf = data[:4] == b"\x7fELF" and len(data) >= 20
    if not is_elf or data[4] != class_ or struct.unpack_from("<H", data, 18)[0] != machine:
        raise InputError(f"the kernel for {name} is not a shared object for that processor; make the wheels again")
    versions = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", data)}
    newest = max(versions, default=GLIBC)
    if newest > GLIBC:
        text = ".".join(map(str, newest))
        raise InputError(
            f"the kernel for {name} needs glibc {text}, newer than {GLIBC[0]}.{GLIBC[1]}; compile it again"
        )
