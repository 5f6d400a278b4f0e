# SPDX-License-Identifier: Apache-2.0
"""The kernel in C: compiled strictly, replayed under sanitizers, small, and unmoved by forged images."""

from __future__ import annotations

import random
import re
import shutil
import struct
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import ImageError, InputError, SessionError
from hardcase_edge.kernel import ensembles as ensemble_image
from hardcase_edge.kernel import machine as evaluator
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.machine import KERNEL, PYTHON, VARIABLE, decide, name_of, open_machine
from hardcase_edge.kernel.sources import CONFIG, EXTENSION, FIRMWARE, FOLDER, SERVO
from hardcase_edge.program import definition as d
from hardcase_edge.program.readings import DTYPES, request_bytes
from hardcase_edge.verifier.verify import verify
from tests.golden.make_golden import golden_program
from tests.helpers.edge.c_programs import whole_numbers
from tests.helpers.edge.evaluators import needs_kernel
from tests.helpers.edge.from_spec import World
from tests.helpers.edge.kernel_cases import kernel_cases
from tests.helpers.edge.strategies import as_draft, random_program, random_readings
from tests.helpers.edge.worlds import as_tuple, by_the_pages

HERE = Path(__file__).parent
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# -O0: the optimiser takes nothing from the sanitizers' sight, and the kernel compiles in a sixth of the time
SANITIZED = ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
NETWORK_STACK_BYTES = 512  # more, where a policy has a network
STACK_BYTES = 1024  # of the kernel's functions on the way from hc_next or hc_feed to the deepest, taken together
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is needed: apt install gcc")


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- built by itself


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_the_kernel_compiles_without_a_warning(compiler: str, level: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is needed: apt install {compiler}")
    for source in ("parts.c", "chain.c"):  # the first includes hardcase.c
        run(compiler, *STRICT, level, "-c", FOLDER / source, "-o", tmp_path / "kernel.o")


@needs_gcc
@pytest.mark.parametrize("lanes", [1, 8])
def test_golden_and_random_programs_decide_as_the_oracle_under_sanitizers(lanes: int, tmp_path: Path) -> None:
    data, n = kernel_cases(150)
    (tmp_path / "cases").write_bytes(data)
    sources = [HERE / "replay.c", FOLDER / "hardcase.c"]
    flags = [*STRICT, *SANITIZED, f"-DHC_LANES={lanes}", f"-I{FOLDER}"]
    run("gcc", *flags, *sources, "-o", tmp_path / "replay")
    assert int(run(tmp_path / "replay", tmp_path / "cases")) == n


@needs_gcc
def test_the_chain_decodes_as_all_labels_say_under_sanitizers(tmp_path: Path) -> None:
    flags = [*STRICT, *SANITIZED, f"-I{FOLDER}"]
    run("gcc", *flags, HERE / "chain_cases.c", FOLDER / "chain.c", "-o", tmp_path / "chain")
    assert run(tmp_path / "chain", "20", "3000") == "3000\n"


@needs_gcc
@pytest.mark.parametrize("left_out", ["HC_INLINE | HC_NETWORKS", "HC_INLINE"])
def test_the_kernels_stack_is_small_and_of_fixed_size(left_out: str, tmp_path: Path) -> None:
    for name in FIRMWARE:
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / CONFIG).write_text(f"#define HC_PARTS (HC_ALL_PARTS & ~({left_out}))\n")
    run("gcc", "-std=c99", "-O2", "-fstack-usage", "-c", tmp_path / "hardcase.c", "-o", tmp_path / "hardcase.o")
    used = {}
    for line in (tmp_path / "hardcase.su").read_text().splitlines():
        where, size, kind = line.split("\t")
        name = where.rpartition(":")[2]
        assert kind == "static", f"{name} takes as much stack as it is told to"
        is_asked = name.startswith(("hc_was_", "hc_has_"))  # after deciding
        if "check" not in name and not is_asked:  # before deciding, and left out where images are trusted
            used[name] = int(size)
    assert {"hc_next", "hc_feed_at"} <= set(used)
    assert sum(used.values()) <= STACK_BYTES + NETWORK_STACK_BYTES * ("NETWORKS" not in left_out), used


def test_the_kernels_files_are_listed() -> None:
    def included(*names: str) -> set[str]:
        """These files and all that they include of the kernel's folder."""
        known, todo = set[str](), set(names)
        while todo:
            known.add(name := todo.pop())
            todo |= set(re.findall(r'^#include "(.+)"$', (FOLDER / name).read_text(), re.M)) - known
        return known

    assert included("hardcase.c") == {*FIRMWARE, CONFIG}
    assert included("hardcase_servo.c") == {*SERVO, "hardcase.h"}
    there = {path.name for path in FOLDER.glob("*.[ch]")}
    assert there == included("hardcase.c", "hardcase_servo.c", *EXTENSION)


@pytest.mark.parametrize("name", FIRMWARE)
def test_the_kernel_uses_no_memory_of_its_own_and_no_floating_point(name: str) -> None:
    code = re.sub(r"/\*.*?\*/", "", (FOLDER / name).read_text(), flags=re.S)
    assert not re.search(r"\b(malloc|calloc|free|float|double|goto|static\s+(?!const|inline)\w+\s+\w+\s*[;=])\b", code)


# ---------------------------------------------------------------- images


def boosted(n_trees: int, depth: int, n_features: int = 52, seed: int = 0) -> d.Program:
    """Complete trees over whole-numbered readings, as a booster on digits gives them."""
    rng = random.Random(seed)
    n = 2**depth - 1
    trees = tuple(
        d.Tree(
            0, 1, tuple(rng.randrange(n_features) for _ in range(n)),
            tuple(rng.randrange(12) - d.CODE_MAX for _ in range(n)), (True,) * n, (),
            tuple(rng.randint(-d.CODE_MAX, d.CODE_MAX) for _ in range(n + 1)),
        )
        for _ in range(n_trees)
    )  # fmt: skip
    columns = tuple(d.Column(f, d.Rank(tuple(range(2, 14)))) for f in range(n_features))
    features = (d.Feature("i32"),) * n_features
    nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 1)))
    scorers = (d.Trees(tuple(range(n_features)), (0,), trees),)
    return d.Program(features, (d.Sensor(tuple(range(n_features)), (0,)),), d.Uplink(), columns, scorers, nodes, 2)


@pytest.mark.parametrize(("n_trees", "depth", "most"), [(100, 4, 8_000), (300, 5, 48_000)])
def test_an_image_is_compact(n_trees: int, depth: int, most: int) -> None:
    assert len(make_image(boosted(n_trees, depth))) <= most


@needs_kernel
@pytest.mark.parametrize("growth", [0.0, 1000.0], ids=["pointers", "heaps"])
def test_layouts_differ_in_nothing_but_speed(growth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble_image, "HEAP_GROWTH", growth)
    rng = random.Random(0)
    for seed in range(150):
        p = random_program(seed, seed % 4)
        machine = open_machine(p, KERNEL)
        readings = random_readings(rng, p)
        held = [None if isinstance(x, float) and x != x else x for x in readings]
        assert as_tuple(decide(machine, readings)) == by_the_pages(p, World(held))


def open_image(image: bytes, p: d.Program) -> Any:
    """The extension's own object, of bytes that claim to be this program's image."""
    from hardcase_edge.kernel import _kernel

    codes = [bytes(DTYPES[p.features[f].dtype].number for f in s.features) for s in p.sensors]
    sensors = tuple(zip(codes, [s.features for s in p.sensors], strict=True))
    uplink = bytes(DTYPES[p.features[f].dtype].number for f in p.uplink.features)
    helpers = (object, object, object, ValueError, lambda *_: None, ("local", "cloud", "degraded"), p.n_classes)
    return _kernel.Image(image, len(p.features), sensors, uplink, helpers)


@needs_kernel
@settings(max_examples=100)
@given(st.integers(0, 2**20), st.integers(1, 255))
def test_a_cut_image_is_refused_and_a_damaged_one_at_least_harmless(at: int, flip: int) -> None:
    p = golden_program()
    image = bytearray(make_image(p))
    with pytest.raises(ValueError, match="no image that this kernel runs"):
        open_image(bytes(image[: at % len(image)]), p)
    image[at % len(image)] ^= flip
    try:
        opened = open_image(bytes(image), p)
    except ValueError:
        return
    assert opened.session() is not None


@needs_kernel
@pytest.mark.parametrize("word", [2, 1 | 63 << 8, 1 | 193 << 8, 1 | 1 << 16])
def test_a_shift_that_no_value_has_is_refused(word: int) -> None:
    program = whole_numbers(0)
    image = bytearray(make_image(program))
    at = len(image) - 4 * (len(program.nodes) + 4)
    assert struct.unpack_from("<i", image, at) == (1,)
    struct.pack_into("<i", image, at, word)
    with pytest.raises(ValueError, match="no image that this kernel runs"):
        open_image(bytes(image), program)


# ---------------------------------------------------------------- which evaluator serves


def opaque_program() -> d.Program:
    p = golden_program()
    blob = d.Opaque((0,), b"TFL3", (-5,), (5,))
    return replace(p, scorers=(*p.scorers, blob))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        pytest.param(
            lambda: open_image(make_image(boosted(2, 2)), golden_program()), ValueError, "of another program",
            marks=needs_kernel, id="another-program",
        ),
        pytest.param(
            lambda: make_image(as_draft(golden_program(), random.Random(0))), ImageError, "this is a draft", id="draft"
        ),
        pytest.param(
            lambda: make_image(opaque_program()), ImageError, "scorer 4 is a TFLite model, which runs in Python only",
            id="model-of-the-users-own",
        ),
    ],
)  # fmt: skip
def test_what_the_kernel_cannot_run_is_refused(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_an_unknown_evaluator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "fortran")
    with pytest.raises(InputError, match=r"HARDCASE_EVALUATOR is 'fortran'; set it to kernel or python"):
        open_machine(golden_program())


def test_without_the_extension_python_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "hardcase_edge.kernel._kernel", None)
    monkeypatch.delattr("hardcase_edge.kernel._kernel", raising=False)
    monkeypatch.delitem(sys.modules, "hardcase_edge.kernel.compiled", raising=False)
    monkeypatch.setattr(evaluator, "_compiled", evaluator._compiled.__wrapped__)  # as in a process that has not looked
    assert name_of(open_machine(golden_program())) == PYTHON
    with pytest.raises(InputError, match="was not built"):
        open_machine(golden_program(), KERNEL)


def test_an_extension_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = type(sys)("hardcase_edge.kernel._kernel")  # such as one that an upgrade of the package left behind
    stale.Image = None  # type: ignore[attr-defined]
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "hardcase_edge.kernel._kernel", stale)
    monkeypatch.setattr("hardcase_edge.kernel._kernel", stale, raising=False)
    monkeypatch.delitem(sys.modules, "hardcase_edge.kernel.compiled", raising=False)
    monkeypatch.setattr(evaluator, "_compiled", evaluator._compiled.__wrapped__)
    assert name_of(open_machine(golden_program())) == PYTHON


# ---------------------------------------------------------------- rows in buffers, and memory


@needs_kernel
class Hostile:
    """Raises when it is taken for an integer."""

    def __index__(self) -> int:
        raise RuntimeError("no integer")


REPLIES = [
    ([0, 5], None), ((1, 5), None), ((True, 5), None), ("ab", TypeError), (5, TypeError),
    ((), TypeError), ((1,), TypeError), ((1, 2, 3), TypeError), ({}, TypeError), ((0.5, 5), TypeError),
    ((0, 5.0), TypeError), ((None, 5), TypeError), (("0", 5), TypeError), ((Hostile(), 5), RuntimeError),
    ((0, Hostile()), RuntimeError), ((0, -1), SessionError), ((0, 10_001), SessionError), ((-1, 5), SessionError),
    ((2, 5), SessionError), ((2**63, 5), SessionError), ((0, 2**200), SessionError), ((-(2**200), 0), SessionError),
]  # fmt: skip


@pytest.mark.parametrize("name", [PYTHON, pytest.param(KERNEL, marks=needs_kernel)])
@pytest.mark.parametrize(("reply", "error"), REPLIES, ids=map(str, range(len(REPLIES))))
def test_a_reply_of_any_shape_is_taken_or_refused_in_one_line(name: str, reply: Any, error: type | None) -> None:
    sensor, up = d.Sensor((0,), (1,)), d.Uplink(request_bytes(["f32"]), (0,))
    program = d.Program(
        (d.Feature("f32"),), (sensor,), up, (), (d.Trees((), (0, 0), ()),),
        (d.Forward((0,), 1), d.Answer(d.Slice(0, 0, 2))), 2, costs=d.Costs(1),
    )  # fmt: skip
    machine = open_machine(program, name)
    for answer in [lambda: decide(machine, [1.0], reply), lambda: step(machine, reply)]:
        if error is None:
            decision = answer()
            assert (decision.route, decision.confidence, type(decision.result)) == ("cloud", 5, int)
        else:
            with pytest.raises(error) as caught:
                answer()
            assert "\n" not in str(caught.value)


def step(machine: Any, reply: Any) -> Any:
    """A decision step by step, as ``decide`` makes it at once."""
    session = machine.session()
    session.next_action()
    session.feed({0: [1.0]})
    session.next_action()
    session.reply(*reply)
    return session.next_action()


def test_a_row_in_a_buffer_decides_as_a_list() -> None:
    p = boosted(20, 3, n_features=8)
    verify(p)
    machine, rng = open_machine(p, KERNEL), random.Random(1)
    for _ in range(50):
        row = [rng.randrange(16) for _ in range(8)]
        expected = decide(open_machine(p, PYTHON), row)
        for given_row in (row, tuple(row), array("i", row), range(0)):
            if isinstance(given_row, range):
                assert decide(machine, given_row).cost == 0, "a row too short: the sensor has failed"
            else:
                assert decide(machine, given_row) == expected
    with pytest.raises(ValueError, match="a row of 28 bytes, 32 aligned to 8"):
        decide(machine, array("i", [0] * 7))


@needs_kernel
@pytest.mark.parametrize("dtype", ["i32", "f32", "f64"])
def test_a_row_in_a_buffer_of_another_type_is_not_read_as_the_bits_of_this_one(dtype: str) -> None:
    feature, tree = d.Feature(dtype), d.Tree(0, 1, (0,), (-d.CODE_MAX,), (True,), (), (-5, 5))
    p = d.Program(
        (feature, feature), (d.Sensor((0, 1), (1,)),), d.Uplink(), (d.Column(0, d.Rank((20,))),),
        (d.Trees((0,), (0,), (tree,)),), (d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 1))), 2,
    )  # fmt: skip
    machines = [open_machine(p, PYTHON), open_machine(p, KERNEL)]
    for low, high in ((19, 21), (20, 22)):
        rows = [array(code, [x, 7]) for code in "bhilqfd" for x in (low, high)]
        rows += [np.array([[x, 7], [0, 0]], t)[0] for t in ("i2", "i4", "i8", "f2", "f4", "f8") for x in (low, high)]
        rows += [np.array([[x, 0], [7, 0]], np.float32)[:, 0] for x in (low, high)]
        for machine in machines:
            assert [decide(machine, row).result for row in rows] == [0, 1] * (len(rows) // 2)


@needs_kernel
def test_sessions_leave_no_memory_behind() -> None:
    machine = open_machine(golden_program(), KERNEL)

    def play(n: int) -> None:
        for _ in range(n):
            session = machine.session(budget=10**9, dead=[2])
            session.next_action()
            session.feed({0: [1.5]})
            session.next_action()
            decide(machine, [1.5, 2.0, 3, None], reply=(1, 9))

    play(100)
    before = sys.getallocatedblocks()
    play(2000)
    assert sys.getallocatedblocks() - before < 200
