# SPDX-License-Identifier: Apache-2.0
"""The C export of a bundle: a folder with the kernel, the policy as tables or code, an example and a self-test."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import CONFIG, FIRMWARE, FOLDER, SERVO
from hardcase_edge.program.definition import Program, Stack, Trees
from hardcase_edge.program.stored_trees import depth_of
from hardcase_edge.stream.coin import coin_of
from hardcase_edge.stream.layout import layout_of

from .boards import FILES
from .config import config_header
from .golden import golden_header
from .header import model_header, sensors_header
from .inline import inline_source, unrolled
from .memory import coin_header, memory_header
from .prices import prices_header
from .size import CoreSize, measure

__all__ = ["MAX_INLINE_NODES", "OWN", "ExportedC", "own_files", "write_c"]

OWN = ("main.c", "sensors.h")  # files for the user to edit
MAX_INLINE_NODES = (
    10_000  # of an ensemble; larger ones take much more flash as code than as tables, and minutes to compile
)
MAX_INLINE_DEPTH = 60  # C99 promises 127 levels of braces


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
    program, manifest, golden = loaded.bundle.program, loaded.manifest, loaded.bundle.golden
    ensembles = {k: s for k, s in enumerate(program.scorers) if isinstance(s, Trees)}
    inlined = tuple(k for k in ensembles if inline and _can_unroll(program, k))
    prices = manifest.prices
    image = Image(program, inlined, moved=() if prices is None else prices.nodes)
    data = image.pack()
    _copy(folder, has_windows=bool(manifest.windows), has_prices=prices is not None)
    files = {
        CONFIG: config_header(image),
        "model.h": model_header(image, data, manifest, loaded.bundle.sha256),
        "golden.h": golden_header(program, golden),
        **own_files(loaded),
    }
    if prices is not None:
        files["prices.h"] = prices_header(prices, loaded.report.worst_cost)
    memory = layout_of(program, manifest.features, manifest.sensors)
    if memory is not None:
        files["memory.h"] = memory_header(program, manifest, memory)
    coin = coin_of(program, manifest.features, manifest.sensors)
    if coin is not None:
        files["coin.h"] = coin_header(program, manifest, coin)
    if inlined:
        files["inline.c"] = inline_source({k: unrolled(image, k) for k in inlined})
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
    numbers = sum(len(t.leaves) for k in inlined for t in ensembles[k].trees)
    outputs = max((len(ensembles[k].base) for k in inlined), default=0)
    sizes = measure(folder, len(data), image.session_bytes, numbers, outputs)
    (folder / "README.md").write_text(_readme(sizes), encoding="utf-8")
    rest = tuple(k for k in ensembles if k not in inlined)
    return ExportedC(len(data), image.session_bytes, inlined, rest, tuple(sizes))


def own_files(loaded: Loaded) -> dict[str, str]:
    """Text by name of the files for the user to edit, as they are first written for a bundle."""
    bundle = loaded.bundle
    example = bundle.golden[0].readings if bundle.golden else [0] * len(bundle.program.features)
    sensors = sensors_header(bundle.program, loaded.manifest, example)
    return {"main.c": (FILES / "main.c").read_text(encoding="ascii"), "sensors.h": sensors}


def _copy(folder: Path, has_windows: bool, has_prices: bool) -> None:
    """Copy the files that are the same for every policy."""
    kernel = [FOLDER / name for name in (*FIRMWARE, *(SERVO if has_prices else ()))]
    files = [*kernel, *FILES.glob("*.[ch]"), FILES / "Makefile"]
    for path in [f for f in files if has_windows or f.name != "window.h"]:
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
