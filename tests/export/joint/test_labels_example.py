# SPDX-License-Identifier: Apache-2.0
"""The example of printed codes: its data, its camera and its picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "labels"


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import label_camera

    yield label_camera
    for name in ("label_camera", "label_picture"):
        sys.modules.pop(name, None)


def test_the_camera_gives_letters_and_their_readings(camera: Any) -> None:
    images, codes = camera.load()
    assert [len(letters) for letters in images] == [len(code) for code in codes]
    parts, size, budget = next(camera.items())
    assert (len(parts), size, budget) == (len(codes[camera.FIRST_TEST]), 1, None)
    dark = int(parts[0].sum())
    assert sum(camera.read("thumbnail", parts[0])) == dark
    assert len(camera.read("hog", parts[0])) == 96
    assert camera.read("hog", np.ones((16, 12), dtype=np.int64)) == [0] * 96


def test_the_picture_frames_the_letters_that_were_bought(camera: Any) -> None:
    from label_picture import BOUGHT, label_svg

    images, codes = camera.load()
    before = {"labels": list("X" + codes[0][1:])}
    svg = label_svg(images[0], before, {"labels": list(codes[0]), "bought": {"hog": [0, 2]}, "cost": 2.5})
    texts = ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == f"HOG bought for 2 of {len(codes[0])} letters, 2.5 ms"
    assert texts[1:3] == ["X", codes[0][0]]
    assert svg.count(f'stroke="{BOUGHT}"') == 2
