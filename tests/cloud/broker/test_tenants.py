# SPDX-License-Identifier: Apache-2.0
"""Tenants at one broker: nobody hears or reaches another tenant, and each is served by workers of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase_cloud.broker import rules
from hardcase_edge.errors import InputError, WireError
from hardcase_edge.link.wire import check_device_id, device_of_topic, request_topic, tenant_of
from tests.helpers.attack.trespass import TOPICS, USERS, crossing

OF_TENANTS = ["pi-0", "acme/pi-0", "bolt/pi-0"]


def test_a_device_of_one_tenant_reaches_nothing_of_another() -> None:
    (outcome,) = crossing(OF_TENANTS)(0, 0)
    n_users = len(OF_TENANTS) * (1 + 1 + len(USERS))
    assert (outcome.crashes, outcome.wrong, outcome.inputs > n_users * 2 * 3 * len(TOPICS)) == (0, 0, True)


def test_the_attack_finds_rules_that_know_no_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "devices_of", lambda tenant: "+/+")
    assert crossing(OF_TENANTS)(0, 0)[0].wrong > 0


@pytest.mark.parametrize("name", ["a/b/c", "/a", "a/", "a/+", "#/b", "../b", "a" * 65 + "/b", ""])
def test_a_device_has_one_tenant_at_most(name: str) -> None:
    with pytest.raises(InputError):
        check_device_id(name)
    with pytest.raises(WireError):
        device_of_topic(request_topic(name))


def test_a_topic_names_the_device_with_its_tenant() -> None:
    names = [device_of_topic(request_topic(name)) for name in ("acme/pump-7", "pump-7")]
    assert [(name, tenant_of(name)) for name in names] == [("acme/pump-7", "acme"), ("pump-7", "")]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["worker", "--hpc", "x", "--broker", "mqtt://h:1", "--tenant", "a/b"], "tenant 'a/b' is not 1 to 64"),
        (["up", "--hpc", "x.onnx", "--tenant", "acme"], "--tenant require --broker"),
        (
            ["offer", "x", "--broker", "mqtt://h:1", "--device", "acme/pump-7"],
            "acme/pump-7 is not a device of no tenant",
        ),
        (["rollout", "group", "g", "--devices", "DEVICES", "--store", "sqlite:s"], "the devices are of 2 tenants"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    (tmp_path / "devices").write_text("acme/pump-7\nbolt/pump-7\n")
    words = [str(tmp_path / "devices") if word == "DEVICES" else word for word in words]
    try:
        status = main(["cloud", *words])
    except SystemExit as error:
        status = int(error.code or 0)
    assert (status, line in capsys.readouterr().err) == (2, True)
