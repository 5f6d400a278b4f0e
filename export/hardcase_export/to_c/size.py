# SPDX-License-Identifier: Apache-2.0
"""Flash and RAM of a C export on three Cortex-M cores: measured by the cross compiler, otherwise bounds.

Flash covers everything that a firmware gets from hardcase: the tables, the kernel, the loop of a decision, and the
functions of the compiler's own library that the kernel calls; at -O2, as the exported Makefile compiles, and at -Os.
RAM is a session's memory and the deepest stack of a call into the kernel at -O2.
"""

from __future__ import annotations

import logging
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hardcase_edge.kernel.image import KERNEL_BYTES

from .boards import BOARDS, COMPILER, Board

__all__ = ["CoreSize", "deepest_stack", "measure"]

logger = logging.getLogger(__name__)

FLAGS = ("-std=c99", "-ffunction-sections", "-fdata-sections", "-fcallgraph-info=su")
LINK = ("-nostartfiles", "-specs=nano.specs", "-specs=nosys.specs", "-Wl,--gc-sections,-e,probe")

# Upper bounds beside KERNEL_BYTES for all of these cores, without a compiler; a test compares them with measured sizes.
MAX_NODE_BYTES = 32  # of code per number in a leaf, with the questions that lead to it
MAX_STACK_BYTES = 640
MAX_SUM_BYTES = 8  # of stack per output of an inlined ensemble

PROBE = """\
#include "model.h"
static HC_SESSION(memory, MODEL_SESSION_BYTES);
int64_t probe(int (*read_sensor)(int, model_readings *), int (*ask)(hc_session *));
int64_t probe(int (*read_sensor)(int, model_readings *), int (*ask)(hc_session *))
{
    hc_session *s = &memory.session;
    model_readings r;
    int need;
    (void)ask;
    hc_start(s, model, HC_NO_BUDGET, 1, HC_CLOUD);
    while ((need = hc_next(s)) != HC_DECIDED) {
#if HC_PARTS & HC_FORWARDS
        if (need == HC_NEED_REPLY && !ask(s)) hc_no_reply(s);
#endif
        if (need == HC_NEED_SENSORS)
            for (int k; (k = hc_wanted(s)) >= 0;) hc_feed(s, k, read_sensor(k, &r) ? &r : NULL);
    }
    return s->result;
}
"""


@dataclass(frozen=True)
class CoreSize:
    """Bytes on one core. ``is_measured``: the cross compiler measured them; otherwise they are upper bounds."""

    core: str
    flash: int
    flash_small: int  # at -Os
    session: int
    stack: int
    is_measured: bool
    board: Board

    @property
    def ram(self) -> int:
        """A session's memory and the deepest stack of a call."""
        return self.session + self.stack

    def lacks(self) -> str | None:
        """What the board with this core has too little of, with both figures; None if the policy fits."""
        flash, ram = self.board.memory
        for name, needed, least, most in (("flash", self.flash, self.flash_small, flash), ("RAM", self.ram, 0, ram)):
            if needed > most:
                small = f"; {least} at -Os" if self.is_measured and least else ""
                return f"does not fit a {self.board.machine}: {needed} bytes of {name}, it has {most}{small}"
        return None


def measure(folder: Path, image_bytes: int, session_bytes: int, n_inlined: int, n_outputs: int) -> list[CoreSize]:
    """Sizes of the policy exported into ``folder``, for each core.

    Parameters
    ----------
    image_bytes, session_bytes : size of the image, and of a session's memory
    n_inlined : numbers in the leaves of inlined ensembles
    n_outputs : largest number of outputs of an inlined ensemble
    """
    try:
        return [_measure(folder.resolve(), board, session_bytes) for board in BOARDS]
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("%s cannot measure: %s", COMPILER, error)
    flash = image_bytes + KERNEL_BYTES + MAX_NODE_BYTES * n_inlined
    stack = MAX_STACK_BYTES + MAX_SUM_BYTES * n_outputs
    return [CoreSize(b.core, flash, flash, session_bytes, stack, False, b) for b in BOARDS]


def _measure(folder: Path, board: Board, session_bytes: int) -> CoreSize:
    (fast, stack), (small, _) = (_compile(folder, board, level) for level in ("-O2", "-Os"))
    return CoreSize(board.core, fast, small, session_bytes, stack, True, board)


def _compile(folder: Path, board: Board, level: str) -> tuple[int, int]:
    """Bytes of flash, and bytes of the deepest stack."""
    with tempfile.TemporaryDirectory() as place:
        probe, out = Path(place) / "probe.c", Path(place) / "probe.elf"
        probe.write_text(PROBE, encoding="ascii")
        sources = [str(probe), *map(str, sorted(folder.glob("hardcase.c")) + sorted(folder.glob("inline.c")))]
        command = [COMPILER, *FLAGS, level, *board.cpu, f"-I{folder}", *sources, *LINK, "-o", str(out)]
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=600)
        listed = subprocess.run(
            ["arm-none-eabi-size", str(out)], check=True, capture_output=True, text=True, timeout=60
        )
        text, data = map(int, listed.stdout.splitlines()[1].split()[:2])
        graphs = "\n".join(p.read_text(encoding="utf-8") for p in Path(place).glob("*.ci"))
    return text + data, deepest_stack(graphs)


def deepest_stack(graphs: str) -> int:
    """Bytes of stack on the deepest chain of calls, from call graphs of gcc; the kernel has no recursion.

    >>> deepest_stack('node: { title: "f" label: "f\\\\nx.c:1\\\\n8 bytes (static)" }'
    ...     ' node: { title: "g" label: "g\\\\nx.c:2\\\\n16 bytes (static)" }'
    ...     ' edge: { sourcename: "f" targetname: "g" label: "x" }')
    24
    """
    frame = {m[1]: int(m[2]) for m in re.finditer(r'node: \{ title: "([^"]+)" label: "[^"]*?(\d+) bytes', graphs)}
    calls: dict[str, set[str]] = {}
    for m in re.finditer(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', graphs):
        calls.setdefault(m[1], set()).add(m[2])

    def deepest(name: str) -> int:
        return frame.get(name, 0) + max((deepest(c) for c in calls.get(name, ())), default=0)

    return max((deepest(name) for name in frame if "probe" not in name), default=0)
