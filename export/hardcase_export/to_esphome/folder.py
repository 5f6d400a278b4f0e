# SPDX-License-Identifier: Apache-2.0
"""The export for ESPHome: a folder with an external component, which holds kernel and policy, and an example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import Template
from typing import Any

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import CONFIG, FOLDER
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.inner import inner_sensors
from hardcase_edge.program.readings import DTYPES

from ..to_c.boards import FILES
from ..to_c.config import config_header
from ..to_c.folder import golden_tables
from ..to_c.header import model_header
from ..to_c.names import identifiers, literal

__all__ = ["esphome_files"]

HERE = Path(__file__).parent
COMPONENT = "components/hardcase"
OWN_NAMES = {"init.epy": "__init__.py", "sensor.epy": "sensor.py", "text_sensor.epy": "text_sensor.py"}
INCLUDED = re.compile(r'^#include "(hc_\w+\.h)"\n', re.MULTILINE)
NEVER = "    update_interval: never"
MAX_UNIT = 60  # bytes; ESPHome takes 63 for an entity's unit


def esphome_files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the folder, by path.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        The policy reads a sensor that only the Python and the C runtime fill.
    """
    program, manifest = loaded.bundle.program, loaded.manifest
    inner = inner_sensors(program, manifest.features, manifest.sensors)
    if inner:
        name = next(iter(inner))
        raise InputError(f"the policy reads the inner sensor {name!r}, which --esphome has not; export another")
    image = Image(program)
    tables = golden_tables(program, loaded.bundle.golden, "golden") + (FILES / "replay.h").read_text(encoding="ascii")
    model = model_header(image, image.pack(), manifest, loaded.bundle.sha256)
    values = _values(loaded)
    files = {
        "kernel.c": _one_file("hardcase.c", set()),
        "hardcase.h": (FOLDER / "hardcase.h").read_text(encoding="ascii"),
        CONFIG: config_header(image),
        "policy.json": json.dumps(values, indent=1, sort_keys=True) + "\n",
    }
    for path in (HERE / "component").iterdir():
        files[OWN_NAMES.get(path.name, path.name)] = path.read_text(encoding="utf-8")
    files["policy.c"] = model + tables + files["policy.c"]
    made = {f"{COMPONENT}/{name}": text.encode("utf-8") for name, text in files.items()}
    made["README.md"] = (HERE / "README.md").read_bytes()
    return made | {"example.yaml": _example(values, loaded).encode("utf-8")}


def _one_file(name: str, done: set[str]) -> str:
    """A file of the kernel with those that it includes, because ESPHome's main file includes a component's headers."""

    def text_of(match: re.Match[str]) -> str:
        return "" if match[1] in done else _one_file(match[1], done)

    done.add(name)
    return INCLUDED.sub(text_of, (FOLDER / name).read_text(encoding="ascii"))


def _values(loaded: Loaded) -> dict[str, Any]:
    """What the component must know of a policy when it is configured."""
    program, manifest = loaded.bundle.program, loaded.manifest
    meter = Meter(program)
    sensors = []
    for name, sensor, cost in zip(manifest.sensors, program.sensors, meter.sensor_costs, strict=True):
        features: list[dict[str, Any]] = []
        for f in sensor.features:
            feature = manifest.features[f]
            texts = manifest.categories.get(feature)
            has_texts = {} if texts is None else {"texts": list(texts)}
            features.append({"name": feature, "type": DTYPES[program.features[f].dtype].code, **has_texts})
        sensors.append({"name": name, "cost": cost, "features": features})
    return {
        "hpc": manifest.hpc,
        "n_classes": program.n_classes,
        "name": manifest.name,
        "sensors": sensors,
        "sha256": loaded.bundle.sha256,
        "start_cost": meter.start_cost,
        "unit": _unit(manifest.unit),
        "uplink": len(program.uplink.features),
        "value_unit": "" if manifest.value is None else _unit(manifest.value.unit),
    }


def _unit(unit: str) -> str:
    return unit.encode("utf-8")[:MAX_UNIT].decode("utf-8", "ignore")


def _example(values: dict[str, Any], loaded: Loaded) -> str:
    """A configuration for this machine, whose sensors give the readings of the first golden case."""
    manifest, golden = loaded.manifest, loaded.bundle.golden
    ids = dict(zip(manifest.features, identifiers("read_", manifest.features), strict=True))
    given = dict(zip(manifest.features, golden[0].readings if golden else [0] * len(ids), strict=True))
    wanted: list[str] = []
    entries: dict[bool, list[str]] = {True: [], False: []}  # of texts, and of numbers
    for sensor in values["sensors"]:
        features = sensor["features"]
        wanted.append(f"    {json.dumps(sensor['name'])}:  # costs {sensor['cost'] / 1e6:g} {values['unit']}")
        wanted += [] if len(features) == 1 else ["      features:"]
        for feature in features:
            name = feature["name"]
            wanted.append(
                f"        {json.dumps(name)}: {ids[name]}" if len(features) > 1 else f"      source: {ids[name]}"
            )
            said = f"    lambda: 'return {{{_constant(given[name], feature.get('texts'))}}};'"
            entries["texts" in feature] += ["  - platform: template", f"    id: {ids[name]}", said, NEVER]
    is_class = values["n_classes"] > 0
    entries[False] += ["  - platform: hardcase", "    confidence: {name: Confidence}", "    cost: {name: Cost}"]
    entries[True] += ["  - platform: hardcase", "    route: {name: Route}"]
    entries[is_class].append("    decision: {name: Decision}" if is_class else "    value: {name: Value}")
    template = Template((HERE / "example.yaml").read_text(encoding="utf-8"))
    lists = {"wanted": wanted, "texts": entries[True], "numbers": entries[False]}
    return template.substitute({name: "\n".join(lines) for name, lines in lists.items()})


def _constant(reading: Any, texts: list[str] | None) -> str:
    """A reading in C++, within a quoted text of YAML."""
    if texts is not None:
        return literal("" if reading is None else texts[int(reading)]).replace("'", "''")
    return "NAN" if reading is None else repr(float(reading))
