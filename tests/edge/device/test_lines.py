# SPDX-License-Identifier: Apache-2.0
"""Decision lines in SenML: a pack a line, under a name that lasts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hardcase_edge.cli import main
from hardcase_edge.device import lines
from hardcase_edge.drivers.senml import resolve
from hardcase_edge.errors import HardcaseError
from hardcase_edge.link import identity
from tests.helpers.edge.device import EASY, EASY_LINE, HARD, make_bundle_bytes, write_replay


def test_a_run_writes_a_pack_for_each_decision(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD])
    words = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--record", "senml"]
    assert main([*words, "--device-id", "pi-1"]) == 0
    out, _ = capfd.readouterr()
    packs = [{m.name: m.value for m in resolve(line, now=0)} for line in out.splitlines()]
    assert [pack.pop("hardcase/pi-1/latency") > 0 for pack in packs] == [True, True]  # type: ignore[operator]
    own = {k: len(v) if isinstance(v, list) else v for k, v in EASY_LINE.items() if k not in ("t", "latency_ms")}
    routes = [{"confidence": 0.95, "route": "local"}, {"confidence": 0.6, "route": "degraded"}]
    assert packs == [{f"hardcase/pi-1/{k}": v for k, v in (own | route).items()} for route in routes]


def test_without_an_id_the_machines_own_is_taken_if_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = {"t": 1.0, "route": "local"}
    monkeypatch.setattr(identity, "default_id", lambda: ("host-0123", True))
    (record,) = json.loads(lines.line_format("senml", None)(decision))
    assert record == {"bn": "hardcase/host-0123/", "bt": 1.0, "n": "route", "vs": "local"}
    monkeypatch.setattr(identity, "default_id", lambda: ("host-0123", False))
    with pytest.raises(HardcaseError, match="a name for this device that lasts"):
        lines.line_format("senml", None)
    with pytest.raises(HardcaseError, match="device id"):
        lines.line_format("senml", "a b")
    assert json.loads(lines.line_format("json", "a b")(decision)) == decision
