# SPDX-License-Identifier: Apache-2.0
"""``memory.h`` remembers and ``coin.h`` draws as the Python runtime does, to the last bit."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program.readings import normalise
from hardcase_edge.stream.coin import Coin, Toss
from hardcase_edge.stream.memory import MOST_WINDOWS, Memory
from hardcase_export.to_c.config import config_header
from hardcase_export.to_c.folder import write_c
from hardcase_export.to_c.header import model_header
from hardcase_export.to_c.memory import coin_header, memory_header
from tests.helpers.edge.coins import BELOW, load_mixed
from tests.helpers.edge.streams import layout, loaded, make_program

HARNESS = """
#include "memory.h"
void window(int32_t windows, float tilt, int32_t step, int has_tilt, float spin, int has_spin, int64_t result,
            int64_t *counts, float *moved);
static model_memory_state memory;
static int begun;
void window(int32_t windows, float tilt, int32_t step, int has_tilt, float spin, int has_spin, int64_t result,
            int64_t *counts, float *moved)
{
    model_readings r;
    if (!begun++)
        model_memory_forget(&memory);
    model_memory_begin(&memory, windows);
    r.of_tilt.x_tilt = tilt;
    r.of_tilt.x_step = step;
    if (has_tilt)
        model_memory_see(&memory, MODEL_SENSOR_TILT, &r);
    r.of_gyro.x_spin = spin;
    if (has_spin)
        model_memory_see(&memory, MODEL_SENSOR_GYRO, &r);
    model_memory_read(&memory, &r);
    counts[0] = r.of_memory.x_memory_held;
    counts[1] = r.of_memory.x_memory_since_gyro;
    counts[2] = r.of_memory.x_memory_change_step;
    moved[0] = r.of_memory.x_memory_change_tilt;
    model_memory_end(&memory, result);
    (void)model;
    (void)model_label;
}
"""
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")


TOSS = """
#include "coin.h"
int32_t toss(uint64_t *state);
int32_t toss(uint64_t *state)
{
    model_readings r;
    model_coin_read(state, &r);
    (void)model;
    (void)model_label;
    return r.of_coin.x_coin_draw;
}
"""


def compiled(bundle: Loaded, folder: Path, name: str, header: str, harness: str) -> ctypes.CDLL:
    """The harness over the headers of a bundle, of which this is one."""
    image = Image(bundle.bundle.program)
    files = {
        "hardcase_config.h": config_header(image),
        "model.h": model_header(image, image.pack(), bundle.manifest, "0" * 64),
        name: header,
        "hardcase.h": (FOLDER / "hardcase.h").read_text(),
        "harness.c": harness,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    out = folder / "harness.so"
    command = ["cc", *STRICT, "-shared", "-fPIC", str(folder / "harness.c"), "-o", str(out), "-lm"]
    subprocess.run(command, check=True, timeout=60)
    return ctypes.CDLL(str(out))


def test_the_memory_in_c_is_that_of_python(tmp_path: Path) -> None:
    bundle = loaded()
    header = memory_header(bundle.bundle.program, bundle.manifest, layout())
    window = compiled(bundle, tmp_path, "memory.h", header, HARNESS).window
    rng, memory = np.random.default_rng(0), Memory(make_program(), layout())
    counts, moved = (ctypes.c_int64 * 3)(), (ctypes.c_float * 1)()
    for _ in range(400):
        windows = int(rng.choice([1, 1, 1, 3, MOST_WINDOWS, 2**31 - 1]))
        tilt = float(np.float32(rng.choice([rng.normal(), rng.normal() * 1e30, 3.4e38, -3.4e38, math.nan])))
        step = int(rng.choice([rng.integers(-9, 9), 2**31 - 1, -(2**31) + 1, -(2**31)]))
        spin, has_tilt, has_spin = float(rng.choice([0.5, math.nan])), rng.random() < 0.8, rng.random() < 0.4
        result = int(rng.integers(3))
        memory.begin(windows)
        if has_tilt:
            memory.see({0: [tilt, None if step == -(2**31) else step]})
        if has_spin:
            memory.see({1: [spin]})
        held, since, change, steps = normalise(memory.read(), ["i32", "i32", "f32", "i32"])
        memory.end(result)
        window(
            windows, ctypes.c_float(tilt), step, int(has_tilt), ctypes.c_float(spin), int(has_spin),
            ctypes.c_int64(result), counts, moved,
        )  # fmt: skip
        assert list(counts) == [-(2**31) if x is None else x for x in (held, since, steps)]
        assert math.isnan(moved[0]) if change is None else moved[0] == change


def test_the_coin_in_c_is_that_of_python(tmp_path: Path) -> None:
    bundle = load_mixed()
    header = coin_header(bundle.bundle.program, bundle.manifest, Coin(2, 5, BELOW))
    toss = compiled(bundle, tmp_path, "coin.h", header, TOSS).toss
    for seed in (0, 1, 2**64 - 1):
        state, python = ctypes.c_uint64(seed), Toss(seed)
        assert [toss(ctypes.byref(state)) for _ in range(300)] == [python() for _ in range(300)]


def test_a_folder_of_c_has_the_coin_of_a_mix_and_no_other_folder_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_export.to_c.folder.COMPILER", "no-such-compiler")  # sizes are not what is tested
    for name, bundle in (("mixed", load_mixed()), ("memory", loaded())):
        (tmp_path / name).mkdir()
        write_c(bundle, tmp_path / name)
    assert "MODEL_SENSOR_COIN" in (tmp_path / "mixed" / "coin.h").read_text()
    assert not (tmp_path / "memory" / "coin.h").exists()
