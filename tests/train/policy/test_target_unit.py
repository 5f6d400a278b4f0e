# SPDX-License-Identifier: Apache-2.0
"""Programs of values in the target's unit decide as before, and answer mean + deviation x value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardcase_edge.program.definition import Answer, Branch, Opaque, Slice
from hardcase_train.policy.batch import Batch
from hardcase_train.tasks.target import in_target_unit
from tests.helpers.export.value_build import cascade_draft, make_rows, mixed_draft

UNIT = (1000.0, 0.25)


@pytest.mark.parametrize("make", [cascade_draft, mixed_draft])
def test_answers_are_scaled_and_nothing_else_changes(make: object) -> None:
    before = make()  # type: ignore[operator]
    after = in_target_unit(before, UNIT)
    X = make_rows(200, 7)[0]
    hpc = np.zeros(len(X))
    one, other = (Batch(program, X).run(hpc) for program in (before, after))
    local = ~one.forwarded
    assert local.sum() > 100
    np.testing.assert_allclose(other.label[local], UNIT[0] + UNIT[1] * one.label[local], rtol=1e-12)
    assert (other.node == one.node).all()
    assert (other.cost == one.cost).all()


def test_confidences_by_value_move_with_the_values() -> None:
    node = in_target_unit(cascade_draft(), UNIT).nodes[2]
    assert isinstance(node, Answer)
    assert node.margins == (1072.5, 1077.5)


def test_a_score_that_is_answered_and_decides_is_refused() -> None:
    draft = cascade_draft()
    gate = draft.nodes[1]
    assert isinstance(gate, Branch)
    nodes = (draft.nodes[0], replace(gate, scores=Slice(0, 0, 1)), *draft.nodes[2:])
    with pytest.raises(ValueError, match="are answered and decide"):
        in_target_unit(replace(draft, nodes=nodes), UNIT)


def test_a_users_model_is_in_the_targets_unit_already() -> None:
    draft = cascade_draft()
    answer = draft.nodes[2]
    assert isinstance(answer, Answer)
    own = Opaque((0,), b"tfl3", (-9,), (9,))
    nodes = (*draft.nodes[:2], replace(answer, scores=Slice(len(draft.scorers), 0, 1), shift=-2), *draft.nodes[3:])
    made = in_target_unit(replace(draft, scorers=(*draft.scorers, own), nodes=nodes), UNIT)
    assert made.scorers[-1] is own
    assert made.nodes[2].shift == -2  # type: ignore[union-attr]
