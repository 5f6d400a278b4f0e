# SPDX-License-Identifier: Apache-2.0
"""``memory.h`` remembers as the Python runtime does, to the last bit."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np

from hardcase_edge.bundle.load import Loaded
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program.readings import normalise
from hardcase_edge.stream.memory import MOST_WINDOWS, Memory
from hardcase_export.to_c.config import config_header
from hardcase_export.to_c.header import model_header
from hardcase_export.to_c.memory import memory_header
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


def compiled(bundle: Loaded, folder: Path) -> ctypes.CDLL:
    """The harness over the headers of a bundle."""
    image = Image(bundle.bundle.program)
    files = {
        "hardcase_config.h": config_header(image),
        "model.h": model_header(image, image.pack(), bundle.manifest, "0" * 64),
        "memory.h": memory_header(bundle.bundle.program, bundle.manifest, layout()),
        "hardcase.h": (FOLDER / "hardcase.h").read_text(),
        "harness.c": HARNESS,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    out = folder / "harness.so"
    command = ["cc", *STRICT, "-shared", "-fPIC", str(folder / "harness.c"), "-o", str(out), "-lm"]
    subprocess.run(command, check=True, timeout=60)
    return ctypes.CDLL(str(out))


def test_the_memory_in_c_is_that_of_python(tmp_path: Path) -> None:
    window = compiled(loaded(), tmp_path).window
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
