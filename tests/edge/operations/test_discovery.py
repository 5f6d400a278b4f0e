# SPDX-License-Identifier: Apache-2.0
"""Home Assistant's message: its keys are those of the MQTT integration, and its values those of our own topics."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from hardcase_edge.bundle.value import Value
from hardcase_edge.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.operations.discovery import ENTITIES, checked_prefix, config_topic, make, payloads
from hardcase_edge.link.wire import decision_topic, facts_topic, install_topic, status_topic
from hardcase_edge.settings.config import RunConfig
from tests.edge.link.test_link import linked
from tests.helpers.cloud.brokers import retained, running_mosquitto, until
from tests.helpers.edge.device import EASY, make_bundle_bytes, make_manifest, write_replay

SHARED = {"unique_id", "device", "origin", "availability", "qos"}
COMMON = SHARED | {"name", "state_topic", "value_template", "entity_category", "device_class"}
KEYS = {  # docs of Home Assistant's MQTT integration, by platform
    "sensor": COMMON | {"state_class", "unit_of_measurement", "options", "json_attributes_topic", "enabled_by_default"},
    "binary_sensor": COMMON,
    "update": COMMON | {"title", "command_topic", "payload_install"},
}
RECORD = {"t", "label", "value", "confidence", "route", "cost", "sensors", "failed", "out_of_range", "latency_ms"}
FACTS = {"bundle", "asked", "local", "cloud", "degraded", "unwritten", "sensors", "link", "store", "update"}


def messages(device: str = "d", has_store: bool = False, **of_manifest: Any) -> dict[str, dict[str, Any]]:
    """The message of each entity."""
    return {k: json.loads(m) for k, m in payloads(device, make_manifest(**of_manifest), "1.2", has_store).items()}


def test_each_message_has_the_keys_that_home_assistant_knows():
    entities = messages("pump-7")
    assert entities.keys() == ENTITIES.keys()
    for key, entity in entities.items():
        assert SHARED <= set(entity) <= KEYS[ENTITIES[key]], key
        assert entity["unique_id"] == f"hardcase_pump-7_{key}"
        assert entity["device"] == {
            "identifiers": ["hardcase_pump-7"], "name": "pump-7", "model": "toy", "sw_version": "1.2"
        }  # fmt: skip
        assert entity["origin"] == {"name": "hardcase", "sw_version": "1.2"}
        assert entity["availability"] == [{"topic": status_topic("pump-7"), "value_template": "{{ value_json.state }}"}]
        keys = {decision_topic("pump-7"): RECORD, facts_topic("pump-7"): FACTS}[entity["state_topic"]]
        assert set(re.findall(r"value_json(?:\.|\[')(\w+)", entity["value_template"])) <= keys
    assert entities["decision"]["options"] == ["low", "high"]
    assert entities["cost"]["unit_of_measurement"] == "mJ"
    assert entities["problem"]["device_class"] == "problem"


def test_only_a_device_with_a_store_can_be_asked_for_an_install():
    assert "command_topic" not in messages()["bundle"]
    bundle = messages("pump-7", has_store=True)["bundle"]
    assert (bundle["command_topic"], bundle["payload_install"]) == (install_topic("pump-7"), "install")


def test_a_value_has_its_unit_and_many_or_equal_classes_are_a_text():
    decision = messages(classes=(), value=Value("kWh", 4))["decision"]
    assert (decision["value_template"], decision["unit_of_measurement"]) == ("{{ value_json.value }}", "kWh")
    assert "device_class" not in decision
    for classes in ((), (1, "1"), tuple(range(201))):
        decision = messages(classes=classes)["decision"]
        assert not {"device_class", "options"} & set(decision)
    nameless = messages(unit="")["cost"]
    assert "unit_of_measurement" not in nameless


def test_names_from_outside_are_data_and_no_template_holds_them():
    evil = '{{ states("x") }}{% set a = 1 %}'
    for key, entity in messages(name=evil, unit=evil, classes=(evil, "b")).items():
        assert entity["value_template"] == messages()[key]["value_template"]
        assert entity["device"]["model"] == evil


def test_the_topic_of_an_id_is_its_own():
    ids = ["pump-7", "pump.7", "pump_7", "a.b-c", "a-b.c", "x" * 64]
    topics = [config_topic(name, key) for name in ids for key in ENTITIES]
    assert len(set(topics)) == len(ids) * len(ENTITIES)
    assert all(re.fullmatch(r"homeassistant/[a-z_]+/[A-Za-z0-9_-]+/[a-z]+/config", topic) for topic in topics)
    assert config_topic("d", "problem", "a/b") == "a/b/binary_sensor/d/problem/config"
    for prefix in ("", "/a", "a//b", "+", "a/#", "a b", "a/b/c/d/e", "model.hcb"):
        with pytest.raises(InputError, match="discovery prefix"):
            checked_prefix(prefix)


def test_a_retained_message_is_there_again_on_every_connection_and_an_empty_one_removes_it(tmp_path):
    with running_mosquitto(tmp_path, persistence=False) as broker, linked(broker.url) as link:
        link.retain("homeassistant/sensor/dev-1/cost/config", b'{"a":1}')
        assert retained(broker, "homeassistant/sensor/+/cost/config") == {"a": 1}
        broker.restart()
        until(lambda: link.is_connected)
        assert retained(broker, "homeassistant/sensor/+/cost/config") == {"a": 1}


@pytest.mark.parametrize(
    ("shown", "removed", "left"),
    [("ha", None, {"ha"}), (None, "ha", set()), ("ha", "ha", set()), ("ha", "homeassistant", {"ha"})],
    ids=["shown", "removed", "shown-by-the-file-and-removed", "moved-to-another-prefix"],
)
def test_a_prefix_to_remove_holds_nothing_whatever_shows_the_device(shown, removed, left):
    sent: dict[str, bytes] = {}
    run: Any = SimpleNamespace(
        config=RunConfig(home_assistant=shown, home_assistant_remove=removed),
        link=SimpleNamespace(device_id="dev-1", retain=sent.__setitem__),
        loaded=SimpleNamespace(manifest=make_manifest()),
        store=None,
    )
    make(run)
    assert {topic.partition("/")[0] for topic in sent} == {shown, removed} - {None}
    assert {topic for topic, message in sent.items() if message} == {
        config_topic("dev-1", key, prefix) for prefix in left for key in ENTITIES
    }


def test_a_run_shows_the_device_and_removes_it(tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY])
    words = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--device-id", "dev-1", "--broker"]
    with running_mosquitto(tmp_path) as broker:
        assert main([*words, broker.url, "--home-assistant"]) == 0
        assert retained(broker, "homeassistant/update/dev-1/bundle/config")["device"]["name"] == "dev-1"
        assert main([*words, broker.url, "--home-assistant-remove"]) == 0
        assert main([*words, broker.url, "--device-id", "dev-2", "--home-assistant", "ha"]) == 0
        assert retained(broker, "+/update/+/bundle/config")["device"]["name"] == "dev-2", "nothing is left of the first"
        assert main([*words, broker.url, "--home-assistant", "#"]) == 2
    assert main([*words[:-1], "--home-assistant"]) == 2, "there is no broker"
