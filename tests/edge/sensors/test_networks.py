# SPDX-License-Identifier: Apache-2.0
"""The networks of examples/networks on a device, with files in the place of its camera and its microphone."""

from __future__ import annotations

import importlib
import json
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hardcase_edge.cli import main
from tests.helpers.places import ROOT

pytest.importorskip("ai_edge_litert")
Made = Callable[[str, int], ModuleType]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """An example by its name, after it has made its bundle; device commands run in its folder."""
    folder = ROOT / "examples" / "networks"
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    ours = set(sys.modules)

    def one(name: str, *words: int) -> Any:
        example: Any = importlib.import_module(name)
        example.main(tmp_path, *words)
        return example

    yield one
    for name in ("digit_network", "sound_network", "small_network", "camera_sensor"):
        if name not in ours:
            sys.modules.pop(name, None)


def decided(bundle: Path, module: str, capfd: pytest.CaptureFixture[str]) -> Any:
    """The first decision of a device whose sensor is the example."""
    capfd.readouterr()
    assert (
        main(["run", str(bundle), "--sensors", f"{module}:read", "--sensor-timeout-ms", "60000", "--count", "1"]) == 0
    )
    return json.loads(capfd.readouterr().out)


def test_the_digit_network_reads_a_picture_and_a_camera(made, tmp_path, monkeypatch, capfd) -> None:
    from sklearn.datasets import load_digits

    example = made("digit_network", 1)
    X, y = load_digits(return_X_y=True)
    k = next(k for k in range(1, len(X)) if (X[k].min(), X[k].max(), y[k]) == (0, 16, 0))
    drawn = np.repeat(np.repeat(255 - 15 * X[k].reshape(8, 8), 9, axis=0), 9, axis=1).astype(np.uint8)
    wide = np.pad(drawn, ((0, 0), (20, 20)), constant_values=255)
    (tmp_path / "digit.pgm").write_bytes(b"P5 %d %d 255\n" % wide.shape[::-1] + wide.tobytes())
    monkeypatch.setenv("PICTURE", str(tmp_path / "digit.pgm"))
    assert example.read("inputs") == X[k].tolist()
    assert decided(tmp_path / "digits.hcb", "digit_network", capfd)["label"] == "0"
    monkeypatch.delenv("PICTURE")
    camera: Any = ModuleType("camera_sensor")
    camera.frame = lambda: wide
    monkeypatch.setitem(sys.modules, "camera_sensor", camera)
    assert example.read("inputs") == X[k].tolist()


def test_the_sound_network_hears_a_file_and_a_microphone(made, tmp_path, monkeypatch, capfd) -> None:
    example = made("sound_network", 4, 400)
    sound = (2_000 * example.machine("off", np.random.default_rng(5))).astype("<i2")
    with wave.open(str(tmp_path / "hall.wav"), "wb") as file:
        file.setparams((1, 2, example.RATE, 0, "NONE", ""))
        file.writeframes(sound.tobytes())
    monkeypatch.setenv("SOUND", str(tmp_path / "hall.wav"))
    assert decided(tmp_path / "sounds.hcb", "sound_network", capfd)["label"] == "off"
    heard = example.read("inputs")
    monkeypatch.delenv("SOUND")
    (tmp_path / "raw").write_bytes(sound.tobytes())
    monkeypatch.setattr(example, "LISTEN", ["cat", str(tmp_path / "raw")])
    assert example.read("inputs") == heard == example.spectrogram(sound.astype(float)).ravel().tolist()
