# SPDX-License-Identifier: Apache-2.0
"""The manifest's prices: a table that a run may move thresholds by, refused unless it is whole and in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.bundle.prices import LEVEL, MOST_THRESHOLD, Prices, prices_of
from hardcase_edge.errors import BundleError
from tests.helpers.edge.device import make_loaded, make_program

GOOD: dict[str, Any] = {
    "nodes": [1], "levels": [[900], [256], [0]], "costs": [300.0, 30.0, 1], "forwards": [0.9, 0.1, 0.0], "shipped": 1,
}  # fmt: skip


def test_a_manifest_keeps_its_prices() -> None:
    prices = prices_of(GOOD, make_program())
    assert prices.to_json() == GOOD
    assert make_loaded(prices=prices).manifest.prices == prices


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": []}, {"nodes": [], "levels": [[]] * 3}, {"nodes": [0]}, {"nodes": [2]}, {"nodes": [1, 1]},
        {"nodes": [99]}, {"nodes": [True]},
        {"nodes": "1"}, {"levels": [[256]]}, {"levels": [[900], [256], [300]]}, {"levels": [[900], [256]] * 40},
        {"levels": [[900], [256], [0, 0]]}, {"levels": [[2**62], [256], [0]]}, {"levels": [[900.0], [256], [0]]},
        {"levels": [[900], [255], [0]]}, {"levels": None}, {"shipped": 0}, {"shipped": 3}, {"shipped": -2},
        {"shipped": True}, {"costs": [1.0, 2.0]}, {"costs": [1.0, 2.0, -1]}, {"costs": [1.0, 2.0, True]},
        {"costs": [1.0, 2.0, 10**400]}, {"costs": [1.0, 2.0, float("nan")]},
        {"forwards": [0.0, 0.5, 1.5]}, {"forwards": {}}, {"more": 1},
    ],
)  # fmt: skip
def test_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BundleError, match="the manifest's prices are not"):
        prices_of(GOOD | change, make_program())


@given(
    st.integers(-MOST_THRESHOLD, MOST_THRESHOLD), st.integers(-MOST_THRESHOLD, MOST_THRESHOLD),
    st.integers(0, LEVEL - 1), st.integers(0, LEVEL - 1),
)  # fmt: skip
def test_a_threshold_between_two_levels_lies_between_theirs(a: int, b: int, part: int, other: int) -> None:
    low, high = sorted((part, other))
    table = Prices((1,), ((a,), (b,)), (2.0, 1.0), (0.0, 0.0), 0)
    values = [a, *table.at(low), *table.at(high), b]
    assert values in (sorted(values), sorted(values, reverse=True))


@given(st.integers(-(2**70), 2**70))
def test_no_position_has_a_threshold_outside_the_table(position: int) -> None:
    table = Prices((1, 3), ((50, -7), (40, -7), (-900, 2**40)), (3.0, 2.0, 1.0), (0.0, 0.0, 0.0), 0)
    first, second = table.at(position)
    assert -900 <= first <= 50
    assert -7 <= second <= 2**40
