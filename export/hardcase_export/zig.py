# SPDX-License-Identifier: Apache-2.0
"""Zig's C compiler, which compiles the kernel for machines other than this one.

``ziglang`` comes from the package index and brings the headers and stubs of every target.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence

from hardcase_edge.errors import InputError

COMPILE_S = 300  # Zig builds parts of its own runtime library the first time
STRING_H = """\
#include <stddef.h>
#define memcpy __builtin_memcpy
#define memset __builtin_memset
static inline int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (; n > 0; n--, x++, y++)
        if (*x != *y) return *x < *y ? -1 : 1;
    return 0;
}
"""  # what the kernel uses of it, where there is no library


def can_compile() -> bool:
    """Whether Zig is installed."""
    return importlib.util.find_spec("ziglang") is not None


def compile_c(what: str, arguments: Sequence[str]) -> None:
    """Compile with these arguments; ``what`` is made, in messages.

    Raises
    ------
    InputError
        Zig is missing, refuses the sources, or takes longer than ``COMPILE_S``.
    """
    if not can_compile():
        raise InputError(f"{what} needs Zig's C compiler: pip install ziglang")
    command = [sys.executable, "-m", "ziglang", "cc", *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{what} was not compiled within {COMPILE_S} s; try again") from error
    if process.returncode != 0:
        raise InputError(f"{what} does not compile: {' '.join(process.stderr.split())[:300]}")
