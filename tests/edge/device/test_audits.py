# SPDX-License-Identifier: Apache-2.0
"""Which local decisions are audited, and what becomes of each, in virtual time."""

from __future__ import annotations

import os
import random

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.more.audits.audits import Audit, Audits
from hardcase_edge.more.audits.draws import Draws, number

LOCAL, CLOUD = {"route": "local", "label": "high"}, {"route": "cloud", "label": "high"}


def make(keep: float = 0.0, ask: float = 1.0, *numbers: float) -> Audits:
    given = iter(numbers)
    return Audits(keep, ask, 2.0, lambda: next(given, 0.0))


def test_only_what_the_device_answered_alone_is_audited():
    audits = make(1.0)
    assert audits.drawn(LOCAL, can_ask=True) == (True, True)
    assert audits.drawn(LOCAL, can_ask=False) == (True, False)
    for route in ("cloud", "degraded"):
        assert audits.drawn({"route": route}, can_ask=True) == (False, False)


def test_one_number_decides_about_both_so_that_readings_are_bought_once():
    audits = make(0.2, 0.5, 0.1, 0.3, 0.7, 0.19, 0.5)
    drawn = [audits.drawn(LOCAL, can_ask=True) for _ in range(5)]
    assert drawn == [(True, True), (False, True), (False, False), (True, True), (False, False)]


def test_one_request_is_open_at_a_time_and_its_time_ends():
    audits, one, two = make(), Audit(LOCAL, [1.0], 5.0, False), Audit(LOCAL, [2.0], 5.0, True)
    audits.made(one, 10.0, is_asked=True)
    assert audits.drawn(LOCAL, can_ask=True) == (False, False)
    assert (audits.waited(11.9), audits.waited(12.0), audits.waited(13.0)) == (None, one, None)
    audits.made(two, 13.0, is_asked=True)
    assert not audits.answered(one, True), "a reply to the audit whose time is over counts for no other"
    assert audits.open is two
    assert audits.answered(two, False)
    assert not audits.answered(two, False), "a reply counts once"
    assert dict(audits.counters) == {"kept": 1, "asked": 2, "agreed": 0, "differed": 1, "unanswered": 1}
    assert audits.cost == 10.0


def test_an_audit_that_is_only_kept_waits_for_nothing():
    audits = make(1.0)
    audits.made(Audit(LOCAL, [1.0], 3.0, True), 0.0, is_asked=False)
    assert (audits.open, audits.cost, audits.counters["kept"], audits.counters["asked"]) == (None, 3.0, 1, 0)


def test_the_numbers_are_evenly_spread_and_of_the_systems_own_seed(monkeypatch):
    draws = Draws()
    numbers = [draws() for _ in range(4_000)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert 0.45 < sum(numbers) / len(numbers) < 0.55
    assert len(set(numbers)) == len(numbers)
    random.seed(1)
    first = Draws()()
    random.seed(1)
    assert Draws()() != first, "no seed of the process tells the next one"
    monkeypatch.setattr(os, "urandom", lambda n: b"\xff" * n)
    assert Draws()() == number(b"\xff" * 32, 1)


def test_the_seed_is_told_when_no_number_follows_and_fits_what_was_told_before():
    draws = Draws()
    drawn = [draws() for _ in range(9)]
    before = draws.facts()
    assert set(before) == {"n", "sha256"}
    draws.end()
    seed = bytes.fromhex(draws.facts()["seed"])
    assert (sha256(seed).hex(), before["n"]) == (before["sha256"], 9)
    assert [number(seed, k) for k in range(1, 10)] == drawn
