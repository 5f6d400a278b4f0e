# SPDX-License-Identifier: Apache-2.0
"""The built-in rows: exact shares, and which of them devices read."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from hardcase_cloud.sim.replay.toy import N_ROWS, agrees, make_rows, row_number


@pytest.mark.parametrize(("bundle", "share"), [("good", 0.95), ("worse", 0.92)])
def test_a_bundle_agrees_with_f0_on_its_exact_share_of_the_rows(bundle, share):
    rows = make_rows(0.2, Random(1))
    assert sum(agrees(bundle, row) for row in rows) / N_ROWS == pytest.approx(share, abs=1 / N_ROWS)


@pytest.mark.parametrize("devices", [range(60), range(0, 900, 15), range(7, 60_000, 1_000)])
def test_devices_read_other_rows_than_their_neighbours(devices):
    """Of 600 rows drawn from 4,096 without regard to each other, 558 differ, give or take 6."""
    assert 530 < len({row_number(device, number) for device in devices for number in range(20, 30)}) < 585


def test_rows_come_as_often_as_draws_would_bring_them():
    """Pearson's statistic of 40,000 rows, over its degrees of freedom: 1, give or take 0.02."""
    counts = Counter(row_number(device, number) for device in range(400) for number in range(100))
    mean = 40_000 / N_ROWS
    statistic = sum((counts[row] - mean) ** 2 / mean for row in range(N_ROWS))
    assert statistic / (N_ROWS - 1) == pytest.approx(1, abs=0.1)
