# SPDX-License-Identifier: Apache-2.0
"""The bet on audits: how often it fails a bundle that keeps its promise, and how soon one that does not."""

from __future__ import annotations

from collections import defaultdict
from math import log

import pytest

from hardcase_edge.base.betting import FEW, log_wealth
from hardcase_edge.bundle.agreement import ALPHA, Agreement, promised_share


def is_broken(promised: float, agreed: int, differed: int) -> bool:
    """Whether the bet is won at these counts."""
    return log_wealth(agreed + differed, differed, 1 - promised, FEW) >= -log(ALPHA)


def chance_of_failing(promised: float, true: float, audits: int) -> float:
    """The exact probability that the bet is ever won within so many audits that agree with a probability ``true``."""
    alive, lost = {0: 1.0}, 0.0  # by the number that differed
    for n in range(1, audits + 1):
        following: dict[int, float] = defaultdict(float)
        for differed, p in alive.items():
            following[differed] += p * true
            following[differed + 1] += p * (1 - true)
        broken = [d for d in following if is_broken(promised, n - d, d)]
        lost += sum(following.pop(d) for d in broken)
        alive = following
    return lost


@pytest.mark.parametrize("promised", [0.2, 0.8, 0.95, 0.999])
def test_a_bundle_that_keeps_its_promise_fails_once_in_a_thousand_starts_at_most(promised):
    assert 0 < chance_of_failing(promised, promised, 60) <= ALPHA
    assert chance_of_failing(promised, (1 + promised) / 2, 60) < ALPHA / 2


@pytest.mark.parametrize(("promised", "true", "least"), [(0.95, 0.5, 0.98), (0.9, 0.5, 0.85), (0.8, 0.1, 0.99)])
def test_a_bundle_that_breaks_its_promise_by_far_fails_within_thirty_audits(promised, true, least):
    assert chance_of_failing(promised, true, 30) > least


def test_what_was_once_refuted_stays_refuted():
    agreement = Agreement(0.95)
    for _ in range(3):
        agreement.audited(False)
    assert agreement.is_broken
    for _ in range(1_000):
        agreement.audited(True)
    assert not is_broken(0.95, agreement.agreed, agreement.differed)
    assert (agreement.is_broken, agreement.n) == (True, 1_003)


def test_an_agreement_is_broken_by_the_first_counts_at_which_the_bet_is_won():
    agreement = Agreement(0.8)
    for agrees in (True, True, *[False] * 9):
        assert not agreement.is_broken
        agreement.audited(agrees)
        assert agreement.is_broken == is_broken(0.8, agreement.agreed, agreement.differed)
    assert agreement.is_broken


def test_counts_of_any_size_have_a_wealth():
    assert not is_broken(1e-9, 10**9, 10**9)
    assert is_broken(1 - 1e-12, 0, 10**9)
    assert log_wealth(3, 3, 0.2, FEW) == pytest.approx(log(sum((1 + 4 * stake) ** 3 for stake in FEW) / 5))


@pytest.mark.parametrize(
    "claim", [None, {}, {"at_least": 1}, {"at_least": 0.0}, {"at_least": 1.0}, {"at_least": "0.9"}, [0.9],
              {"at_least": float("nan")}, {"at_least": True}, {"at_least": -0.5}],
)  # fmt: skip
def test_a_claim_that_is_no_share_promises_nothing(claim):
    assert promised_share({"audits": claim}) is None
    assert promised_share({}) is None
    assert promised_share({"audits": {"at_least": 0.9, "local": "many"}}) == 0.9
