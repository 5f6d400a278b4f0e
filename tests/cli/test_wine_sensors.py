# SPDX-License-Identifier: Apache-2.0
"""examples/wine gives what README's bundle asks for."""

from __future__ import annotations

import runpy
from pathlib import Path

from sklearn.datasets import load_wine

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "wine" / "my_sensors.py"


def test_the_example_s_bottle_is_the_first_of_the_table_in_the_order_of_its_columns() -> None:
    read = runpy.run_path(str(EXAMPLE))["read"]
    bottle = [value for sensor in ("cheap", "phenols", "rest") for value in read(sensor)]
    assert bottle == load_wine().data[0].tolist()
