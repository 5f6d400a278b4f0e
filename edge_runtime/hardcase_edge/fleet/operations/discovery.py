# SPDX-License-Identifier: Apache-2.0
"""Home Assistant finds a device by retained messages: one for each of its entities, with where its values are.

The messages are those of Home Assistant's MQTT discovery, on ``PREFIX/PLATFORM/ID/KEY/config``: one message for a whole
device would do only since 2024.11, and other programs that read discovery do not know it. An empty message removes an
entity. Values come from our own topics, and names from outside stand in them as data only, never in a template.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...base.sha256 import sha256
from ...errors import InputError
from ...link.wire import decision_topic, facts_topic, install_topic, status_topic

if TYPE_CHECKING:
    from ...bundle.manifest import Manifest
    from ...device.surroundings import Surroundings
    from ...settings.config import RunConfig

ONE_PART = {"home_assistant": "Home Assistant shows one answer"}

PREFIX = "homeassistant"  # where Home Assistant looks unless its user has changed it
ENTITIES = {  # the platform of each
    "decision": "sensor",
    "confidence": "sensor",
    "cost": "sensor",
    "cloud": "sensor",
    "problem": "binary_sensor",
    "bundle": "update",
}
MAX_OPTIONS = 200  # classes that are named; beyond, the entity is a plain text
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,40}(?:/[A-Za-z0-9_-]{1,40}){0,3}")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
DECIDED = "{{ value_json.label }}"
COST = "{{ value_json.cost }}"
VALUE = "{{ value_json.value }}"
CONFIDENCE = "{{ (100 * value_json.confidence) | round(1) if value_json.confidence is not none else None }}"
SHARE = "{{ (100 * value_json.cloud / value_json.asked) | round(2) if value_json.asked else None }}"
PROBLEM = "{{ 'ON' if value_json.failed else 'OFF' }}"
VERSIONS = (  # what was offered, for what runs and for what is on its way; without a store, the bundle
    "{% set runs = (value_json.store | default({})).sha256 | default(value_json.bundle, true) %}"
    "{% set comes = value_json['update'] | default({}) %}"  # a dict has a method of that name
    "{% set latest = comes.sha256 if comes.state in ('loading', 'paused') else runs %}"
    "{{ {'installed_version': runs[:12], 'latest_version': latest[:12]} | to_json }}"
)


def check(config: RunConfig) -> None:
    """Refuse a message that would reach nobody."""
    if config.broker is None:
        raise InputError("Home Assistant hears of a device from its broker; name it with --broker")
    for prefix in (config.home_assistant, config.home_assistant_remove):
        if prefix is not None:
            checked_prefix(prefix)


def make(run: Surroundings) -> None:
    """Have the messages go out on each connection; nothing is left to do in the run."""
    shown, removed, link = run.config.home_assistant, run.config.home_assistant_remove, run.link
    if link is None:
        return
    for prefix in {
        p for p in (shown, removed) if p is not None
    }:  # a file may show the device while the command removes it
        has_store, messages = run.store is not None, dict[str, bytes]()
        if prefix != removed:
            messages = payloads(link.device_id, run.loaded.manifest, __version__, has_store)
        for key in ENTITIES:
            link.retain(config_topic(link.device_id, key, prefix), messages.get(key, b""))


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


def config_topic(device: str, key: str, prefix: str = PREFIX) -> str:
    """Where an entity's message goes. An id with a dot, which Home Assistant refuses there, gets a digest in its place.

    >>> config_topic("pump-7", "cost"), config_topic("pump.7", "bundle")
    ('homeassistant/sensor/pump-7/cost/config', 'homeassistant/update/pump_7_784eb1/bundle/config')
    """
    name = _FORBIDDEN.sub("_", device)
    node = name if name == device else f"{name}_{sha256(device.encode()).hex()[:6]}"
    return f"{prefix}/{ENTITIES[key]}/{node}/{key}/config"


def payloads(device: str, manifest: Manifest, version: str, has_store: bool) -> dict[str, bytes]:
    """The message of each entity, by its key.

    Parameters
    ----------
    device : the device's id
    manifest : of the bundle that runs
    version : of hardcase-edge
    has_store : whether updates come over the air, so that one can be asked for
    """
    shared = {
        "device": {
            "identifiers": [f"hardcase_{device}"],
            "name": device,
            "model": manifest.name,
            "sw_version": version,
        },
        "origin": {"name": "hardcase", "sw_version": version},
        "availability": [{"topic": status_topic(device), "value_template": "{{ value_json.state }}"}],
        "qos": 1,
    }
    return {
        key: json.dumps(
            {"unique_id": f"hardcase_{device}_{key}", **fields, **shared}, ensure_ascii=False, separators=(",", ":")
        ).encode(errors="replace")
        for key, fields in _entities(device, manifest, has_store).items()
    }


def _entities(device: str, manifest: Manifest, has_store: bool) -> dict[str, dict[str, Any]]:
    topic = decision_topic(device)
    decided, facts = {"state_topic": topic}, {"state_topic": facts_topic(device)}
    measured = {"state_class": "measurement"}
    percent = {**measured, "unit_of_measurement": "%"}
    diagnostic, seldom = {"entity_category": "diagnostic"}, {"enabled_by_default": False}
    unit = {"unit_of_measurement": manifest.unit} if manifest.unit else {}
    problem = {"device_class": "problem", **diagnostic}
    asks = {"command_topic": install_topic(device), "payload_install": "install"} if has_store else {}
    update = {"title": manifest.name, **diagnostic, **asks}
    return {
        "decision": {"name": "Decision", **_answer(manifest), **decided, "json_attributes_topic": topic},
        "confidence": {"name": "Confidence", **percent, **decided, "value_template": CONFIDENCE},
        "cost": {"name": "Cost", **measured, **unit, **decided, "value_template": COST},
        "cloud": {"name": "Cloud share", **percent, **diagnostic, **facts, **seldom, "value_template": SHARE},
        "problem": {"name": "Sensors", **problem, **decided, "value_template": PROBLEM},
        "bundle": {"name": "Bundle", **update, **facts, "value_template": VERSIONS},
    }


def _answer(manifest: Manifest) -> dict[str, Any]:
    """The entity of the answers: a number with its unit, or one of the classes."""
    if manifest.value is not None:
        unit = {"unit_of_measurement": manifest.value.unit} if manifest.value.unit else {}
        return {"state_class": "measurement", "value_template": VALUE, **unit}
    entity = {"value_template": DECIDED}
    names = [str(name) for name in manifest.classes]
    if not 0 < len(set(names)) == len(names) <= MAX_OPTIONS:
        return entity
    return {**entity, "device_class": "enum", "options": names}
