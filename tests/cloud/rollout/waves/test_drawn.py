# SPDX-License-Identifier: Apache-2.0
"""Audits are checked against the seed that a device has told: none left out, none chosen, no seed chosen afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hardcase.cli import main
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import MOST_ENDS, Devices, Presence, Seen
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.rollout.waves.drawn import MOST_DRAWS, check
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.link.wire import facts_topic
from hardcase_edge.more.audits.draws import Draws, number

SEED, N, SHARE = bytes(range(32)), 400, 0.05
DUE = [k for k in range(1, N + 1) if number(SEED, k) < SHARE]
DRAWS = {"n": N, "sha256": sha256(SEED).hex(), "seed": SEED.hex()}
FACTS = {"local": N, "boot": 3, "draws": DRAWS}
OTHER = bytes(32).hex()


def test_the_audits_of_a_device_that_keeps_to_its_seed_are_complete() -> None:
    draws = Draws(SEED)
    kept = [draws.n for _ in range(N) if draws() < SHARE]
    draws.end()
    assert check({"local": N, "draws": draws.facts()}, kept, SHARE, DRAWS["sha256"]) == ("complete", 0, "")


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
    state, _, said = check(facts, audited, SHARE)
    assert state == "wrong"
    assert why in said


def outbox(waiting: int, **counters: int) -> dict[str, Any]:
    """Facts of an outbox that has been open."""
    return {"outbox": {"stored": 5, "unwritable": 0, "waiting": waiting, **counters}}


@pytest.mark.parametrize(
    ("at_end", "later", "state"),
    [
        (outbox(2), [], "not all here yet"),
        (outbox(9), [], "not all here yet"),
        (outbox(1), [], "wrong"),
        (outbox(0), [], "wrong"),
        ({}, [], "wrong"),
        ({"outbox": {"sent": 9, "unsent": 0}}, [], "wrong"),
        ({"outbox": {"waiting": True}}, [], "wrong"),
        ({"outbox": [2]}, [], "wrong"),
        (outbox(9), [outbox(2)], "not all here yet"),
        (outbox(9), [outbox(3), outbox(1)], "wrong"),
        (outbox(9), [outbox(0), outbox(7)], "wrong"),
        (outbox(9), [outbox(0, stored=0)], "not all here yet"),  # its file may not be open yet
        (outbox(9), [outbox(0, stored=0, dropped=1)], "wrong"),
        (outbox(9), [outbox(0, unwritable=1)], "not all here yet"),
        (outbox(9), [{}, {"outbox": {"sent": 3, "unsent": 0}}], "not all here yet"),
    ],
)
def test_an_audit_is_missing_for_good_once_fewer_records_wait_than_are_missing(
    at_end: dict[str, Any], later: list[dict[str, Any]], state: str
) -> None:
    assert check({**FACTS, **at_end}, DUE[2:], SHARE, None, later)[:2] == (state, 2)
    assert check({**FACTS, **at_end}, DUE, SHARE, None, later) == ("complete", 0, "")
    assert check({**FACTS, **at_end}, [*DUE[2:], 2], SHARE, None, later)[0] == "wrong"


def test_what_an_outbox_says_of_missing_audits_is_told() -> None:
    said = f"2 missing ({DUE[0]}, {DUE[1]}), 3 records wait in its outbox, 7 records are gone by its own counters"
    assert check({**FACTS, **outbox(3, dropped=4)}, DUE[2:], SHARE, None, [outbox(8, too_long=3)])[2] == said


def test_an_earlier_start_is_checked_by_what_the_store_keeps_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:{tmp_path / 's.sqlite'}"
    command = ["cloud", "audits", "--store", store, "--audit", "5%", "--json"]
    database = Database(store)
    devices, presence = Devices(database), Presence()

    def said() -> list[tuple[int, str, int]]:
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(line["boot"], line["state"], line["missing"]) for line in lines]

    def tell(*facts: dict[str, Any]) -> None:
        for some in facts:
            assert presence.take(facts_topic("a"), json.dumps({"bundle": "b", **some}).encode())
        devices.saw(presence.drain(), 1.0)

    tell({**FACTS, **outbox(501)})
    database.keep([Incoming("a", 3, k, "audit", json.dumps({"draw": k})) for k in DUE[1:]], 1.0)
    assert (main(command), said()) == (0, [(3, "not all here yet", 1)])
    began = {"local": 0, "boot": 4, "draws": {"n": 0, "sha256": sha256(bytes(32)).hex()}}
    ended = {**began, "draws": {**began["draws"], "seed": bytes(32).hex()}, **outbox(0)}
    tell({**began, **outbox(0, stored=0)})
    assert (main(command), said()) == (0, [(3, "not all here yet", 1), (4, "not told yet", 0)])
    tell(ended, {"local": 0, "boot": 5})  # at once, as a device that changes its bundle does; start 5 audits nothing
    assert (main(command), said()) == (1, [(3, "wrong", 1), (4, "complete", 0)])
    database.keep([Incoming("a", 3, DUE[0], "audit", json.dumps({"draw": DUE[0]}))], 1.0)
    assert (main(command), said()) == (0, [(3, "complete", 0), (4, "complete", 0)])
    database.remove(2.0)
    tell({**FACTS, **outbox(501)})  # retained, it comes again whenever the store connects
    assert (main(command), said()) == (0, [(4, "complete", 0)])
    database.close()


@pytest.mark.parametrize(("draws", "state"), [(DUE, "complete"), (DUE[1:], "wrong")])
def test_an_earlier_start_is_checked_with_the_share_that_its_own_facts_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], draws: list[int], state: str
) -> None:
    database = Database(tmp_path / "s.sqlite")
    for facts in ({**FACTS, "audits": {"share": SHARE, "kept": 1}, "more": 1}, {"local": 0, "boot": 4}):
        Devices(database).saw([Seen("a", facts=json.dumps(facts))], 1.0)
    database.keep([Incoming("a", 3, k, "audit", json.dumps({"draw": k})) for k in draws], 1.0)
    assert main(["cloud", "audits", "--store", f"sqlite:{tmp_path / 's.sqlite'}", "--json"]) == (state == "wrong")
    said = json.loads(capsys.readouterr().out)
    assert (said["boot"], said["share"], said["state"]) == (3, SHARE, state)
    database.close()


def test_a_device_that_tells_many_ends_takes_a_bounded_part_of_the_store(tmp_path: Path) -> None:
    database = Database(tmp_path / "s.sqlite")
    devices = Devices(database)
    for boot in range(1, 100):
        devices.saw([Seen("a", facts=json.dumps({**FACTS, "boot": boot, "more": "x" * 999}))], float(boot))
    devices.saw([Seen("a", facts=json.dumps({**FACTS, "boot": boot})) for boot in (0, 2**53, "7", True)], 100.0)
    assert [boot for boot, _ in devices.ends("a")] == list(range(99, 99 - MOST_ENDS, -1))
    assert max(len(facts) for _, facts in devices.ends("a")) < 400
    database.close()


def test_the_command_checks_each_device_in_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, told = f"sqlite:{tmp_path / 's.sqlite'}", tmp_path / "told.jsonl"
    database = Database(store)
    command = ["cloud", "audits", "--store", store, "--audit", "5%", "--json"]
    devices = Devices(database)
    running = {**FACTS, "draws": {**DRAWS, "seed": None}}
    del running["draws"]["seed"]
    devices.saw([Seen("a", facts=json.dumps(running)), Seen("b", facts="{}"), Seen("c", facts="[]")], 1.0)
    database.keep([Incoming("a", 3, k, "audit", json.dumps({"bundle": "", "draw": k})) for k in DUE], 1.0)
    assert main(command) == 0
    told.write_text(capsys.readouterr().out)
    assert json.loads(told.read_text())["state"] == "not told yet"
    devices.saw([Seen("a", facts=json.dumps(FACTS))], 2.0)
    assert main([*command, "--told", str(told)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["device"], said["state"], said["audits"]) == ("a", "complete", len(DUE))
    other = bytes(32)
    chosen = {"n": 0, "sha256": sha256(other).hex(), "seed": other.hex()}
    devices.saw([Seen("a", facts=json.dumps({"local": 0, "boot": 3, "draws": chosen}))], 3.0)
    assert main([*command, "--told", str(told)]) == 1
    assert "another than the one it began with" in capsys.readouterr().out
    shares = [{**FACTS, "audits": {"share": share}} for share in (0.05, 0.9, 7)]  # the last is none
    states = []
    for k, facts in enumerate(shares):
        devices.saw([Seen("a", facts=json.dumps(facts))], 4.0 + k)
        main([*command[:4], *(["--audit", "5%"] if k == 2 else []), "--json"])
        said = json.loads(capsys.readouterr().out)
        states.append((said["share"], said["state"]))
    assert states == [(0.05, "complete"), (0.9, "wrong"), (0.05, "complete")]
    devices.saw([Seen("a", facts=json.dumps(FACTS))], 9.0)
    assert main([*command[:4], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["why"] == "its facts tell no share of audits; name it with --audit"
    database.close()
    told.write_text("[3]\n")
    assert main([*command, "--told", str(told)]) == 2
