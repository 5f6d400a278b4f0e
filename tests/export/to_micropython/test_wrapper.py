# SPDX-License-Identifier: Apache-2.0
"""The wrapper of MicroPython, run by Python with a stand-in for the kernel: what a reading becomes."""

from __future__ import annotations

import runpy
import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hardcase_edge.sensors.bank import Wanted, features_of
from tests.helpers.places import ROOT

WRAPPER = ROOT / "export" / "hardcase_export" / "to_micropython" / "package" / "hardcase.upy"
MISSING = -(2**31)
TEXTS = ("1", "2", "rain")


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A policy of two sensors: of two texts, and of a text and a number."""
    kernel = SimpleNamespace(call=lambda op, image, session, k, data: 8 if op else 1)
    monkeypatch.setitem(sys.modules, "hardcase_kernel", kernel)
    sensors = [{"name": "sky", "features": ["now", "then"], "types": "ii"},
               {"name": "roof", "features": ["wet", "heat"], "types": "if"}]  # fmt: skip
    names = {"sensors": sensors, "categories": dict.fromkeys(("now", "then", "wet"), TEXTS)}
    return runpy.run_path(str(WRAPPER))["Policy"](b"", names)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        pytest.param("rain", 2, id="text"),
        pytest.param(" rain\r\n", 2, id="text-of-a-line"),
        pytest.param("2", 1, id="text-of-a-digit"),
        pytest.param("snow", MISSING, id="unknown-text"),
        pytest.param(2, MISSING, id="number"),
        pytest.param(2.0, MISSING, id="float"),
        pytest.param(None, MISSING, id="nothing"),
    ],
)
def test_a_reading_of_a_text_is_its_text_and_no_number_as_on_a_device(policy: Any, said: object, code: int) -> None:
    assert struct.unpack_from("<ii", policy._read(lambda name: [said, "1"], 0)) == (code, 0)
    assert struct.unpack_from("<if", policy._read(lambda name: {"wet": said, "heat": 3}, 1)) == (code, 3.0)
    codes = {text: k for k, text in enumerate(TEXTS)}
    wanted = Wanted("sky", ("now", "then"), (True, True), categories=(codes, codes))
    assert features_of(wanted, [said, "1"]) == [None if code == MISSING else code, 0]
