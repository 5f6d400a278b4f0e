# SPDX-License-Identifier: Apache-2.0
"""The export for ESPHome: a folder with an external component, the file of one policy, and an example."""

from __future__ import annotations

import hashlib
import json
import math
import re
from base64 import b64encode
from pathlib import Path
from string import Template
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.bundle.load import Loaded
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.sources import CONFIG, FOLDER
from hardcase_edge.program.cost import Meter
from hardcase_edge.program.readings import DTYPES

from ..drafts.costs import costs_of
from ..to_c.boards import FILES
from ..to_c.folder import golden_words
from ..to_c.frameworks import refuse_inner
from ..to_c.header import pack_readings
from ..to_c.names import identifiers, literal

HERE = Path(__file__).parent
COMPONENT = "components/hardcase"
IMAGE = "policy.hardcase"
MAGIC = "hardcase image 1 "  # as component/policy.epy reads it
INCLUDED = re.compile(r'^#include "(hc_\w+\.h)"\n', re.MULTILINE)
NEVER = "    update_interval: never"
ESCAPED = str.maketrans({"'": "''", "$": "\\044", "(": "\\050"})  # ESPHome evaluates ${...}, and id(...) in a lambda
MAX_UNIT = 60  # bytes; ESPHome takes 63 for an entity's unit


def esphome_files(loaded: Loaded) -> dict[str, bytes]:
    """The files of the folder, by path.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    InputError
        The policy reads a sensor that only the Python and the C runtime fill, or claims no origins of costs.
    """
    refuse_inner(loaded, "--esphome")
    policy = _policy(loaded)
    text = json.dumps(policy, sort_keys=True)
    files = {
        "kernel.c": _one_file("hardcase.c", set()).encode("ascii"),
        **{path.name: path.read_bytes() for path in (FOLDER / "hardcase.h", FOLDER / CONFIG, FILES / "replay.h")},
    }
    for path in (HERE / "component").iterdir():
        name = "__init__.py" if path.stem == "init" else path.with_suffix(".py").name
        files[name if path.suffix == ".epy" else path.name] = path.read_bytes()
    return {
        **{f"{COMPONENT}/{name}": data for name, data in files.items()},
        IMAGE: f"{MAGIC}{hashlib.sha256(text.encode()).hexdigest()}\n{text}".encode(),
        "README.md": (HERE / "README.md").read_bytes(),
        "example.yaml": _example(policy, loaded).encode(),
    }


def _one_file(name: str, done: set[str]) -> str:
    """A file of the kernel with those that it includes, because ESPHome's main file includes a component's headers."""

    def text_of(match: re.Match[str]) -> str:
        return "" if match[1] in done else _one_file(match[1], done)

    done.add(name)
    return INCLUDED.sub(text_of, (FOLDER / name).read_text(encoding="ascii"))


def _policy(loaded: Loaded) -> dict[str, Any]:
    """What the component must know of a policy."""
    program, manifest, golden = loaded.bundle.program, loaded.manifest, loaded.bundle.golden
    meter, origins = Meter(program), costs_of(manifest.claims.get("costs", {}), "the bundle's claims: costs")
    sensors = []
    for name, sensor, cost in zip(manifest.sensors, program.sensors, meter.sensor_costs, strict=True):
        features: list[dict[str, Any]] = []
        for f in sensor.features:
            feature = manifest.features[f]
            texts = manifest.categories.get(feature)
            has_texts = {} if texts is None else {"texts": list(texts)}
            features.append({"name": feature, "type": DTYPES[program.features[f].dtype].code, **has_texts})
        sensors.append({"name": name, "cost": cost, "origin": origins.of_sensor(name), "features": features})
    return {
        "classes": [str(name) for name in manifest.classes],
        "golden": golden_words(golden),
        "hpc": manifest.hpc,
        "image": b64encode(make_image(program, loaded.report.outlines)).decode("ascii"),
        "name": manifest.name,
        "readings": b64encode(b"".join(pack_readings(program, case.readings) for case in golden)).decode("ascii"),
        "sensors": sensors,
        "sha256": loaded.bundle.sha256,
        "start_cost": meter.start_cost,
        "steps": 0 if manifest.value is None else manifest.value.steps,
        "unit": _unit(manifest.unit),
        "uplink": len(program.uplink.features),
        "value_unit": "" if manifest.value is None else _unit(manifest.value.unit),
    }


def _unit(unit: str) -> str:
    return unit.encode("utf-8")[:MAX_UNIT].decode("utf-8", "ignore")


def _example(policy: dict[str, Any], loaded: Loaded) -> str:
    """A configuration for this machine, whose sensors give the readings of the first golden case."""
    manifest, golden = loaded.manifest, loaded.bundle.golden
    ids = dict(zip(manifest.features, identifiers("read_", manifest.features), strict=True))
    given = dict(zip(manifest.features, golden[0].readings if golden else [0] * len(ids), strict=True))
    wanted: list[str] = []
    unit = terminal(policy["unit"])
    entries: dict[bool, list[str]] = {True: [], False: []}  # of texts, and of numbers
    for sensor in policy["sensors"]:
        features = sensor["features"]
        wanted.append(f"    {_key(sensor['name'])}:  # costs {sensor['cost'] / 1e6:g} {unit}, {sensor['origin']}")
        wanted += [] if len(features) == 1 else ["      features:"]
        for feature in features:
            name = feature["name"]
            wanted.append(f"        {_key(name)}: {ids[name]}" if len(features) > 1 else f"      source: {ids[name]}")
            said = f"    lambda: 'return {{{_constant(given[name], feature.get('texts'))}}};'"
            entries["texts" in feature] += ["  - platform: template", f"    id: {ids[name]}", said, NEVER]
    is_class = bool(policy["classes"])
    entries[False] += ["  - platform: hardcase", "    confidence: {name: Confidence}", "    cost: {name: Cost}"]
    entries[True] += ["  - platform: hardcase", "    route: {name: Route}"]
    entries[is_class].append("    decision: {name: Decision}" if is_class else "    value: {name: Value}")
    template = Template((HERE / "example.yaml").read_text(encoding="utf-8"))
    has_dollar = any("$" in name for name in (*manifest.sensors, *manifest.features))
    tag = " !literal" if has_dollar else ""  # ESPHome evaluates ${...} in keys, too, as Python of Jinja
    lists = {"wanted": wanted, "texts": entries[True], "numbers": entries[False]}
    return template.substitute({"image": IMAGE, "tag": tag} | {name: "\n".join(lines) for name, lines in lists.items()})


def _constant(reading: Any, texts: list[str] | None) -> str:
    """A reading in C++, within a quoted text of YAML."""
    if texts is not None:
        is_known = reading is not None and 0 <= reading < len(texts)
        return literal(texts[int(reading)] if is_known else "").translate(ESCAPED)
    return "NAN" if reading is None or not math.isfinite(reading) else repr(float(reading))


def _key(name: str) -> str:
    r"""A name as a key of YAML.

    >>> print(_key('a"b'))
    "a\U00000022b"
    """
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in name) + '"'
