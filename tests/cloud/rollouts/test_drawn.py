# SPDX-License-Identifier: Apache-2.0
"""Audits are checked against the seed that a device has told: none left out, none chosen, no seed chosen afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_cloud.records.database import Database
from hardcase_cloud.records.incoming import Incoming
from hardcase_cloud.records.registry import Registry, Seen
from hardcase_cloud.rollouts.drawn import MOST_DRAWS, check
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.device.draws import Draws, number

SEED, N, SHARE = bytes(range(32)), 400, 0.05
DUE = [k for k in range(1, N + 1) if number(SEED, k) < SHARE]
DRAWS = {"n": N, "sha256": sha256(SEED).hex(), "seed": SEED.hex()}
FACTS = {"local": N, "boot": 3, "draws": DRAWS}
OTHER = bytes(32).hex()


def test_the_audits_of_a_device_that_keeps_to_its_seed_are_complete() -> None:
    draws = Draws(SEED)
    kept = [draws.n for _ in range(N) if draws() < SHARE]
    draws.end()
    assert check({"local": N, "draws": draws.facts()}, kept, SHARE, DRAWS["sha256"]) == ("complete", "")


@pytest.mark.parametrize(
    ("facts", "audited", "why"),
    [
        (FACTS, DUE[1:], f"1 missing ({DUE[0]})"),
        (FACTS, [*DUE, 2], "1 not drawn (2)"),
        (FACTS, [*DUE, N + 1], f"1 not drawn ({N + 1})"),
        (FACTS, [*DUE, DUE[0]], "audits that come twice or say no draw"),
        (FACTS, [*DUE, None], "audits that come twice or say no draw"),
        ({**FACTS, "local": N + 1}, DUE, "it has not drawn a number for each of its local decisions"),
        ({**FACTS, "draws": {**DRAWS, "seed": OTHER}}, DUE, "its seed does not have the SHA-256 that it says"),
        ({**FACTS, "draws": {**DRAWS, "seed": "7"}}, DUE, "its seed is not one"),
        ({**FACTS, "draws": {**DRAWS, "seed": 7}}, DUE, "its seed is not one"),
        ({"local": 2**50, "draws": {**DRAWS, "n": 2**50}}, DUE, f"numbers, and at most {MOST_DRAWS} can be checked"),
        ({"local": True, "draws": {**DRAWS, "n": True}}, DUE, "it has not drawn a number"),
    ],
)
def test_what_differs_from_the_seed_is_named(facts: dict[str, Any], audited: list[Any], why: str) -> None:
    state, said = check(facts, audited, SHARE)
    assert state == "wrong"
    assert why in said


def test_the_command_checks_each_device_in_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, told = f"sqlite:{tmp_path / 's.sqlite'}", tmp_path / "told.jsonl"
    database = Database(store)
    command = ["cloud", "audits", "--store", store, "--audit", "5%", "--json"]
    registry = Registry(database)
    running = {**FACTS, "draws": {**DRAWS, "seed": None}}
    del running["draws"]["seed"]
    registry.saw([Seen("a", facts=json.dumps(running)), Seen("b", facts="{}"), Seen("c", facts="[]")], 1.0)
    database.keep([Incoming("a", 3, k, "audit", json.dumps({"bundle": "", "draw": k})) for k in DUE], 1.0)
    assert main(command) == 0
    told.write_text(capsys.readouterr().out)
    assert json.loads(told.read_text())["state"] == "not told yet"
    registry.saw([Seen("a", facts=json.dumps(FACTS))], 2.0)
    assert main([*command, "--told", str(told)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["device"], said["state"], said["audits"]) == ("a", "complete", len(DUE))
    other = bytes(32)
    chosen = {"n": 0, "sha256": sha256(other).hex(), "seed": other.hex()}
    registry.saw([Seen("a", facts=json.dumps({"local": 0, "boot": 3, "draws": chosen}))], 3.0)
    assert main([*command, "--told", str(told)]) == 1
    assert "another than the one it began with" in capsys.readouterr().out
    database.close()
    told.write_text("[3]\n")
    assert main([*command, "--told", str(told)]) == 2
