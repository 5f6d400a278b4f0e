# SPDX-License-Identifier: Apache-2.0
"""The kernel as WebAssembly: the C files as they are, compiled by Zig without a library, so that it imports nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hardcase_edge.kernel.sources import FOLDER

from ..zig import STRING_H, compile_c

EXPORTS = (
    "check", "dead", "elapsed", "feed_at", "has_failed", "largest_item", "move", "next", "no_reply", "readings_bytes",
    "reply", "request", "request_bytes", "resend", "session_bytes", "start", "start_cost", "visited", "wanted_next",
    "was_bought", "was_unpaid",
)  # fmt: skip
FLAGS = ("-target", "wasm32-freestanding", "-mbulk-memory", "-std=c99", "-O2", "-fno-unroll-loops", "-g0", "-nostdlib")
LINKED = ("-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--export=__heap_base", "-Wl,-z,stack-size=65536")


@cache
def wasm_kernel() -> bytes:
    """The module, the same bytes each time.

    Raises
    ------
    InputError
        Zig is missing, or does not compile it.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "string.h").write_text(STRING_H, encoding="ascii")
        out = Path(folder) / "hardcase.wasm"
        exports = [f"-Wl,--export=hc_{name}" for name in EXPORTS]
        sources = [f"-I{folder}", f"-I{FOLDER}", str(FOLDER / "hardcase.c")]
        compile_c("the kernel as WebAssembly", [*FLAGS, *LINKED, *exports, *sources, "-o", str(out)])
        return out.read_bytes()
