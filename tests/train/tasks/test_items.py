# SPDX-License-Identifier: Apache-2.0
"""Items of several parts in a task: what their readings may be."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Sensor
from hardcase_train.tasks.items import sensor_types
from tests.helpers.train.problems import make_problem


@pytest.mark.parametrize("part", ["train", "valid", "test", "calibration"])
def test_an_empty_cell_of_any_part_of_the_split_is_refused(part: str) -> None:
    problem = make_problem(n=30, missing=0.0)
    problem = replace(problem, sensors=(Sensor((0, 1, 2), (1,)), Sensor((3, 4, 5), (1,))), calibration=problem.test)
    task: Any = SimpleNamespace(
        problem=problem, features=tuple("abcdef"), sensors=("s", "t"), table=SimpleNamespace(categories={})
    )
    assert [len(types) for types in sensor_types(task)] == [3, 3]
    rows = getattr(problem, part)
    X = rows.X.copy()
    X[0, 4] = np.nan
    task.problem = replace(problem, **{part: replace(rows, X=X)})
    with pytest.raises(InputError, match="the column 'e' has empty cells; items need a number in each"):
        sensor_types(task)
