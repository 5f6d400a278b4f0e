# SPDX-License-Identifier: Apache-2.0
"""Tables become the readings that a device would hold, whatever stands in them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.program.readings import normalise
from hardcase_export.integers.decide import readings_of

EDGES = (0.5, -0.0, -1e-60, 1e300, 3.4028235677973366e38, 2.0**31, 2.0**31 - 1, -(2.0**31), 1 - 2.0**31, 2.0**53 + 2)
NUMBERS = st.one_of(st.floats(), st.sampled_from(EDGES), st.integers(-(2**33), 2**33).map(float))


@given(
    st.lists(st.sampled_from(["i32", "f32", "f64"]), min_size=1, max_size=6).flatmap(
        lambda dtypes: st.tuples(
            st.just(dtypes),
            st.lists(st.lists(NUMBERS, min_size=len(dtypes), max_size=len(dtypes)), min_size=1, max_size=8),
        )
    )
)
def test_a_table_is_held_as_its_rows_are_one_by_one(case: tuple[list[str], list[list[float]]]) -> None:
    dtypes, table = case
    program = SimpleNamespace(features=[SimpleNamespace(dtype=dtype) for dtype in dtypes])
    found = readings_of(program, np.array(table))  # type: ignore[arg-type]
    expected = [normalise(row, dtypes) for row in table]
    assert [[(type(x), repr(x)) for x in row] for row in found] == [[(type(x), repr(x)) for x in r] for r in expected]
