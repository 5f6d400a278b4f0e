# SPDX-License-Identifier: Apache-2.0
"""``hardcase.load`` of a bundle that holds labels of a stream: the memory between calls, and its reset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hardcase
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.errors import InputError
from tests.helpers.edge.streams import CLASSES, in_turn, make_manifest, make_program, streams


@pytest.fixture
def device(tmp_path: Path) -> Any:
    path = tmp_path / "held.hcb"
    path.write_bytes(pack_bundle(Bundle(make_manifest().to_json(), make_program(), ())))
    return hardcase.load(path)


def readings_of(row: np.ndarray) -> dict[str, float]:
    return dict(zip(("tilt", "step", "spin"), row.tolist(), strict=False))


def test_cases_are_windows_in_the_order_of_the_calls_until_it_forgets(device: Any) -> None:
    X, sequence = streams(5, n=40)
    expected = [in_turn(make_program(), X, sequence)[1][k] for k in range(len(X))]
    for name in np.unique(sequence):
        device.forget()
        for k in np.flatnonzero(sequence == name):
            decided = device.decide(readings_of(X[k]))
            assert (decided.label, decided.cost) == (CLASSES[expected[k].result], expected[k].cost / 1e6)
    assert {d.cost for d in expected} == {1_000_000, 11_000_000}


def test_windows_that_were_missed_have_passed(device: Any) -> None:
    still = {"tilt": 0.0, "step": 0, "spin": 0.0}
    costs = [device.decide(still, windows=n).cost for n in (1, 1, 3, 9, 1)]
    assert costs == [11.0, 1.0, 1.0, 11.0, 1.0]
    for n in (0, 1.5, float("nan"), "3"):
        with pytest.raises(InputError, match=f"{n} windows have passed"):
            device.decide(still, windows=n)


@pytest.mark.parametrize("name", ["memory.held", "memory"])
def test_nobody_tells_the_memory_what_it_says(device: Any, name: str) -> None:
    with pytest.raises(InputError, match="filled by the bundle's own memory"):
        device.decide({"tilt": 0.0, name: [1]})
