# SPDX-License-Identifier: Apache-2.0
"""A camera as a sensor of hardcase-edge: how bright the picture is, and how much moves in it.

    hardcase-edge run model.hcb --sensors camera=camera_sensor:read --isolate

Each reading takes two frames a tenth of a second apart and gives two features, in this order: the mean brightness of
the second frame and the mean change from the first to the second, both from 0 to 1. It needs picamera2 (on a Raspberry
Pi: apt install python3-picamera2) or OpenCV (pip install opencv-python-headless), which bring numpy. A camera that
fails is closed, and opened again at the next reading.
"""

from __future__ import annotations

import time
from typing import Any

WIDTH, HEIGHT = 320, 240
APART_S = 0.1  # between the two frames
EVERY = 4  # of the pixels in each direction, one in four is looked at

_camera: Any = None


def read(sensor: str) -> list[float]:
    """Mean brightness and mean change, from 0 to 1."""
    first = frame()
    time.sleep(APART_S)
    return features(first, frame())


def frame() -> Any:
    """The camera's next frame: a numpy array of bytes, ``(height, width)`` of brightness."""
    global _camera
    try:
        if _camera is None:
            _camera = _open()
        return _camera.frame()
    except Exception:
        if _camera is not None:
            _camera.close()
        _camera = None
        raise


def features(first: Any, second: Any) -> list[float]:
    """The two features of two frames, which are numpy arrays of bytes: ``(height, width)`` of brightness."""
    a, b = (frame[::EVERY, ::EVERY].astype("int16") for frame in (first, second))
    return [float(b.mean()) / 255, float(abs(b - a).mean()) / 255]


def _open() -> Any:
    """The first camera, by picamera2, or else by OpenCV."""
    try:
        from picamera2 import Picamera2
    except ImportError:
        import cv2

        return _OpenCV(cv2)
    return _Picamera2(Picamera2())


class _Picamera2:
    """A camera of a Raspberry Pi. The first rows of a frame in YUV420 are its brightness."""

    def __init__(self, camera: Any) -> None:
        self._camera = camera
        camera.configure(camera.create_video_configuration(main={"size": (WIDTH, HEIGHT), "format": "YUV420"}))
        camera.start()

    def frame(self) -> Any:
        """The next frame's brightness, ``(HEIGHT, WIDTH)``."""
        return self._camera.capture_array("main")[:HEIGHT, :WIDTH]

    def close(self) -> None:
        """Stop the camera, so that another process can open it."""
        self._camera.close()


class _OpenCV:
    """A camera that OpenCV opens, such as one at a USB port."""

    def __init__(self, cv2: Any) -> None:
        self._cv2, self._capture = cv2, cv2.VideoCapture(0)
        self._capture.set(cv2.CAP_PROP_FRAME_WIDTH, WIDTH)
        self._capture.set(cv2.CAP_PROP_FRAME_HEIGHT, HEIGHT)
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # else frames are as old as the last reading

    def frame(self) -> Any:
        """The next frame's brightness, ``(height, width)``."""
        is_read, frame = self._capture.read()
        if not is_read:
            raise OSError("the camera gives no frame")
        return self._cv2.cvtColor(frame, self._cv2.COLOR_BGR2GRAY)

    def close(self) -> None:
        """Close the camera."""
        self._capture.release()
