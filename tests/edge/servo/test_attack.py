# SPDX-License-Identifier: Apache-2.0
"""A short run of the attacks on running budgets; ``make fuzz`` runs them long."""

from __future__ import annotations

from tests.helpers.attack.servo import attack


def test_no_life_spends_more_than_its_limits_and_nothing_forged_is_taken() -> None:
    for outcome in attack(0.15, seed=1):
        assert outcome.inputs >= 1, outcome
        assert (outcome.crashes, outcome.wrong) == (0, 0), outcome
