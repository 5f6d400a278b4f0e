# SPDX-License-Identifier: Apache-2.0
"""A small network hears what a machine does; the sounds are made here, from a seed.

    python examples/networks/sound_network.py FOLDER

The folder gets ``sounds.tflite``, and ``sounds.hcb``, whose one scorer is that network. A sound is a second of a
microphone, and its readings are decibels: how loud each band of frequencies is in each sixteenth of that second.
Then it listens for a second at ALSA's default microphone (apt install alsa-utils), or in a WAV file of one channel, 16
bits and 4,096 samples a second that the variable SOUND names:

    cd examples/networks
    SOUND=machine.wav hardcase-edge run FOLDER/sounds.hcb --sensors sound_network:read --count 1
"""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE, FRAMES, BANDS = 4_096, 16, 8  # samples a second; frames a second; bands of 256 Hz
CLASSES = ("off", "running", "starting", "stopping", "knocking")
MOST = 20  # dB
Sound = NDArray[np.float64]
LISTEN = f"arecord -q -t raw -f S16_LE -c 1 -r {RATE} -d 1".split()


def read(sensor: str) -> list[float]:
    """The 128 readings of the next second, band by band of each sixteenth."""
    path = os.environ.get("SOUND")
    if path is None:
        data = subprocess.run(LISTEN, stdout=subprocess.PIPE, check=True, timeout=5).stdout
    else:
        with wave.open(path) as file:
            if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
                raise ValueError(f"{path} has not one channel of 16 bits at {RATE} samples a second")
            data = file.readframes(RATE)
    return spectrogram(np.frombuffer(data, "<i2", RATE).astype(float)).ravel().tolist()


def machine(kind: str, rng: np.random.Generator) -> Sound:
    """A second of it, (RATE,), in a hall with noise."""
    t = np.arange(RATE) / RATE
    noise = rng.normal(size=RATE) * rng.uniform(0.2, 1.0) + np.sin(2 * np.pi * 50 * t + rng.uniform(0, 6))
    if kind == "off":
        return noise
    pitch, change = rng.uniform(150, 500), rng.uniform(0.3, 0.8)
    change *= {"starting": 1, "stopping": -1}.get(kind, 0)
    turns = pitch * (t + change * (t**2 - t))  # its frequency goes from 1 - change to 1 + change times the pitch
    tones = sum(rng.uniform(0.3, 1) / k * np.sin(2 * np.pi * k * turns + rng.uniform(0, 6)) for k in (1, 2, 3, 4))
    if kind == "knocking":
        since = (t * rng.uniform(2, 5) + rng.uniform()) % 1  # of the time between two knocks
        tones += rng.uniform(2, 5) * rng.normal(size=RATE) * np.exp(-20 * since)
    return rng.uniform(0.5, 2.0) * tones + noise


def spectrogram(sound: Sound) -> NDArray[np.float64]:
    """(FRAMES, BANDS) whole decibels over the median, so that the microphone's gain does not matter; at most MOST."""
    frames = sound.reshape(FRAMES, -1) * np.hanning(RATE // FRAMES)
    power = np.abs(np.fft.rfft(frames)[:, 1:]) ** 2
    level = 10 * np.log10(power.reshape(FRAMES, BANDS, -1).mean(axis=2) + 1e-9)
    return np.rint(level - np.median(level)).clip(-MOST, MOST)


def main(folder: Path, epochs: int = 12, n: int = 2_000) -> None:
    """Make both files of n sounds."""
    from small_network import make

    rng = np.random.default_rng(0)
    y = rng.integers(len(CLASSES), size=n)
    X = np.array([spectrogram(machine(CLASSES[k], rng)) for k in y])
    make(folder / "sounds", X, y, list(CLASSES), epochs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
