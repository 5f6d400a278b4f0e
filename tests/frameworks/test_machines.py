# SPDX-License-Identifier: Apache-2.0
"""Answers that are equal everywhere: random programs and golden cases on every processor that can be emulated here.

The device's Python program and its wheels are in ``test_wheels.py``.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program.window import window_features
from hardcase_export.to_c import folder as c_size
from hardcase_export.to_c.boards import BOARDS, COMPILER, EMULATOR, FILES
from hardcase_export.to_c.folder import write_c
from tests.golden.make_golden import cases_of, golden_program, manifest_of
from tests.helpers.edge.c_programs import random_cases, whole_numbers, write_programs
from tests.helpers.edge.machines import ROOT, TARGETS, Target
from tests.helpers.edge.strategies import random_program
from tests.helpers.export.inline import edge_rows, plain_ensembles, random_ensembles, write_unrolled
from tests.helpers.tools import need

N_PROGRAMS, N_CASES = 80, 6


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Random programs of every size, replayed by one executable."""
    programs = [random_program(seed, seed % 6) for seed in range(N_PROGRAMS - 4)] + [whole_numbers(k) for k in range(4)]
    plain = Image(programs[-1]).pack()
    (sensors,) = struct.unpack_from("<I", plain, 4 * 11)
    assert struct.unpack_from("<I", plain, sensors + 4 * 9) == (3,)
    cases = [random_cases(p, seed, N_CASES) for seed, p in enumerate(programs)]
    routes = {c.expected.route for some in cases for c in some}
    assert routes == {"local", "cloud", "degraded"}
    return write_programs(tmp_path_factory.mktemp("programs"), list(zip(programs, cases, strict=True)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_random_programs_decide_as_in_python(target: Target, sources: list[Path], tmp_path: Path) -> None:
    target.need()
    program = target.compile(sources, tmp_path / "programs", "-Os", f"-I{FILES}", f"-I{FOLDER}")
    assert target.run(program).split() == [str(N_CASES)] * N_PROGRAMS


@pytest.fixture(scope="module", params=["mixed-sensors", "plain-sensors"])
def unrolled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Random ensembles as code."""
    mixed = request.param == "mixed-sensors"
    program = random_ensembles(1, 20) if mixed else plain_ensembles(1, "i32", "f32", "f64")
    rows = edge_rows(random.Random(2), program, 60)
    return write_unrolled(tmp_path_factory.mktemp("unrolled"), program, rows)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_unrolled_ensembles_score_as_the_oracle(target: Target, unrolled: list[Path], tmp_path: Path) -> None:
    target.need()
    program = target.compile(unrolled, tmp_path / "unrolled", "-Os")
    right, of, all_ = target.run(program).split()
    assert (right, of) == (all_, "of")
    assert int(all_) > 1000


WINDOWS = """
#include <stdio.h>
#include <string.h>
#include "window.h"

static const double samples[] = {%s};
static const int lengths[] = {%s};

static double sample(const void *from, size_t k) { return ((const double *)from)[k]; }

int main(void)
{
    const double *at = samples;
    for (size_t w = 0; w < sizeof lengths / sizeof *lengths; at += lengths[w++]) {
        double features[4];
        uint64_t bits[4];
        window_features(sample, at, (size_t)lengths[w], features);
        memcpy(bits, features, sizeof bits);
        for (int f = 0; f < 4; f++)
            printf("%%08lx%%08lx ", (unsigned long)(bits[f] >> 32), (unsigned long)(bits[f] & 0xFFFFFFFF));
    }
    return 0;
}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_a_window_has_the_features_of_training_bit_for_bit(target: Target, tmp_path: Path) -> None:
    target.need()
    rng = random.Random(3)
    windows = [[rng.gauss(rng.choice([0, 1e9]), rng.choice([1e-3, 40])) for _ in range(n)] for n in (2, 3, 60, 500)]
    numbers = ", ".join(x.hex() for window in windows for x in window)
    source = tmp_path / "windows.c"
    source.write_text(WINDOWS % (numbers, ", ".join(str(len(w)) for w in windows)))
    program = target.compile([source], tmp_path / "windows", "-O2", "-ffp-contract=fast", f"-I{FILES}")
    expected = [struct.pack(">d", x).hex() for window in windows for x in window_features(window)]
    assert target.run(program).split() == expected


@pytest.fixture(scope="module", params=["golden", "code"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bundle as a user has it: the golden one, and one of all types whose ensembles are code."""
    program = golden_program() if request.param == "golden" else random_program(454, 4)
    data = pack_bundle(Bundle(manifest_of(program).to_json(), program, cases_of(program, 64)))
    out = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c_size, "COMPILER", "no-such-compiler")
        made = write_c(load_bytes(data), out, inline=request.param == "code")
    assert bool(made.inlined) == (request.param == "code")
    return out


@pytest.mark.parametrize(
    ("goal", "tools"),
    [
        *[pytest.param(b.machine, (COMPILER, EMULATOR), id=b.machine) for b in BOARDS],
        pytest.param("aarch64", ("aarch64-linux-gnu-gcc", "qemu-aarch64"), id="aarch64"),
        pytest.param("armhf", ("arm-linux-gnueabihf-gcc", "qemu-arm"), id="armhf"),
    ],
)
def test_the_makefile_of_an_export_passes_its_golden_cases(goal: str, tools: tuple[str, ...], folder: Path) -> None:
    need("make", *tools)
    done = subprocess.run(
        ["make", "-s", "-C", str(folder), goal], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "64 of 64 golden cases are right" in done.stdout


def test_an_emulator_counts_the_instructions_of_a_decision(folder: Path) -> None:
    need("make", COMPILER, EMULATOR)
    command = ["make", "-s", "-C", str(folder), "PROGRAM=count", "mps2-an385"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    count, _, rest = done.stdout.splitlines()[-1].partition(" ")
    assert rest == "instructions a decision, the mean of 64 golden cases"
    assert 500 < int(count) < 5000


# ---------------------------------------------------------------- what is left out


def run_without_tools(**environment: str) -> subprocess.CompletedProcess[str]:
    """One test of the Cortex-M0, on a machine that has no compilers."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "mixed and cortex-m0"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": "", "CI": "", **environment},
    )  # fmt: skip


def test_a_test_without_its_tools_is_named_at_the_end_with_how_to_have_them() -> None:
    done = run_without_tools()
    assert done.returncode == 0, done.stdout
    end = done.stdout.partition("left out on this machine")[2]
    assert "1 test: arm-none-eabi-gcc and qemu-system-arm: apt install gcc-arm-none-eabi libnewlib" in end
    assert "make toolchains" in end


def test_where_nothing_may_be_left_out_it_fails() -> None:
    done = run_without_tools(CI="true")
    assert done.returncode == 1
    assert "nothing may be left out here (CI=true): arm-none-eabi-gcc" in done.stdout
