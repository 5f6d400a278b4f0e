# SPDX-License-Identifier: Apache-2.0
"""The C export of a bundle: kernel, policy as tables or code, golden cases, prices, an example, and its size."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from hardcase_edge.bundle.golden import GoldenCase
from hardcase_edge.bundle.load import Loaded
from hardcase_edge.bundle.prices import Prices
from hardcase_edge.kernel.image import KERNEL_BYTES, Image
from hardcase_edge.kernel.sources import CONFIG, FIRMWARE, FOLDER, SERVO
from hardcase_edge.program.definition import Program, Stack, Trees
from hardcase_edge.program.stored_trees import depth_of
from hardcase_edge.session.recorded import ROUTES
from hardcase_edge.stream.coin import coin_of
from hardcase_edge.stream.layout import layout_of

from .boards import BOARDS, COMPILER, FILES, Board
from .config import config_header
from .header import model_header, pack_readings, reading_offsets, sensors_header, words
from .inline import inline_source, unrolled
from .memory import coin_header, memory_header
from .names import array, int64

MAX_INLINE_NODES = (
    10_000  # of an ensemble; larger ones take much more flash as code than as tables, and minutes to compile
)
MAX_INLINE_DEPTH = 60  # C99 promises 127 levels of braces
GOLDEN = Template("""\
/* Golden cases: everything that a decision depends on, and the trace that it must have; replay.h reads them. */
#include <stdint.h>

$tables""")
TABLES = Template("""\
static const int64_t ${prefix}_words[] = {
$cases
};

static const uint64_t ${prefix}_readings[] = {
$readings
};

static const uint32_t ${prefix}_offsets[] = {
$offsets
};
""")
PRICES = Template("""\
/* The prices of model.h, for hardcase_servo.c: $n_levels levels of $n_nodes thresholds, which spend $most to $least
 * units a decision in the mean on validation rows. */
#ifndef PRICES_H
#define PRICES_H

#include "hardcase_servo.h"

#define MODEL_WORST_COST INT64_C($worst) /* of a decision: the least burst */

static const uint32_t model_price_nodes[] = {
$nodes
};

static const int64_t model_price_thresholds[] = {
$thresholds
};

static const hc_prices model_prices = {model_price_nodes, model_price_thresholds, $n_nodes, $n_levels, $shipped};

#endif
""")
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
class ExportedC:
    """A C export that was written: sizes in bytes, and the scorers whose trees are code (``inlined``) or ``tables``."""

    image_bytes: int
    session_bytes: int
    inlined: tuple[int, ...]
    tables: tuple[int, ...]
    sizes: tuple[CoreSize, ...]


def write_c(loaded: Loaded, folder: Path, *, inline: bool = False) -> ExportedC:
    """Fill a folder with the C sources of a bundle.

    Parameters
    ----------
    loaded : a bundle that has passed every check
    folder : an empty folder, or one that holds only the bundle
    inline : write ensembles as code, if they have at most ``MAX_INLINE_NODES`` nodes and no stack reads them

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    """
    program = loaded.bundle.program
    ensembles = {k: s for k, s in enumerate(program.scorers) if isinstance(s, Trees)}
    inlined = tuple(k for k in ensembles if inline and _can_unroll(program, k))
    image, files = policy_files(loaded, inlined)
    files |= own_files(loaded)
    _copy(folder, loaded)
    if inlined:
        files["inline.c"] = inline_source({k: unrolled(image, k) for k in inlined})
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
    numbers = sum(len(t.leaves) for k in inlined for t in ensembles[k].trees)
    outputs = max((len(ensembles[k].base) for k in inlined), default=0)
    image_bytes = len(image.pack())
    sizes = measure(folder, image_bytes, image.session_bytes, numbers, outputs)
    (folder / "README.md").write_text(_readme(sizes), encoding="utf-8")
    rest = tuple(k for k in ensembles if k not in inlined)
    return ExportedC(image_bytes, image.session_bytes, inlined, rest, tuple(sizes))


def own_files(loaded: Loaded) -> dict[str, str]:
    """Text by name of the files for the user to edit, as they are first written for a bundle."""
    bundle = loaded.bundle
    example = bundle.golden[0].readings if bundle.golden else [0] * len(bundle.program.features)
    sensors = sensors_header(bundle.program, loaded.manifest, example)
    return {"main.c": (FILES / "main.c").read_text(encoding="ascii"), "sensors.h": sensors}


def policy_files(loaded: Loaded, inlined: tuple[int, ...] = ()) -> tuple[Image, dict[str, str]]:
    """The image of a bundle, and the text by name of all that is made of it but code: tables, cases, inner sensors.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    """
    program, manifest, prices = loaded.bundle.program, loaded.manifest, loaded.manifest.prices
    image = Image(program, inlined, moved=() if prices is None else prices.nodes)
    files = {
        CONFIG: config_header(image),
        "model.h": model_header(image, image.pack(), manifest, loaded.bundle.sha256),
        "golden.h": golden_header(program, loaded.bundle.golden),
    }
    if prices is not None:
        files["prices.h"] = prices_header(prices, loaded.report.worst_cost)
    memory = layout_of(program, manifest.features, manifest.sensors)
    if memory is not None:
        files["memory.h"] = memory_header(program, manifest, memory)
    coin = coin_of(program, manifest.features, manifest.sensors)
    if coin is not None:
        files["coin.h"] = coin_header(program, manifest, coin)
    return image, files


def kernel_files(loaded: Loaded) -> list[Path]:
    """The files of the kernel, and the headers that are the same for every policy, as far as this one needs them."""
    names = (*FIRMWARE, *(SERVO if loaded.manifest.prices is not None else ()))
    headers = [FILES / "replay.h", *([FILES / "window.h"] if loaded.manifest.windows else [])]
    return [*(FOLDER / name for name in names), *headers]


def _copy(folder: Path, loaded: Loaded) -> None:
    """Copy the files that are the same for every policy."""
    for path in [*kernel_files(loaded), *FILES.glob("*.c"), FILES / "Makefile"]:
        shutil.copyfile(path, folder / path.name)
    shutil.copytree(FILES / "boards", folder / "boards", ignore=shutil.ignore_patterns("__pycache__"))


def _readme(sizes: Sequence[CoreSize]) -> str:
    page, example = (Template((FILES / n).read_text(encoding="utf-8")) for n in ("README.md", "main.c"))
    cores = [f"{s.core}, {lack}" if (lack := s.lacks()) else s.core for s in sizes]
    rows = [
        f"| {core} | {s.flash} | {s.flash_small} | {s.session} | {s.stack} |"
        for core, s in zip(cores, sizes, strict=True)
    ]
    how = "measured by the cross compiler" if sizes[0].is_measured else "upper bounds, computed without a compiler"
    return page.substitute(main=example.template, sizes="\n".join(rows), how=how)


def _can_unroll(program: Program, k: int) -> bool:
    scorer = program.scorers[k]
    assert isinstance(scorer, Trees)
    has_stack = any(isinstance(s, Stack) and s.trees == k for s in program.scorers)
    n_nodes = sum(len(t.splits) for t in scorer.trees)
    return not has_stack and n_nodes <= MAX_INLINE_NODES and all(depth_of(t) <= MAX_INLINE_DEPTH for t in scorer.trees)


# ``golden.h``: the golden cases of a bundle as C tables, in the word format that ``replay.h`` describes.


def golden_header(program: Program, cases: Sequence[GoldenCase]) -> str:
    """The text of ``golden.h``."""
    return GOLDEN.substitute(tables=golden_tables(program, cases, "golden"))


def golden_tables(program: Program, cases: Sequence[GoldenCase], prefix: str) -> str:
    """Three tables, named with this prefix: words, readings, and the offset of each sensor's readings in a case."""
    readings = b"".join(pack_readings(program, case.readings) for case in cases)
    return TABLES.substitute(
        prefix=prefix,
        cases=array(int64(w) for w in golden_words(cases)),
        readings=array(words(readings) or ["0"]),
        offsets=array(str(n) for n in reading_offsets(program)),
    )


def golden_words(cases: Sequence[GoldenCase]) -> list[int]:
    """The number of cases, then each."""
    return [len(cases), *(w for case in cases for w in _words(case))]


def _words(case: GoldenCase) -> list[int]:
    decision = case.expected
    inputs = [-1 if case.budget is None else case.budget, case.item_size, int(case.cloud), int(case.reply is not None)]
    inputs += [*(case.reply or (0, 0)), len(case.failed), *case.failed]
    expected = [ROUTES.index(decision.route), int(decision.result), decision.confidence, decision.cost]
    return [*inputs, *expected, len(decision.sensors), *decision.sensors, len(decision.trace), *decision.trace]


# ``prices.h``: the table by which a microcontroller's servo moves the thresholds of its policy.


def prices_header(prices: Prices, worst_cost: int) -> str:
    """The text of ``prices.h``; ``worst_cost`` in micro-units."""
    return PRICES.substitute(
        n_levels=len(prices.levels),
        n_nodes=len(prices.nodes),
        most=f"{prices.costs[0]:g}",
        least=f"{prices.costs[-1]:g}",
        worst=max(worst_cost, 1),
        nodes=array([f"{node}u" for node in prices.nodes]),
        thresholds=array([f"INT64_C({t})" for level in prices.levels for t in level]),
        shipped=prices.shipped,
    )


# Flash and RAM of a C export on three Cortex-M cores: measured by the cross compiler, otherwise bounds.
#
# Flash covers everything that a firmware gets from hardcase: the tables, the kernel, the loop of a decision, and the
# functions of the compiler's own library that the kernel calls; at -O2, as the exported Makefile compiles, and at -Os.
# RAM is a session's memory and the deepest stack of a call into the kernel at -O2.


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
