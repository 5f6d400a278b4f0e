# SPDX-License-Identifier: Apache-2.0
"""The camera of examples/camera as a plug-in, with modules in the place of picamera2 and OpenCV."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hardcase_edge.sensors.bank import SensorBank, Wanted
from hardcase_edge.sensors.plugin import Plugin
from tests.helpers.places import ROOT

CAMERA = Wanted("camera", ("brightness", "motion"), (False, False))
FRAMES = [np.full((240, 320), 51, np.uint8), np.full((240, 320), 102, np.uint8)]


class FakeCamera:
    """Both libraries at once; every other frame is bright, and no frame comes while ``is_broken``."""

    is_broken = False
    opened = 0

    def __init__(self, index: int = 0) -> None:
        FakeCamera.opened += 1
        self.n = 0

    def create_video_configuration(self, main: dict[str, Any]) -> dict[str, Any]:
        return main

    def configure(self, settings: dict[str, Any]) -> None:
        assert settings == {"size": (320, 240), "format": "YUV420"}

    def start(self) -> None: ...
    def close(self) -> None: ...
    def release(self) -> None: ...
    def set(self, key: int, value: int) -> None: ...

    def _next(self) -> np.ndarray:
        if FakeCamera.is_broken:
            raise RuntimeError("the camera frontend has timed out")
        self.n += 1
        return FRAMES[self.n % 2]

    def capture_array(self, stream: str) -> np.ndarray:
        return np.vstack([self._next(), np.full((120, 320), 255, np.uint8)])  # colours behind the brightness

    def read(self) -> tuple[bool, np.ndarray | None]:
        return (False, None) if FakeCamera.is_broken else (True, np.repeat(self._next()[:, :, None], 3, axis=2))


@pytest.fixture(params=["picamera2", "cv2"])
def camera(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    fake: Any = ModuleType(request.param)
    if request.param == "picamera2":
        fake.Picamera2 = FakeCamera
    else:
        monkeypatch.setitem(sys.modules, "picamera2", None)
        names = ("CAP_PROP_FRAME_WIDTH", "CAP_PROP_FRAME_HEIGHT", "CAP_PROP_BUFFERSIZE", "COLOR_BGR2GRAY")
        fake.__dict__.update(dict.fromkeys(names, 1), VideoCapture=FakeCamera)
        fake.cvtColor = lambda frame, code: frame[:, :, 0]
    monkeypatch.setitem(sys.modules, request.param, fake)
    monkeypatch.syspath_prepend(ROOT / "examples" / "camera")
    monkeypatch.setattr(FakeCamera, "is_broken", False)
    monkeypatch.setattr(FakeCamera, "opened", 0)
    importlib.import_module("camera_sensor").APART_S = 0.0
    yield Plugin("camera_sensor:read")
    del sys.modules["camera_sensor"]


def test_a_camera_gives_brightness_and_motion(camera: Plugin) -> None:
    with SensorBank([CAMERA], {"camera": camera}, timeout_s=30.0) as bank:
        assert bank.read([0])[0] == [pytest.approx(51 / 255), pytest.approx(51 / 255)]
        assert FakeCamera.opened == 1


def test_a_camera_that_fails_is_opened_again(camera: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    with SensorBank([CAMERA], {"camera": camera}, timeout_s=30.0) as bank:
        assert bank.read([0])[0]
        monkeypatch.setattr(FakeCamera, "is_broken", True)
        assert [bank.read([0])[0], bank.read([0])[0]] == [None, None]
        monkeypatch.setattr(FakeCamera, "is_broken", False)
        assert bank.read([0])[0]
        assert dict(bank.counters) == {"raised": 2}
        assert FakeCamera.opened == 3


def test_without_a_library_the_sensor_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "camera")
    for name in ("picamera2", "cv2"):
        monkeypatch.setitem(sys.modules, name, None)
    with SensorBank([CAMERA], {"camera": Plugin("camera_sensor:read")}, timeout_s=30.0) as bank:
        assert bank.read([0]) == {0: None}
        assert dict(bank.counters) == {"raised": 1}
    del sys.modules["camera_sensor"]
