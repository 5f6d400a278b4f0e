# SPDX-License-Identifier: Apache-2.0
"""The export for MicroPython: a folder that ``mip`` installs from, and the kernel as a user C module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.exchange import exchange
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program.readings import DTYPES

from ..to_c.config import parts_of
from ..to_c.frameworks import refuse_inner
from .heap import computed_heap
from .mpy import ARCHITECTURES, NATIVE, native_module
from .xtensa import XTENSAWIN, can_compile_xtensa, xtensa_module

HERE = Path(__file__).parent
OWN = "hardcase"  # the package on the board
ANY_DEPTH = "HC_WALK_ANY"  # trees of whatever depth, of another policy on the board too: no check asks for it
WITHOUT = "from __future__ import annotations\n\n"  # which MicroPython has not
REPLACED = {
    "import logging\n": "from .python import logging\n",
    "from collections import deque\n": "from .python import deque\n",
    "from typing import TYPE_CHECKING, Any\n": "Any = None\n",
    "from ..base.record import record\n": "from .python import record\n",
    "if TYPE_CHECKING:\n    from collections.abc import Callable, MutableMapping\n\n": "",
}


def micropython_files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the folder, by path.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        Zig is missing; or the policy reads a sensor that only the Python and the C runtime fill.
    """
    refuse_inner(loaded, "--micropython")
    packed = Image(loaded.bundle.program, outlines=loaded.report.outlines)
    image, parts = packed.pack(), tuple(sorted({*parts_of(packed), ANY_DEPTH}))
    package = {f"{OWN}/{path.stem}.py": path.read_bytes() for path in (HERE / "package").glob("*.upy")}
    package[f"{OWN}/__init__.py"] = package.pop(f"{OWN}/hardcase.py")
    package[f"{OWN}/exchange.py"] = exchange_module().encode()
    package |= {f"{OWN}/policy.json": _json(_names(loaded, len(image))), f"{OWN}/image.bin": image}
    files = dict(package)
    natives = {name: native_module(name, parts) for name in ARCHITECTURES}
    natives |= {XTENSAWIN: xtensa_module(parts)} if can_compile_xtensa() else {}
    for name, native in natives.items():
        files[f"native/{name}.mpy"] = native
        urls = [[path, path] for path in sorted(package)] + [["hardcase_kernel.mpy", f"native/{name}.mpy"]]
        files[f"{name}.json"] = _json({"urls": urls, "version": loaded.bundle.sha256[:12]})
    module = [*(HERE / "module").iterdir(), NATIVE / "hardcase_kernel.c", FOLDER / "hardcase.c", FOLDER / "hardcase.h"]
    module += [FOLDER / "hardcase_config.h", *FOLDER.glob("hc_*.h")]
    files["README.md"], files["memory.py"] = ((HERE / n).read_bytes() for n in ("README.md", "memory.upy"))
    return files | {f"module/{path.name}": path.read_bytes() for path in module if path.is_file()}


def micropython_memory(files: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
    """Bytes of the files on a board, whose module is the largest of them, and of a 32-bit board's heap."""
    package = {Path(path).stem: len(data) for path, data in files.items() if path.startswith(f"{OWN}/")}
    kernel, image = max(len(data) for path, data in files.items() if path.startswith("native/")), package.pop("image")
    wrapper = package.pop("__init__") + package.pop("policy")
    return {
        "flash": {"kernel": kernel, "image": image, "wrapper": wrapper, "cloud": sum(package.values())},
        "heap": computed_heap(files),
    }


def exchange_module() -> str:
    """The exchange as MicroPython runs it: the same but for what it imports."""
    text = Path(exchange.__file__).read_text(encoding="utf-8").replace(WITHOUT, "")
    for line, other in REPLACED.items():
        text = text.replace(line, other)
    return text


def _names(loaded: Loaded, image_bytes: int) -> dict[str, Any]:
    """What the wrapper must know of a policy beside its image."""
    program, manifest = loaded.bundle.program, loaded.manifest
    names = manifest.to_json()
    sensors = [
        {
            "name": name,
            "features": [manifest.features[f] for f in sensor.features],
            "types": "".join(DTYPES[program.features[f].dtype].code for f in sensor.features),
        }
        for name, sensor in zip(manifest.sensors, program.sensors, strict=True)
    ]
    return {
        "categories": names.get("categories", {}),
        "classes": names["classes"],
        "hpc": names["hpc"],
        "image_bytes": image_bytes,
        "name": names["name"],
        "sensors": sensors,
        "sha256": loaded.bundle.sha256,
        "steps": names.get("value", {}).get("steps", 0),
        "unit": names["unit"],
        "uplink": len(program.uplink.features),
    }


def _json(value: Any) -> bytes:
    """As JSON without escapes of characters beyond 16 bits, whose halves MicroPython's json does not join."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
