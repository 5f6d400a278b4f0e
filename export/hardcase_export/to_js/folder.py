# SPDX-License-Identifier: Apache-2.0
"""The export for JavaScript: an npm package of the kernel as WebAssembly, its wrapper with types, and one policy."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.image import make_image
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.inner import MEMORY, inner_sensors

from .wasm import wasm_kernel

PACKAGE = Path(__file__).parent / "package"
LEFT_OUT = ("atypical", "claims", "clock", "monitors", "trained", "without")  # keys of the manifest


def js_files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the package, by name.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        Zig is missing; or the policy reads a sensor that only the Python and the C runtime fill.
    """
    program, manifest = loaded.bundle.program, loaded.manifest
    if MEMORY in inner_sensors(program, manifest.features, manifest.sensors):
        raise InputError("a policy that holds labels has a memory, which JavaScript has not; export another with --js")
    files = {path.name: path.read_bytes() for path in PACKAGE.iterdir() if path.is_file()}
    model = json.dumps(model_values(loaded), indent=1, sort_keys=True, allow_nan=False)
    return {**files, "hardcase.wasm": wasm_kernel(), "model.json": f"{model}\n".encode()}


def model_values(loaded: Loaded) -> dict[str, Any]:
    """What JavaScript must know of a policy: names, units, costs in micro-units, and its image in base64.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    """
    program, manifest = loaded.bundle.program, loaded.manifest
    names = {key: value for key, value in manifest.to_json().items() if key not in LEFT_OUT}
    meter, moved = Meter(program), () if manifest.prices is None else manifest.prices.nodes
    image = make_image(program, loaded.report.outlines, moved)
    return names | {
        "sha256": loaded.bundle.sha256,
        "types": [feature.dtype for feature in program.features],
        "uplink": list(program.uplink.features),
        "reads": [list(sensor.features) for sensor in program.sensors],
        "costs": [*meter.sensor_costs],
        "request_cost": meter.request_cost,
        "image": b64encode(image).decode("ascii"),
    }
