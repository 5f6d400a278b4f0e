# SPDX-License-Identifier: Apache-2.0
"""A short run of the attacks on records; ``benchmarks/attack.py`` runs them long."""

from __future__ import annotations

from tests.helpers.attack.records import attack


def test_no_acknowledgement_record_or_file_is_more_than_counted() -> None:
    outcomes = attack(0.6, seed=1)
    assert [outcome.inputs > 0 for outcome in outcomes] == [True] * 3
    assert [(outcome.crashes, outcome.wrong) for outcome in outcomes] == [(0, 0)] * 3, outcomes
