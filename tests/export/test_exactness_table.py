# SPDX-License-Identifier: Apache-2.0
"""docs/exports.md, cell by cell: what each target promises of each scorer is put to the test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
from hardcase_export.integers.decide import codes_of
from hardcase_export.scorers.parts import parts_of
from hardcase_export.scorers.replay import compare_scores, expected_scores, feeds_of, onnx_runner, tflite_runner
from hardcase_export.to_onnx.scorer import onnx_of
from hardcase_export.to_tflite.int8 import int8_of
from hardcase_export.to_tflite.scorer import tflite_of
from tests.helpers.export.scorer_parts import Case, cases
from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "exports.md"
SCORERS = ("linear", "polynomial", "trees", "stack", "network", "opaque")
PROVED, IN_TFLITE = SCORERS[:5], SCORERS[:4]
HERE = "export/test_exactness_table.py::"
EXACT_ONNX, EXACT_TFLITE = (
    HERE + "test_onnx_gives_the_programs_integers",
    HERE + "test_tflite_gives_the_programs_integers",
)
ORACLE = "edge/session/test_scoring.py::test_every_scorer_agrees_with_the_naive_one_and_keeps_its_bounds"
SESSION, TO_C = "edge/session/test_tflite.py::", "export/to_c/test_folder.py::"
OWN = "export/to_tflite/test_own_model.py::"
KERNEL_TESTS = "edge/kernel/test_kernel.py"
KERNEL = f"{KERNEL_TESTS}::test_golden_and_random_programs_decide_as_the_oracle_under_sanitizers"
BOARDS = "system/test_machines.py::test_random_programs_decide_as_in_python"
# target and scorer: what the page says, and the test that shows it
TO_JS = "export/to_js/test_js.py::test_node_decides_as_python_and_c"
TO_MICROPYTHON = "export/to_micropython/test_micropython.py::test_the_port_for_linux_decides_as_python_and_c"
CELLS = {
    **{("Python", s): ("exact", ORACLE) for s in PROVED},
    ("Python", "opaque"): ("rounded", SESSION + "test_a_real_model_gives_integers_within_what_is_declared"),
    **{("C kernel", s): ("exact", KERNEL) for s in PROVED},
    ("C kernel", "opaque"): ("refused", f"{KERNEL_TESTS}::test_a_model_of_the_users_own_is_refused_by_the_kernel"),
    **{("C export", s): ("exact", BOARDS) for s in PROVED},
    ("C export", "opaque"): ("refused", TO_C + "test_a_program_that_the_kernel_cannot_run_is_refused"),
    **{("JavaScript", s): ("exact", TO_JS) for s in PROVED},
    ("JavaScript", "opaque"): ("refused", f"{KERNEL_TESTS}::test_a_model_of_the_users_own_is_refused_by_the_kernel"),
    **{("MicroPython", s): ("exact", TO_MICROPYTHON) for s in PROVED},
    ("MicroPython", "opaque"): ("refused", f"{KERNEL_TESTS}::test_a_model_of_the_users_own_is_refused_by_the_kernel"),
    **{("ONNX", s): ("exact", EXACT_ONNX) for s in PROVED},
    ("ONNX", "opaque"): ("refused", "export/test_runtimes.py::test_a_users_model_is_no_onnx"),
    **{("TFLite", s): ("exact", EXACT_TFLITE) for s in IN_TFLITE},
    ("TFLite", "network"): ("refused", HERE + "test_a_network_is_no_tflite"),
    ("TFLite", "opaque"): ("0.5 steps", OWN + "test_the_users_file_is_exported_as_it_is_run"),
    ("TFLite int8", "linear"): ("`allowed`", HERE + "test_int8_is_as_near_as_it_says"),
    **{("TFLite int8", s): ("not made", HERE + "test_only_linear_scorers_have_an_int8_form") for s in SCORERS[1:]},
}  # fmt: skip


def check(case: Case, found: np.ndarray) -> int:
    """The rows on which it was compared."""
    wanted, may_score = expected_scores(case.program, case.part, case.rows)
    return compare_scores("file", found, wanted, may_score, 0.0).rows


@pytest.mark.parametrize("kind", PROVED)
def test_onnx_gives_the_programs_integers(kind: str) -> None:
    rows = 0
    for case in cases(kind):
        data = onnx_of(case.program, case.part, case.manifest)
        found = onnx_runner(data)(feeds_of(case.part, case.rows))
        assert found.dtype == np.int64
        rows += check(case, found)
    assert rows > 300


@pytest.mark.parametrize("kind", IN_TFLITE)
def test_tflite_gives_the_programs_integers(kind: str) -> None:
    rows = 0
    for case in cases(kind):
        found = tflite_runner(tflite_of(case.program, case.part))(feeds_of(case.part, case.rows))
        assert found.dtype == np.int64
        rows += check(case, found)
    assert rows > 300


@pytest.mark.parametrize("kind", IN_TFLITE)
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


@pytest.mark.parametrize("test", sorted({test for _, test in CELLS.values()}))
def test_every_cell_has_its_test(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"](../tests/{HERE[:-2]})" in PAGE.read_text(encoding="utf-8"), "the page leads to CELLS, which names it"
