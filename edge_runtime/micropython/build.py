# SPDX-License-Identifier: Apache-2.0
"""A folder with the exchange for MicroPython: its own source files, beside stand-ins for what MicroPython lacks.

    python edge_runtime/micropython/build.py FOLDER
    cd FOLDER && micropython trace.py

MicroPython forgets the annotations of a class, so that the names of a record's fields are written beside it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from hardcase_edge.exchange import exchange

__all__ = ["build"]

HERE = Path(__file__).resolve().parent
RECORDS = (exchange.Send, exchange.Over)


def build(folder: Path) -> None:
    """Fill a new folder."""
    shutil.copytree(HERE / "stand_ins", folder)
    own = folder / "hardcase_edge" / "exchange"
    own.mkdir()
    (own / "__init__.py").write_text("")
    for name in ("exchange.py", "circuit.py"):
        shutil.copyfile(Path(exchange.__file__).with_name(name), own / name)
    fields = {cls.__name__: cls.__match_args__ for cls in RECORDS}
    (folder / "hardcase_edge" / "base" / "fields.py").write_text(f"FIELDS = {fields!r}\n")
    shutil.copyfile(HERE / "trace.py", folder / "trace.py")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
