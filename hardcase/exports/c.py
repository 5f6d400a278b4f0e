"""``hardcase export --c``: a folder of C sources for a microcontroller, from a build's point or from a bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from ..training.folders import whole_folder

if TYPE_CHECKING:
    from hardcase_export.bundle import Exported
    from hardcase_export.to_c.folder import ExportedC

__all__ = ["c_lines", "c_report", "export_c"]

BUNDLE = "model.hcb"


def export_c(
    source: Path, out: Path, inline: bool, export: Callable[[Path], Exported]
) -> tuple[Exported | None, ExportedC]:
    """Write the folder, all of it or nothing; the bundle lies in it too, as ``model.hcb``.

    Parameters
    ----------
    source : a bundle, or what ``export`` makes one of
    out : the folder; it may replace an earlier one, of which ``main.c`` and ``sensors.h`` are kept if changed
    inline : tree ensembles as code
    export : writes a bundle to a path

    Raises
    ------
    InputError
        The folder holds something else, or cannot be written.
    BundleError
        The program is one that the kernel cannot run.
    """
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_edge.bundle.signature import signature_path
    from hardcase_export.to_c.folder import write_c

    _check_out(out)
    with whole_folder(out) as folder:
        bundle = folder / BUNDLE
        done = None
        if source.is_file():
            load_bundle(source)
            shutil.copyfile(source, bundle)
            if signature_path(source).exists():
                shutil.copyfile(signature_path(source), signature_path(bundle))
        else:
            done = replace(export(bundle), path=out / BUNDLE)
        made = write_c(load_bundle(bundle), folder, inline=inline)
        _keep_own(out, folder)
        return done, made


def _keep_own(out: Path, folder: Path) -> None:
    """What the user wrote into an earlier export goes on to the new one."""
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_export.to_c.folder import OWN, own_files

    if not (out / BUNDLE).exists():
        return
    written = own_files(load_bundle(out / BUNDLE))
    for name in OWN:
        if (out / name).exists() and (out / name).read_text(encoding="utf-8") != written[name]:
            shutil.copyfile(out / name, folder / name)


def c_report(out: Path, made: ExportedC) -> dict[str, Any]:
    """What was written, as plain values."""
    sizes = {
        s.core: {
            "flash": s.flash,
            "flash_small": s.flash_small,
            "ram": s.session + s.stack,
            "session": s.session,
            "measured": s.is_measured,
        }
        for s in made.sizes
    }
    return {"folder": str(out), "image": made.image_bytes, "inlined": list(made.inlined), "sizes": sizes}


def c_lines(out: Path, made: ExportedC) -> list[str]:
    """The same for people."""
    how = "" if made.sizes[0].is_measured else ", bounds: arm-none-eabi-gcc with newlib, which measures, is not here"
    lines = [f"{out}: C sources, tables of {made.image_bytes} bytes; {out}/README.md says how to go on"]
    if made.inlined:
        lines.append(f"  unrolled   scorers {', '.join(map(str, made.inlined))} are code")
    if made.inlined and made.tables:
        lines.append(
            f"  tables     scorers {', '.join(map(str, made.tables))} are too large or shared, and stay tables"
        )
    for s in made.sizes:
        small = f" ({s.flash_small} at -Os)" if s.is_measured else ""
        ram = f"RAM {s.session + s.stack} bytes ({s.session} a session, {s.stack} stack)"
        memory = f"flash {s.flash} bytes{small}, {ram}"
        lines.append(f"  {s.core:<10} {memory}{how}")
    return lines


def _check_out(out: Path) -> None:
    """Refuse to replace what is not an export of this kind."""
    out = out.absolute()
    is_ours = out.is_dir() and not out.is_symlink() and ((out / "model.h").exists() or not any(out.iterdir()))
    if out.exists() and not is_ours:
        raise InputError(f"{out} exists and holds no C export; name another with --c")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist; make it first")
