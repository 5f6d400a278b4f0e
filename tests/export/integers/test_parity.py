# SPDX-License-Identifier: Apache-2.0
"""Parity of many rows, whose drafts are computed all at once, is that of the sessions row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardcase_edge.more.batch.quality import ACCURACY, R2, Quality
from hardcase_edge.program.definition import Branch, Program
from hardcase_export.integers import parity as module
from hardcase_export.integers.parity import parity
from hardcase_export.integers.quantise import quantise
from tests.helpers.export import builds, value_build

CLASSES = builds.cascade_draft(), builds.make_rows, ACCURACY, None
VALUES = value_build.cascade_draft(), value_build.make_rows, R2, value_build.STEPS


@pytest.mark.parametrize(("draft", "make", "quality", "steps"), [CLASSES, VALUES], ids=["classes", "values"])
@pytest.mark.parametrize("moved", [0, 40], ids=["as-quantised", "with-a-moved-threshold"])
def test_rows_at_once_are_compared_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, draft: Program, make: Any, quality: Quality, steps: int | None, moved: int
) -> None:
    program = quantise(draft, steps=steps).program
    nodes = [replace(n, threshold=n.threshold + 2**10 * moved) if isinstance(n, Branch) else n for n in program.nodes]
    program = replace(program, nodes=tuple(nodes))
    X, y = make(150, 11)
    hpc = np.roll(y, 1)
    one_by_one = parity(draft, program, X, y, hpc, quality=quality, steps=steps)
    monkeypatch.setattr(module, "MANY_ROWS", 0)
    monkeypatch.setattr(module, "decisions", _only(program, module.decisions))
    at_once = parity(draft, program, X, y, hpc, quality=quality, steps=steps)
    assert replace(at_once, before=one_by_one.before) == one_by_one
    assert at_once.before.to_json() == pytest.approx(one_by_one.before.to_json(), rel=1e-9)  # other sums of floats
    assert (one_by_one.agreement < 0.99) == (moved > 0)


def _only(allowed: Program, decide: Any) -> Any:
    def decided(program: Program, *rows: Any, **how: Any) -> Any:
        assert program is allowed
        return decide(program, *rows, **how)

    return decided
