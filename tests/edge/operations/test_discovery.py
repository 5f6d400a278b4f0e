# SPDX-License-Identifier: Apache-2.0
"""Home Assistant's message: its keys are those of the MQTT integration, and its values those of our own topics."""

from __future__ import annotations

import json
import re

import pytest

from hardcase_edge.bundle.value import Value
from hardcase_edge.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.operations.discovery import checked_prefix, config_topic, payload
from hardcase_edge.link.wire import decision_topic, facts_topic, status_topic
from tests.edge.link.test_link import linked
from tests.helpers.cloud.brokers import retained, running_mosquitto, until
from tests.helpers.edge.device import EASY, make_bundle_bytes, make_manifest, write_replay

COMMON = {"platform", "name", "unique_id", "state_topic", "value_template", "entity_category", "device_class"}
KEYS = {  # docs of Home Assistant's MQTT integration, by platform
    "sensor": COMMON | {"state_class", "unit_of_measurement", "options", "json_attributes_topic"},
    "binary_sensor": COMMON,
    "update": COMMON | {"title"},
}
RECORD = {"t", "label", "value", "confidence", "route", "cost", "sensors", "failed", "out_of_range", "latency_ms"}
FACTS = {"bundle", "asked", "local", "cloud", "degraded", "unwritten", "sensors", "link", "store", "latest"}


def test_the_message_has_the_keys_that_home_assistant_knows():
    message = json.loads(payload("pump-7", make_manifest(), "1.2"))
    assert message["device"] == {
        "identifiers": ["hardcase_pump-7"], "name": "pump-7", "model": "toy", "sw_version": "1.2"
    }  # fmt: skip
    assert message["origin"] == {"name": "hardcase", "sw_version": "1.2"}
    assert message["availability"] == [{"topic": status_topic("pump-7"), "value_template": "{{ value_json.state }}"}]
    assert set(message) == {"device", "origin", "availability", "qos", "components"}
    components = message["components"]
    assert set(components) == {"decision", "confidence", "cost", "cloud", "problem", "bundle"}
    for key, component in components.items():
        assert set(component) <= KEYS[component["platform"]], key
        assert component["unique_id"] == f"hardcase_pump-7_{key}"
        keys = {decision_topic("pump-7"): RECORD, facts_topic("pump-7"): FACTS}[component["state_topic"]]
        assert set(re.findall(r"value_json\.(\w+)", component["value_template"])) <= keys
    assert components["decision"]["options"] == ["low", "high"]
    assert components["cost"]["unit_of_measurement"] == "mJ"
    assert components["problem"]["device_class"] == "problem"
    assert components["bundle"]["platform"] == "update"


def test_a_value_has_its_unit_and_many_or_equal_classes_are_a_text():
    numbers = make_manifest(classes=(), value=Value("kWh", 4))
    decision = json.loads(payload("d", numbers, "1"))["components"]["decision"]
    assert (decision["value_template"], decision["unit_of_measurement"]) == ("{{ value_json.value }}", "kWh")
    assert "device_class" not in decision
    for classes in ((), (1, "1"), tuple(range(201))):
        decision = json.loads(payload("d", make_manifest(classes=classes), "1"))["components"]["decision"]
        assert not {"device_class", "options"} & set(decision)
    nameless = json.loads(payload("d", make_manifest(unit=""), "1"))["components"]["cost"]
    assert "unit_of_measurement" not in nameless


def test_names_from_outside_are_data_and_no_template_holds_them():
    evil = '{{ states("x") }}{% set a = 1 %}'
    message = json.loads(payload("d", make_manifest(name=evil, unit=evil, classes=(evil, "b")), "1"))
    templates = [component["value_template"] for component in message["components"].values()]
    assert not any("states" in template or "{%" in template for template in templates)
    assert message["device"]["model"] == evil


def test_the_topic_of_an_id_is_its_own():
    ids = ["pump-7", "pump.7", "pump_7", "a.b-c", "a-b.c", "x" * 64]
    topics = [config_topic(name) for name in ids]
    assert len(set(topics)) == len(ids)
    assert all(re.fullmatch(r"homeassistant/device/[A-Za-z0-9_-]+/config", topic) for topic in topics)
    assert config_topic("d", "a/b") == "a/b/device/d/config"
    for prefix in ("", "/a", "a//b", "+", "a/#", "a b", "a/b/c/d/e", "model.hcb"):
        with pytest.raises(InputError, match="discovery prefix"):
            checked_prefix(prefix)


def test_a_retained_message_is_there_again_on_every_connection_and_an_empty_one_removes_it(tmp_path):
    with running_mosquitto(tmp_path, persistence=False) as broker, linked(broker.url) as link:
        link.retain("homeassistant/device/dev-1/config", b'{"a":1}')
        assert retained(broker, "homeassistant/device/+/config") == {"a": 1}
        broker.restart()
        until(lambda: link.is_connected)
        assert retained(broker, "homeassistant/device/+/config") == {"a": 1}


def test_a_run_shows_the_device_and_removes_it(tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY])
    words = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--device-id", "dev-1", "--broker"]
    with running_mosquitto(tmp_path) as broker:
        assert main([*words, broker.url, "--home-assistant"]) == 0
        assert retained(broker, "homeassistant/device/dev-1/config")["device"]["name"] == "dev-1"
        assert main([*words, broker.url, "--home-assistant-remove"]) == 0
        assert main([*words, broker.url, "--device-id", "dev-2", "--home-assistant", "ha"]) == 0
        assert retained(broker, "+/device/+/config")["device"]["name"] == "dev-2", "nothing is left of the first"
        assert main([*words, broker.url, "--home-assistant", "#"]) == 2
    assert main([*words[:-1], "--home-assistant"]) == 2, "there is no broker"
