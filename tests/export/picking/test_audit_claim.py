# SPDX-License-Identifier: Apache-2.0
"""The share with which f0 agrees at least, as a bundle promises it, against counts made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from hardcase_export.drafts.rows import Rows
from hardcase_export.integers.parity import LocalAnswers
from hardcase_export.picking.audit_claim import LEVEL, audit_claim


def claim(answers, hpc, *, intervals=None, **more):
    """The claim of a program that answers the first rows alone."""
    hpc = np.asarray(hpc)
    rows = Rows(np.zeros((len(hpc), 1)), hpc, hpc, np.zeros(len(hpc), np.int64), **more)
    local = LocalAnswers(tuple(range(len(answers))), tuple(answers), (1,) * len(answers))
    on = SimpleNamespace(local=local)
    return audit_claim(SimpleNamespace(valid=rows, test=rows, on_valid=on, on_test=on, intervals=intervals or {}))


def test_the_bound_is_the_binomials_at_99_percent():
    made = claim([1] * 200, [1] * 190 + [0] * 10 + [1] * 50)
    assert (made["local"], made["agreed"]) == (200, 190)
    low = made["at_least"]
    assert binom.cdf(10, 200, 1 - low) == pytest.approx(LEVEL, rel=1e-3)
    assert binom.cdf(10, 200, 1 - low) <= LEVEL


def test_a_value_agrees_within_the_interval_that_the_device_tells():
    intervals = {1: ((-1.0, 2.0), None)}
    made = claim([0.0] * 100, [2.0] * 60 + [-1.0] * 30 + [2.1] * 6 + [-1.1] * 4, intervals=intervals)
    assert (made["local"], made["agreed"]) == (100, 90)
    assert claim([0.0] * 100, [0.0] * 100) is None, "without an interval nobody can tell"


def test_groups_count_as_groups():
    hpc = [1] * 180 + [0] * 20
    alone, grouped = claim([1] * 200, hpc), claim([1] * 200, hpc, group=np.arange(200) // 10)
    assert (grouped["local"], grouped["agreed"]) == (alone["local"], alone["agreed"])
    assert grouped["at_least"] < alone["at_least"] - 0.05


def test_nothing_is_promised_of_nothing_nor_of_unequal_rows():
    assert claim([], [1] * 10) is None
    assert claim([0] * 10, [1] * 10) is None, "f0 never agrees"
    assert claim([1] * 100, [1] * 100, weight=np.arange(100.0)) is None
    assert claim([1] * 100, [1] * 100, weight=np.full(100, 2.0)) == claim([1] * 100, [1] * 100)
