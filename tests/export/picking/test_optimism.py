# SPDX-License-Identifier: Apache-2.0
"""The bound of what the choice of sensors adds to a judged figure, and when it is worth a warning."""

from __future__ import annotations

from math import comb, log, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.definition import Acquire
from hardcase_export.drafts.front import Front, Point
from hardcase_export.picking.optimism import ROWS_PER_SENSOR, Selection, selection_of


def chosen(offered: int, read: int, rows: int, loss_se: float = 0.02) -> Selection:
    program: Any = SimpleNamespace(sensors=range(offered), nodes=[Acquire(tuple(range(read)), 1, 1)])
    figures = Judged(0.8, 1.0, 0.0, loss_se)
    point = Point("static", {}, figures, figures, "p")
    return selection_of(Front("mJ", (point,), n_judged=rows), point, program)


def test_the_luckiest_of_equal_sets_looks_better_by_at_most_the_bound_and_not_much_less() -> None:
    rng, n, sets = np.random.default_rng(0), 400, comb(30, 2)
    lucky = [rng.binomial(n, 0.75, sets).max() / n - 0.75 for _ in range(400)]
    bound = chosen(30, 2, n, sqrt(0.75 * 0.25 / n)).optimism
    assert bound == pytest.approx(sqrt(0.75 * 0.25 / n) * sqrt(2 * log(sets)))
    assert 0.75 * bound < np.mean(lucky) <= bound


def test_one_set_leaves_no_choice() -> None:
    assert chosen(6, 6, 10).optimism == chosen(6, 0, 10).optimism == 0
    assert not chosen(6, 6, 10).is_doubtful


def test_only_many_sensors_on_few_rows_are_doubtful() -> None:
    assert chosen(400, 4, 420).is_doubtful
    assert chosen(40, 4, 40 * ROWS_PER_SENSOR - 1).is_doubtful
    assert not chosen(40, 4, 40 * ROWS_PER_SENSOR).is_doubtful
    assert not chosen(13, 5, 124).is_doubtful, "wine"
    assert not chosen(400, 4, 420, loss_se=0.001).is_doubtful, "f0 decides nearly all"
    assert not chosen(400, 4, 0).is_doubtful, "an older build does not say on how many rows"
