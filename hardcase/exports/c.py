# SPDX-License-Identifier: Apache-2.0
"""``hardcase export --c``: a folder of C sources for a microcontroller, from a point of a build or a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.folders import C_EXPORT, whole_folder

if TYPE_CHECKING:
    from hardcase_export.bundle import Exported
    from hardcase_export.to_c.folder import ExportedC

__all__ = ["c_lines", "c_report", "export_c"]

BUNDLE = "model.hcb"


def export_c(
    source: Path, out: Path, inline: bool, export: Callable[[Path], Exported], *, force: bool = False
) -> tuple[Exported | None, ExportedC]:
    """Write the folder atomically; it also contains the bundle, as ``model.hcb``.

    Parameters
    ----------
    source : a bundle, or the build that ``export`` reads
    out : the folder; it may replace an earlier export, whose ``main.c`` and ``sensors.h`` are kept if they were edited
    inline : whether to write tree ensembles as code
    export : writes a bundle to a path
    force : whether a folder that holds something else may be written into

    Raises
    ------
    InputError
        The folder contains something else, or cannot be written.
    BundleError
        The C kernel cannot run the program.
    """
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_edge.bundle.signature import signature_path
    from hardcase_export.to_c.folder import write_c

    with whole_folder(out, C_EXPORT, force=force) as folder:
        bundle = folder / BUNDLE
        exported = None
        if source.is_file():
            load_bundle(source)
            shutil.copyfile(source, bundle)
            if signature_path(source).exists():
                shutil.copyfile(signature_path(source), signature_path(bundle))
        else:
            exported = replace(export(bundle), path=out / BUNDLE)
        sources = write_c(load_bundle(bundle), folder, inline=inline)
        _keep_own(out, folder)
        return exported, sources


def _keep_own(out: Path, folder: Path) -> None:
    """Copy the files that the user edited in an earlier export to the new one."""
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_export.to_c.folder import OWN, own_files

    if not (out / BUNDLE).exists():
        return
    written = own_files(load_bundle(out / BUNDLE))
    for name in OWN:
        if (out / name).exists() and (out / name).read_text(encoding="utf-8") != written[name]:
            shutil.copyfile(out / name, folder / name)


def c_report(out: Path, sources: ExportedC) -> dict[str, Any]:
    """The C export as JSON values."""
    sizes = {
        s.core: {
            "flash": s.flash,
            "flash_small": s.flash_small,
            "ram": s.ram,
            "session": s.session,
            "measured": s.is_measured,
            "fits": s.lacks() is None,
        }
        for s in sources.sizes
    }
    return {"folder": str(out), "image": sources.image_bytes, "inlined": list(sources.inlined), "sizes": sizes}


def c_lines(out: Path, sources: ExportedC) -> list[str]:
    """The C export as lines of text."""
    how = "" if sources.sizes[0].is_measured else ", upper bounds; install arm-none-eabi-gcc with newlib to measure"
    lines = [f"{out}: C sources, tables of {sources.image_bytes} bytes; next: see {out}/README.md"]
    if sources.inlined:
        lines.append(f"  unrolled   scorers {', '.join(map(str, sources.inlined))} are code")
    if sources.inlined and sources.tables:
        lines.append(
            f"  tables     scorers {', '.join(map(str, sources.tables))} are too large or shared, and stay tables"
        )
    for s in sources.sizes:
        small = f" ({s.flash_small} at -Os)" if s.is_measured else ""
        ram = f"RAM {s.ram} bytes ({s.session} a session, {s.stack} stack)"
        memory = s.lacks() or f"flash {s.flash} bytes{small}, {ram}"
        lines.append(f"  {s.core:<10} {memory}{how}")
    return lines
