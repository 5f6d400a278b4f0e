# SPDX-License-Identifier: Apache-2.0
"""The digit camera of examples/camera: its extractors, its items and its table of frames."""

from __future__ import annotations

import importlib
from itertools import islice
from types import ModuleType

import numpy as np
import pytest

from hardcase_edge.sensors.bank import Wanted, features_of
from hardcase_edge.sensors.items import item_of
from tests.helpers.places import ROOT


@pytest.fixture(scope="module")
def camera() -> ModuleType:
    """The plug-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "camera")
        return importlib.import_module("digit_camera")


def test_ten_extractors_give_the_features_that_they_state_at_every_size(camera: ModuleType) -> None:
    assert len(camera.SENSORS) == 10
    for item, size, budget in islice(camera.items(), len(camera.SIDES)):
        assert (item.shape, budget) == ((8 * size, 8 * size), None)
        for name, features in camera.SENSORS.items():
            wanted = Wanted(name, tuple(features), (False,) * len(features))
            assert len(features_of(wanted, camera.read(name, item))) == len(features)


def test_a_digit_looks_alike_at_every_size(camera: ModuleType) -> None:
    for k in range(5):
        small, large = (camera.read("zones", camera.crop(k, side)) for side in (16, 128))
        others = [camera.read("zones", camera.crop(j, 128)) for j in range(5) if j != k]
        assert all(np.abs(small - large).sum() < np.abs(small - other).sum() for other in others)


def test_the_hundred_frames_have_sizes_and_budgets_and_half_of_them_a_slow_extractor(camera: ModuleType) -> None:
    seen = []
    for item, size, budget in camera.frames():
        assert not item_of(size, budget, max(camera.SIDES) // camera.STEP).fault
        assert len(item) == size * camera.STEP
        seen.append(camera._more_ms > 0)
    assert seen == [False] * 50 + [True] * 50
    camera._more_ms = 0.0
