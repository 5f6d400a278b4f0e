# SPDX-License-Identifier: Apache-2.0
"""Settings of items of several parts: which values they take, and which are refused with a line."""

from __future__ import annotations

from typing import Any

import pytest

from hardcase_edge.errors import InputError
from hardcase_train.settings.config import ItemSettings


@pytest.mark.parametrize(("key", "value"), [("atypical", 0.0), ("atypical", 0.5), ("ask", 0.99), ("weight_bits", 16)])
def test_a_value_within_its_bounds_is_taken(key: str, value: Any) -> None:
    assert getattr(ItemSettings(**{key: value}), key) == value


@pytest.mark.parametrize(("key", "value"), [("atypical", -0.01), ("atypical", 0.51), ("ask", 1.0), ("weight_bits", 9)])
def test_a_value_beyond_its_bounds_is_refused_by_its_name(key: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"\[joint\] {key} is {value}"):
        ItemSettings(**{key: value})
