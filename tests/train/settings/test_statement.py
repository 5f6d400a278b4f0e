# SPDX-License-Identifier: Apache-2.0
"""Statements of settings: any value is taken within its bounds or refused in one line, whoever gives it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_train.settings.config import Config, ErrorCosts, IndexSettings, PolicyLimits
from hardcase_train.settings.statement import REQUIRED, check, stated, statements
from hardcase_train.settings.toml import RECORDS

ALL = [(record, one) for record in RECORDS for one in statements(record)]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300)
VALUES = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3)
)


def numbers_in(value: Any) -> list[float]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [value] if isinstance(value, float) else [n for part in parts for n in numbers_in(part)]


@given(st.sampled_from(ALL), VALUES)
def test_any_value_is_taken_or_refused_in_one_line(which: Any, value: Any) -> None:
    record, one = which
    said = refusal(one.type, value)
    if said is None:
        if one.key not in ("params", "quality", "classes"):  # which other places check
            assert all(math.isfinite(n) for n in numbers_in(check("the key", one.type, value))), (record, one.key)
    else:
        assert said.startswith("the key")
        assert "\n" not in said
        assert len(said) < 500


def refusal(kind: Any, value: Any) -> str | None:
    """What is said of a value; None if it is taken."""
    try:
        check("the key", kind, value)
    except InputError as error:
        return str(error)
    return None


def test_a_name_in_a_table_of_costs_cannot_break_the_line() -> None:
    said = refusal(stated(ErrorCosts, "miss").type, {"a\nb": -1})
    assert said == "the key.a?b is -1, a cost from 0 to 1e+09 is expected"


@pytest.mark.parametrize(("record", "one"), ALL, ids=[f"{one.table}.{one.key}" for _, one in ALL])
def test_a_default_is_a_value_that_is_taken(record: Any, one: Any) -> None:
    assert one.sentence
    assert one.sentence[-1] != "."
    if one.default is not REQUIRED:
        assert check(one.key, one.type, one.default) == one.default


def test_a_key_stands_in_one_record_only() -> None:
    places = [(one.table, one.key) for _, one in ALL]
    assert len(set(places)) == len(places) > 50


def test_numbers_of_numpy_are_numbers() -> None:
    assert PolicyLimits(budget=np.float32(2.5), max_bytes=np.int64(10)).given == {"budget": 2.5, "max_bytes": 10}
    with pytest.raises(InputError, match=r"^\[policy\] budget is nan"):
        PolicyLimits(budget=np.float64("nan"))


def test_a_changed_record_is_checked_too() -> None:
    assert IndexSettings().but(alpha=2).alpha == 2.0
    with pytest.raises(InputError, match=r"^\[index\] alpha is 11, a number from 1 to 10 is expected"):
        IndexSettings().but(alpha=11)


def test_what_is_stated_of_a_setting_has_its_place() -> None:
    one = stated(Config, "per_byte")
    assert (one.table, one.key, one.default) == ("cost.uplink", "per_byte", 0.0)
