# SPDX-License-Identifier: Apache-2.0
"""Home Assistant finds a device by one retained message: its entities, and where their values are.

The message is a device payload of Home Assistant's MQTT discovery (version 2024.11 or later), on
``PREFIX/device/ID/config``. An empty message there removes the device. Values come from our own topics, and names from
outside stand in it as data only: no template is built from them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...base.sha256 import sha256
from ...errors import InputError
from ...link.wire import decision_topic, facts_topic, status_topic

if TYPE_CHECKING:
    from ...bundle.manifest import Manifest
    from ...device.surroundings import Surroundings
    from ...settings.config import RunConfig

__all__ = ["ONE_PART", "PREFIX", "check", "checked_prefix", "config_topic", "make", "payload"]

ONE_PART = {"home_assistant": "Home Assistant shows one answer"}

PREFIX = "homeassistant"  # where Home Assistant looks unless its user has changed it
MAX_OPTIONS = 200  # classes that are named; beyond, the entity is a plain text
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,40}(?:/[A-Za-z0-9_-]{1,40}){0,3}")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
DECIDED = "{{ value_json.label }}"
COST = "{{ value_json.cost }}"
VALUE = "{{ value_json.value }}"
CONFIDENCE = "{{ (100 * value_json.confidence) | round(1) if value_json.confidence is not none else None }}"
SHARE = "{{ (100 * value_json.cloud / value_json.asked) | round(2) if value_json.asked else None }}"
PROBLEM = "{{ 'ON' if value_json.failed else 'OFF' }}"
VERSIONS = (
    "{{ {'installed_version': value_json.bundle[:12], "
    "'latest_version': (value_json.latest | default(value_json.bundle, true))[:12]} | to_json }}"
)


def check(config: RunConfig) -> None:
    """Refuse a message that would reach nobody."""
    if config.broker is None:
        raise InputError("Home Assistant hears of a device from its broker; name it with --broker")
    for prefix in (config.home_assistant, config.home_assistant_remove):
        if prefix is not None:
            checked_prefix(prefix)


def make(run: Surroundings) -> None:
    """Have the message go out on each connection; nothing is left to do in the run."""
    shown, removed, link = run.config.home_assistant, run.config.home_assistant_remove, run.link
    if link is not None:
        message = b"" if shown is None else payload(link.device_id, run.loaded.manifest, __version__)
        link.retain(config_topic(link.device_id, shown or removed or ""), message)


def checked_prefix(prefix: str) -> str:
    """The prefix itself, if it can stand in a topic.

    Raises
    ------
    InputError
        It cannot.
    """
    if not _PREFIX.fullmatch(prefix):
        raise InputError(f"the discovery prefix {prefix[:80]!r} is not a topic; use letters, digits, '_', '-' and '/'")
    return prefix


def config_topic(device: str, prefix: str = PREFIX) -> str:
    """Where the message goes. An id with a dot, which Home Assistant does not take there, gets a digest in its place.

    >>> config_topic("pump-7"), config_topic("pump.7")
    ('homeassistant/device/pump-7/config', 'homeassistant/device/pump_7_784eb1/config')
    """
    name = _FORBIDDEN.sub("_", device)
    return f"{prefix}/device/{name if name == device else f'{name}_{sha256(device.encode()).hex()[:6]}'}/config"


def payload(device: str, manifest: Manifest, version: str) -> bytes:
    """The message.

    Parameters
    ----------
    device : the device's id
    manifest : of the bundle that runs
    version : of hardcase-edge
    """
    root = {
        "device": {
            "identifiers": [f"hardcase_{device}"],
            "name": device,
            "model": manifest.name,
            "sw_version": version,
        },
        "origin": {"name": "hardcase", "sw_version": version},
        "availability": [{"topic": status_topic(device), "value_template": "{{ value_json.state }}"}],
        "qos": 1,
        "components": {
            key: {"unique_id": f"hardcase_{device}_{key}", **fields} for key, fields in _components(device, manifest)
        },
    }
    return json.dumps(root, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _components(device: str, manifest: Manifest) -> list[tuple[str, dict[str, Any]]]:
    topic = decision_topic(device)
    decided, facts = {"state_topic": topic}, {"state_topic": facts_topic(device)}
    measured = {"platform": "sensor", "state_class": "measurement"}
    percent = {**measured, "unit_of_measurement": "%"}
    diagnostic = {"entity_category": "diagnostic"}
    unit = {"unit_of_measurement": manifest.unit} if manifest.unit else {}
    problem = {"platform": "binary_sensor", "device_class": "problem", **diagnostic}
    update = {"platform": "update", "title": manifest.name, **diagnostic}
    return [
        ("decision", {"name": "Decision", **_answer(manifest), **decided, "json_attributes_topic": topic}),
        ("confidence", {"name": "Confidence", **percent, **decided, "value_template": CONFIDENCE}),
        ("cost", {"name": "Cost", **measured, **unit, **decided, "value_template": COST}),
        ("cloud", {"name": "Cloud share", **percent, **diagnostic, **facts, "value_template": SHARE}),
        ("problem", {"name": "Sensors", **problem, **decided, "value_template": PROBLEM}),
        ("bundle", {"name": "Bundle", **update, **facts, "value_template": VERSIONS}),
    ]


def _answer(manifest: Manifest) -> dict[str, Any]:
    """The entity of the answers: a number with its unit, or one of the classes."""
    if manifest.value is not None:
        unit = {"unit_of_measurement": manifest.value.unit} if manifest.value.unit else {}
        return {"platform": "sensor", "state_class": "measurement", "value_template": VALUE, **unit}
    entity = {"platform": "sensor", "value_template": DECIDED}
    names = [str(name) for name in manifest.classes]
    if not 0 < len(set(names)) == len(names) <= MAX_OPTIONS:
        return entity
    return {**entity, "device_class": "enum", "options": names}
