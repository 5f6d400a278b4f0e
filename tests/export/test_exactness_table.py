# SPDX-License-Identifier: Apache-2.0
"""docs/exports.md, cell by cell: what each target promises of each scorer is put to the test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import (
    Acquire,
    Affine,
    Answer,
    Column,
    Feature,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.tflite import open_interpreter
from hardcase_export.drafts.rows import Rows
from hardcase_export.integers.decide import codes_of
from hardcase_export.scorers.parts import parts_of
from hardcase_export.scorers.replay import compare_scores, expected_scores, feeds_of, onnx_runner, tflite_runner
from hardcase_export.targets import Source, targets
from hardcase_export.to_onnx.scorer import onnx_of
from hardcase_export.to_tflite.int8 import int8_of
from hardcase_export.to_tflite.scorer import tflite_of
from tests.helpers.export.scorer_parts import Case, cases
from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "exports.md"
SCORERS = ("linear", "polynomial", "trees", "stack", "network", "opaque")
PROVED = SCORERS[:5]
TARGETS = targets()
MODEL_FILES = {"onnx": onnx_runner, "tflite": tflite_runner}  # of targets that write a file for each part
MADE = [(name, kind) for name in MODEL_FILES for kind in PROVED if kind in TARGETS[name].allowed]
ROWS = {"C export": "c", "JavaScript": "js", "MicroPython": "micropython", "ONNX": "onnx", "TFLite": "tflite"}
AS_C = ("arduino", "esphome", "zephyr")  # they hold what the C export holds, and have no row
HERE = "export/test_exactness_table.py::"
EXACT_FILES = HERE + "test_a_targets_files_give_the_programs_integers"
ORACLE = "edge/session/test_scoring.py::test_every_scorer_agrees_with_the_naive_one_and_keeps_its_bounds"
SESSION, TO_C = "edge/session/test_tflite.py::", "export/to_c/test_folder.py::"
OWN = "export/to_tflite/test_own_model.py::"
KERNEL_TESTS = "edge/kernel/test_kernel.py"
KERNEL = f"{KERNEL_TESTS}::test_golden_and_random_programs_decide_as_the_oracle_under_sanitizers"
BOARDS = "frameworks/test_machines.py::test_random_programs_decide_as_in_python"
# target and scorer: what the page says, and the test that shows it
TO_JS = "export/to_js/test_js.py::test_node_decides_as_python_and_c"
TO_MICROPYTHON = "frameworks/micropython/test_micropython.py::test_the_port_for_linux_decides_as_python_and_c"
CELLS = {
    **{("Python", s): ("exact", ORACLE) for s in PROVED},
    ("Python", "opaque"): ("rounded", SESSION + "test_a_real_model_gives_integers_within_what_is_declared"),
    **{("C kernel", s): ("exact", KERNEL) for s in PROVED},
    ("C kernel", "opaque"): ("refused", f"{KERNEL_TESTS}::test_what_the_kernel_cannot_run_is_refused"),
    **{("C export", s): ("exact", BOARDS) for s in PROVED},
    ("C export", "opaque"): ("refused", TO_C + "test_a_program_that_the_kernel_cannot_run_is_refused"),
    **{("JavaScript", s): ("exact", TO_JS) for s in PROVED},
    ("JavaScript", "opaque"): ("refused", f"{KERNEL_TESTS}::test_what_the_kernel_cannot_run_is_refused"),
    **{("MicroPython", s): ("exact", TO_MICROPYTHON) for s in PROVED},
    ("MicroPython", "opaque"): ("refused", f"{KERNEL_TESTS}::test_what_the_kernel_cannot_run_is_refused"),
    **{("ONNX", s): ("exact", EXACT_FILES) for s in PROVED},
    ("ONNX", "opaque"): ("refused", "export/test_runtimes.py::test_a_users_model_is_no_onnx"),
    **{("TFLite", s): ("exact", EXACT_FILES) for s in SCORERS[:4]},
    ("TFLite", "network"): ("refused", HERE + "test_a_network_is_no_tflite"),
    ("TFLite", "opaque"): ("0.5 steps", OWN + "test_the_users_file_is_exported_as_it_is_run"),
    ("TFLite int8", "linear"): ("`allowed`", HERE + "test_int8_is_as_near_as_it_says"),
    **{("TFLite int8", s): ("not made", HERE + "test_only_linear_scorers_have_an_int8_form") for s in SCORERS[1:]},
}  # fmt: skip


def check(case: Case, found: np.ndarray, allowed: float = 0.0) -> int:
    """The rows on which it was compared."""
    wanted, may_score = expected_scores(case.program, case.part, case.rows)
    return compare_scores("file", found, wanted, may_score, allowed).rows


def file_of(target: str, case: Case) -> bytes:
    """What a target makes of the part; it compares the file itself on two rows without readings."""
    program = replace(case.program, nodes=(case.program.nodes[case.part.nodes[0]],))
    rows = Rows(np.full((2, len(program.features)), np.nan), np.zeros(2), np.zeros(2), np.zeros(2, np.int64))
    quantised = SimpleNamespace(program=program)
    point = SimpleNamespace(quantised=quantised, manifest=case.manifest, test=rows, valid=rows)
    build = SimpleNamespace(front=SimpleNamespace(legacy=True))  # whose f0 is no file
    built: Any = SimpleNamespace(build=build, point=point)
    nothing: Any = None
    files = TARGETS[target].make(Source(b"", nothing, None, built), Path(), frozenset()).files
    return next(data for name, data in files.items() if "int8" not in name)


@pytest.mark.parametrize(("target", "kind"), MADE)
def test_a_targets_files_give_the_programs_integers(target: str, kind: str) -> None:
    rows = 0
    for case in cases(kind)[:45]:
        found = MODEL_FILES[target](file_of(target, case))(feeds_of(case.part, case.rows))
        assert found.dtype == np.int64
        rows += check(case, found, TARGETS[target].allowed[kind])
    assert rows > 300


@pytest.mark.parametrize("kind", SCORERS[:4])
def test_tflite_runtime_gives_them_too(kind: str, tmp_path: Path) -> None:
    """The interpreter for 32-bit ARM; beside numpy 2 it cannot be, so a process of its own runs it."""
    runtime = ROOT / "build" / "tflite-runtime"
    if not runtime.exists():
        pytest.skip("tflite-runtime, which needs numpy 1: make toolchains")
    for k, case in enumerate(cases(kind)):
        (tmp_path / f"{k}.tflite").write_bytes(tflite_of(case.program, case.part))
        np.savez(tmp_path / f"{k}.npz", **feeds_of(case.part, case.rows))
    command = [sys.executable, str(ROOT / "tests" / "helpers" / "export" / "tflite_rows.py"), str(tmp_path)]
    beside = {**os.environ, "PYTHONPATH": str(runtime)}
    done = subprocess.run(command, env=beside, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(check(case, np.load(tmp_path / f"{k}.npy")) for k, case in enumerate(cases(kind))) > 300


def test_a_network_is_no_tflite() -> None:
    case = cases("network")[0]
    with pytest.raises(InputError, match="is of kind Network, which TFLite cannot hold yet"):
        tflite_of(case.program, case.part)


# ---------------------------------------------------------------- int8


def linear_program(seed: int, n: int = 6, width: int = 3) -> tuple[Program, np.ndarray]:
    """A linear scorer as training makes it, some features far from zero, and rows with some readings missing."""
    rng = np.random.default_rng(seed)
    features = tuple(Feature("f32" if k % 3 else "i32", nullable=True) for k in range(n))
    centre, spread = rng.choice([0.0, 3.0, 2000.0], n), rng.choice([0.5, 40.0], n)
    X = rng.normal(centre, spread, (400, n))
    X[:, ::3] = np.rint(X[:, ::3])
    columns = []
    for f in range(n):
        frac, shift = 12, 24
        mul = round(2048 / spread[f] * 2 ** (shift - frac))
        columns.append(Column(f, Affine(frac, mul, (1 << shift >> 1) - round(centre[f] * 2**frac) * mul, shift)))
    weights = rng.integers(-2000, 2001, (width, n + 1))
    scorer = Polynomial(
        columns=tuple(range(n)),
        substitutes=(0,) * n,
        constant=2048,
        terms=tuple((k,) for k in range(n + 1)),
        weights=tuple(map(tuple, weights.tolist())),
        bias=tuple(rng.integers(-(10**6), 10**6, width).tolist()),
    )
    nodes = (Acquire((0,), 1, 1), Answer(Slice(0, 0, width)))
    X[rng.random(X.shape) < 0.05] = np.nan
    return Program(features, (Sensor(tuple(range(n)), (1,)),), Uplink(), tuple(columns), (scorer,), nodes, width), X


@pytest.mark.parametrize("seed", range(5))
def test_int8_is_as_near_as_it_says(seed: int) -> None:
    program, X = linear_program(seed)
    (part,) = parts_of(program)
    dtypes = [f.dtype for f in program.features]
    seen = [normalise(row, dtypes) for row in X[:200].tolist()]
    small = int8_of(program, part, codes_of(program, seen))
    assert small is not None
    extremes = np.random.default_rng(seed).choice([0, 1e9, -1e9, 3e38, np.nan, -7.0], X.shape)
    rows = [normalise(row, dtypes) for row in [*X[200:].tolist(), *extremes[:100].tolist()]]
    found = tflite_runner(small.data)(feeds_of(part, rows))
    assert found.dtype == np.float32
    off = np.abs(found - small.expected(codes_of(program, rows))).max()
    assert 0 < off <= small.allowed
    span = small.range[1] - small.range[0]
    assert small.allowed < 0.1 * span, "a bound that says nothing is none"
    wanted, _ = expected_scores(program, part, rows[:200])
    assert (found[:200].argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.9


def test_only_linear_scorers_have_an_int8_form() -> None:
    for kind in PROVED[1:]:
        for case in cases(kind)[:20]:
            assert int8_of(case.program, case.part, codes_of(case.program, case.rows)) is None


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_the_same_part_gives_the_same_bytes(kind: str) -> None:
    case = cases(kind)[0]
    assert onnx_of(case.program, case.part, case.manifest) == onnx_of(case.program, case.part, case.manifest)
    assert tflite_of(case.program, case.part) == tflite_of(case.program, case.part)


def test_a_tflite_file_is_known_by_its_signature() -> None:
    case = next(c for c in cases("trees") if len(c.part.inputs) == 3)
    interpreter = open_interpreter(tflite_of(case.program, case.part))
    feeds = {name: values[:1] for name, values in feeds_of(case.part, case.rows).items()}
    said = interpreter.get_signature_runner("serving_default")(**feeds)
    wanted, _ = expected_scores(case.program, case.part, case.rows[:1])
    assert said["scores"].tolist() == wanted.tolist()


# ---------------------------------------------------------------- the page


def table() -> dict[tuple[str, str], str]:
    """The cells of the page's first table."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    end = next((k for k, row in enumerate(rows) if k > 1 and row[0] == "target"), len(rows))
    header = rows[0]
    assert header[:7] == ["target", *SCORERS]
    return {
        (row[0], s): cell for row in rows[2:end] if len(row) >= 7 for s, cell in zip(SCORERS, row[1:], strict=False)
    }


def test_the_page_says_what_is_tested_and_nothing_else() -> None:
    said = {key: re.sub(r"\[\^?\d+\]", "", cell).strip() for key, cell in table().items()}
    assert said == {key: word for key, (word, _) in CELLS.items()}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_declares_what_its_cells_say(name: str) -> None:
    (row,) = ["C export"] if name in AS_C else [row for row, target in ROWS.items() if target == name]
    words = {kind: f"{steps:g} steps" if steps else "exact" for kind, steps in TARGETS[name].allowed.items()}
    assert {s: words.get(s, "refused") for s in SCORERS} == {s: CELLS[row, s][0] for s in SCORERS}


@pytest.mark.parametrize("test", sorted({test for _, test in CELLS.values()}))
def test_every_cell_has_its_test(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"](../tests/{HERE[:-2]})" in PAGE.read_text(encoding="utf-8"), "the page leads to CELLS, which names it"
