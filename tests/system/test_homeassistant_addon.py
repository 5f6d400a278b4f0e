# SPDX-License-Identifier: Apache-2.0
"""The add-on of Home Assistant: its script beside a false Supervisor, its page and files, and the quality scale."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import yaml

from hardcase_edge.cli import main as edge
from tests.helpers.cloud.brokers import free_port, running_mosquitto, until
from tests.helpers.cloud.json_server import Answer, serving
from tests.helpers.edge.device import EASY, make_bundle_bytes, write_replay
from tests.helpers.places import ROOT

ADDON = ROOT / "examples" / "homeassistant" / "addon" / "hardcase"
SCALE = {  # of script/hassfest/quality_scale.py, 2026
    "bronze": "action-setup appropriate-polling brands common-modules config-flow config-flow-test-coverage "
    "dependency-transparency docs-actions docs-conditions docs-high-level-description docs-installation-instructions "
    "docs-removal-instructions docs-triggers entity-event-setup entity-unique-id has-entity-name runtime-data "
    "test-before-configure test-before-setup unique-config-entry",
    "silver": "action-exceptions config-entry-unloading docs-configuration-parameters docs-installation-parameters "
    "entity-unavailable integration-owner log-when-unavailable parallel-updates reauthentication-flow test-coverage",
    "gold": "devices diagnostics discovery discovery-update-info docs-data-update docs-examples docs-known-limitations "
    "docs-supported-devices docs-supported-functions docs-troubleshooting docs-use-cases dynamic-devices "
    "entity-category entity-device-class entity-disabled-by-default entity-translations exception-translations "
    "icon-translations reconfiguration-flow repair-issues stale-devices",
    "platinum": "async-dependency inject-websession strict-typing",
}
PREFIX = "/api/hassio_ingress/a-token/"
LINK = re.compile(r'(?:href|src)="([^"]+)"')


def supervisor(mqtt: dict[str, Any] | None) -> Answer:
    """The Supervisor, as far as the add-on asks it."""

    def answer(path: str, headers: Any, _: Any) -> tuple[int, bytes]:
        is_right = path == "/services/mqtt" and headers["Authorization"] == "Bearer s3cret"
        return 200 if is_right and mqtt else 400, json.dumps({"result": "ok", "data": mqtt}).encode()

    return answer


def ingress(port: int) -> Answer:
    """Home Assistant's way to an add-on: a path of its own, which the add-on does not see."""

    def answer(path: str, *_: Any) -> tuple[Any, ...]:
        if not path.startswith(PREFIX):
            return 404, b""
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/{path.removeprefix(PREFIX)}")
        asked.add_header("X-Ingress-Path", PREFIX.rstrip("/"))
        with urllib.request.urlopen(asked) as got:
            policy = got.headers["Content-Security-Policy"] or ""
            return got.status, got.read(), {"Content-Security-Policy": policy}

    return answer


@contextmanager
def started(
    folder: Path, supervisor_port: int, port: int, text: str = "", **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """The add-on's script with the environment that a container would have."""
    (folder / "options.json").write_text(text or json.dumps({"keep": "90d", "hpc": "", "bundles": [], **options}))
    more = {
        "SUPERVISOR_URL": f"http://127.0.0.1:{supervisor_port}", "SUPERVISOR_TOKEN": "s3cret",
        "DATA_FOLDER": str(folder), "CONFIG_FOLDER": str(folder), "INGRESS_ADDRESS": "127.0.0.1",
        "INGRESS_BIND": f"127.0.0.1:{port}",
    }  # fmt: skip
    with (folder / "said").open("wb") as said:
        words = [sys.executable, str(ADDON / "run.py")]
        process = subprocess.Popen(words, env={**os.environ, **more}, stdout=said, stderr=said)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def is_up(port: int) -> bool:
    try:
        return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/").read())
    except OSError:
        return False


def test_the_add_on_shows_what_a_device_decided_below_the_path_of_ingress(tmp_path: Path) -> None:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    port = free_port()
    with running_mosquitto(tmp_path) as broker:
        mqtt = {"host": broker.host, "port": broker.port, "username": "", "password": "", "ssl": False}
        with serving(supervisor(mqtt)) as asked, started(tmp_path, asked, port, bundles=["toy.hcb"]) as addon:
            until(lambda: is_up(port))
            replay = write_replay(tmp_path / "r.csv", [EASY] * 3)
            words = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--broker", broker.url]
            assert edge([*words, "--device-id", "hall", "--publish", "all"]) == 0
            with serving(ingress(port)) as home:
                page = urljoin(f"http://127.0.0.1:{home}", PREFIX)
                with urllib.request.urlopen(page) as answer:
                    assert answer.headers["Content-Security-Policy"].endswith("frame-ancestors 'self'")
                    text = answer.read().decode()
                links = [urljoin(page, link) for link in LINK.findall(text)]
                assert len(links) >= 5
                for link in [*links, urljoin(page, "label"), urljoin(page, "metrics")]:
                    assert link.startswith(page), link
                    with urllib.request.urlopen(link) as answer:
                        assert answer.read()
                label = urllib.request.urlopen(urljoin(page, "label")).read().decode()
                assert all(urljoin(urljoin(page, "label"), link).startswith(page) for link in LINK.findall(label))
                devices = urljoin(page, "devices?q=hall")
                until(lambda: json.load(urllib.request.urlopen(devices))["n"] == 1)
            addon.send_signal(signal.SIGTERM)
            assert addon.wait(60) == 0


def test_the_add_on_ends_when_a_part_ends_and_says_why_without_a_broker(tmp_path: Path) -> None:
    port = free_port()
    with serving(supervisor(None)) as asked, started(tmp_path, asked, port) as addon:
        assert addon.wait(60) == 1
    assert "Home Assistant names no broker" in (tmp_path / "said").read_text()
    with running_mosquitto(tmp_path) as broker:
        mqtt = {"host": broker.host, "port": broker.port, "username": "", "password": ""}
        with serving(supervisor(mqtt)) as asked, started(tmp_path, asked, port, hpc="nothing.onnx") as addon:
            assert addon.wait(60) == 1
    assert "nothing.onnx" in (tmp_path / "said").read_text()


@pytest.mark.parametrize(
    ("options", "answer", "said"),
    [
        *((text, b"{}", "the options cannot be used") for text in (
            "{", "[]", "[" * 100_000, '{"bundles": null}', '{"bundles": "a.hcb"}', '{"bundles": [5]}', '{"hpc": 5}',
            '{"keep": 90}', '{"bundles": ["a\\u0000b"]}', '{"bundles": ["\\ud800"]}', '{"hpc": "a\\n--help"}',
            '{"hpc": "/etc/passwd"}', '{"hpc": "../store.sqlite"}', '{"bundles": [""]}', '{"bundles": ["x/../.."]}',
        )),
        *(("{}", data, "Home Assistant names no broker") for data in (
            b"{", b"[1]", b"[" * 100_000, b'{"data": null}', b'{"data": {"host": "h"}}',
        )),
    ],
)  # fmt: skip
def test_options_and_answers_that_cannot_be_used_are_one_line(
    tmp_path: Path, options: str, answer: bytes, said: str
) -> None:
    with serving(lambda *_: (200, answer)) as asked, started(tmp_path, asked, free_port(), text=options) as addon:
        assert addon.wait(60) == 1
    told = (tmp_path / "said").read_text()
    assert said in told
    assert told.count("\n") == 1


# What the Supervisor's documents say of config.yaml, for the keys that are used; the Supervisor itself is no package.
ARCH = {"aarch64", "amd64", "armhf", "armv7", "i386"}
STARTUP = {"initialize", "system", "services", "application", "once"}
OPTION = re.compile(r"(?:str|bool|int|float|email|url|password|port|match\(.*\)|list\(.+\))(?:\(.*\))?\??")


def read(name: str) -> Any:
    return yaml.safe_load((ADDON / name).read_text())


def test_the_add_ons_settings_keep_the_rules_of_the_supervisors_documents() -> None:
    config = read("config.yaml")
    assert {"name", "version", "slug", "description", "arch"} <= config.keys()
    assert re.fullmatch(r"[a-z0-9_-]+", config["slug"])
    assert isinstance(config["version"], str)
    assert set(config["arch"]) <= ARCH
    assert config["startup"] in STARTUP
    assert config["boot"] in {"auto", "manual", "manual_only"}
    assert config["stage"] in {"stable", "experimental", "deprecated"}
    assert all(re.fullmatch(r"(?:mqtt|mysql):(?:provide|want|need)", word) for word in config["services"])
    assert [entry["type"] for entry in config["map"]] == ["addon_config"]
    kinds = [kind for value in config["schema"].values() for kind in (value if isinstance(value, list) else [value])]
    assert all(OPTION.fullmatch(kind) for kind in kinds)
    assert config["options"].keys() <= config["schema"].keys()
    assert set(read("build.yaml")["build_from"]) == set(config["arch"])
    for language in ("en", "de"):
        assert read(f"translations/{language}.yaml")["configuration"].keys() == config["schema"].keys()
    assert {"name", "url", "maintainer"} == yaml.safe_load((ADDON.parent / "repository.yaml").read_text()).keys()
    assert (ADDON / "icon.png").read_bytes()[16:24] == bytes([0, 0, 0, 128] * 2)
    run = (ADDON / "run.py").read_text()
    assert str(config["ingress_port"]) in run
    assert {f'"{name}"' for name in config["options"]} <= set(re.findall(r'"\w+"', run))


def test_every_rule_of_the_quality_scale_stands_once_and_what_is_done_is_there() -> None:
    text = (ADDON.parents[1] / "quality_scale.yaml").read_text()
    rules = yaml.safe_load(text)["rules"]
    names = [name for tier in SCALE.values() for name in tier.split()]
    assert re.findall(r"^  ([a-z-]+):", text, re.M) == names
    for name in names:
        assert rules[name].keys() == {"status", "comment"}
        assert rules[name]["status"] in ("done", "exempt")
        places = re.findall(r"[\w/]+\.(?:py|md)(?:(?:::|#)[\w-]+)?", rules[name]["comment"])
        assert bool(places) == (rules[name]["status"] == "done"), name
        for path, _, part in (re.split("(::|#)", place + "#")[:3] for place in places):
            said = (ROOT / path).read_text()
            headings = {h.lower().replace(" ", "-") for h in re.findall("^#+ (.+)$", said, re.M)}
            assert not part or f"\ndef {part}(" in said or part in headings, (path, part)
