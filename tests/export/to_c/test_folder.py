# SPDX-License-Identifier: Apache-2.0
"""A bundle as C: what is written, that hostile names are only names, and that nothing is half-done or lost."""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase.verbs import export
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.golden import GoldenCase, run_case
from hardcase_edge.bundle.load import Loaded, load_bundle, load_bytes
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.kernel.image import KERNEL_BYTES, Image
from hardcase_edge.kernel.sources import FOLDER
from hardcase_edge.program.cost import with_start
from hardcase_edge.program.definition import Opaque, Trees
from hardcase_export.to_c import folder as c_size
from hardcase_export.to_c.boards import BOARDS, FILES
from hardcase_export.to_c.config import config_header, parts_of
from hardcase_export.to_c.folder import golden_header, own_files, write_c
from hardcase_export.to_c.header import words
from hardcase_export.to_c.names import array, identifiers, literal
from tests.golden.make_golden import GOLDEN, cases_of, golden_program, manifest_of
from tests.helpers.edge.c_programs import random_cases, write_programs
from tests.helpers.edge.kernel_cases import write_kernel
from tests.helpers.edge.machines import STRICT, TARGETS
from tests.helpers.edge.strategies import random_program
from tests.helpers.export.builds import make_build
from tests.helpers.export.inline import random_ensembles
from tests.helpers.tools import need

pytestmark = pytest.mark.usefixtures("no_compiler")  # sizes are bounds, but where they are the test
HOSTILE = (
    'a"; int main(void){return 1;} /*',
    "*/ #error out",
    "??/\n#error trigraph",
    "line\r\nend \\",
    "int",
    "\0",
    "é☃\U0001f4a9",
)


def run(verb, *argv):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return verb.run(parser.parse_args([str(a) for a in argv]))


def loaded_with(features=None, sensors=None, classes=None) -> Loaded:
    """The golden program under other names."""
    program = golden_program()
    manifest = manifest_of(program)
    manifest = replace(
        manifest,
        features=features or manifest.features,
        sensors=sensors or manifest.sensors,
        classes=classes or manifest.classes,
    )
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program, cases_of(program, 8))))


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return make_build(tmp_path_factory.mktemp("c") / "build")


@pytest.fixture(scope="module")
def exported(build, tmp_path_factory):
    """The folder of a build's point, as a user has it."""
    out = tmp_path_factory.mktemp("c") / "out"
    assert run(export, build, "--max-loss", 0.1, "--c", out) == 0
    return out


@pytest.fixture(scope="module")
def tested(exported):
    """What the selftest of that folder prints, which stays there."""
    return make(exported)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    need("make", "cc")
    command = ["make", "-s", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


# ---------------------------------------------------------------- names


@given(st.lists(st.text(max_size=60) | st.sampled_from(HOSTILE), max_size=8))
@settings(max_examples=100)
def test_identifiers_are_c_and_all_different(names: list[str]) -> None:
    made = identifiers("x_", names)
    assert all(re.fullmatch(r"x_[A-Za-z0-9_]{1,60}", m, re.ASCII) for m in made)
    assert len({m.lower() for m in made}) == len(names)


@given(st.text() | st.sampled_from(HOSTILE))
@settings(max_examples=100)
def test_a_literal_holds_its_text_and_nothing_that_a_compiler_could_read(text: str) -> None:
    made = literal(text)
    assert re.fullmatch(r'"([^"\\?\x00-\x1f\x7f-\U0010ffff]|\\[0-7]{3})*"', made)
    back = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), made[1:-1].encode("ascii"))
    assert back == text.encode("utf-8", "surrogatepass")


def test_hostile_names_compile_and_come_out_as_they_are(tmp_path: Path) -> None:
    need("cc")
    loaded = loaded_with(features=HOSTILE[:4], sensors=HOSTILE[4:7], classes=(HOSTILE[0], HOSTILE[2]))
    sky = {loaded.manifest.features[0]: (*HOSTILE, "rain")}
    write_c(replace(loaded, manifest=replace(loaded.manifest, categories=sky)), tmp_path)
    assert "such as MODEL_CODE_" in (tmp_path / "model.h").read_text()
    assert f"_RAIN = {len(HOSTILE)},\n" in (tmp_path / "model.h").read_text()
    (tmp_path / "names.c").write_text(
        '#include "model.h"\n#include "sensors.h"\n'
        "const char *label(int k);\n"
        "const char *label(int k) { (void)read_sensor; (void)model; return model_label(k); }\n"
    )
    command = ["cc", *STRICT, "-shared", "-fPIC", str(tmp_path / "names.c"), "-o", str(tmp_path / "names.so")]
    subprocess.run(command, check=True, timeout=60)
    label = ctypes.CDLL(str(tmp_path / "names.so")).label
    label.restype = ctypes.c_char_p
    assert [label(k) for k in range(2)] == [c.encode() for c in loaded.manifest.classes]
    assert [label(k) for k in (-1, 2)] == [b"", b""]


# ---------------------------------------------------------------- the folder


def test_a_newcomers_way_to_a_first_decision(exported: Path, tested) -> None:
    loaded = load_bundle(exported / "model.hcb")
    n = len(loaded.bundle.golden)
    assert (tested.returncode, tested.stdout) == (0, f"{n} of {n} golden cases are right\n"), tested.stderr
    first = loaded.bundle.golden[0]
    expected = run_case(loaded.machine, GoldenCase(first.readings, (), None, 1, False, None, first.expected))
    decided = make(exported, "PROGRAM=main").stdout
    label = loaded.manifest.classes[int(expected.result)]
    assert decided == f"{label} ({expected.result}), {expected.confidence} of 10000 sure\n"


def test_the_readme_shows_a_main_of_twenty_lines_that_is_the_one_that_compiles(exported: Path) -> None:
    example = (exported / "main.c").read_text()
    assert len(example.splitlines()) <= 20
    page = (exported / "README.md").read_text()
    assert f"```c\n{example}```" in page
    assert "$" not in page
    for name in re.findall(r"`([\w.]+\.[ch])`", page):
        assert (exported / name).exists() or name in ("inline.c", "window.h")


def test_a_bundle_and_its_build_give_the_same_sources(build: Path, exported: Path, tmp_path: Path) -> None:
    assert run(export, exported / "model.hcb", "--c", tmp_path / "out", "--json") == 0
    for path in (tmp_path / "out").iterdir():
        assert path.is_dir() or path.read_bytes() == (exported / path.name).read_bytes(), path.name


def test_the_selftest_sees_a_wrong_answer(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    bundle = load_bundle(folder / "model.hcb").bundle
    changes = ({"cost": -1}, {"trace": (0,)}, {"sensors": ()}, {"result": 9}, {"confidence": 1}, {"route": "cloud"})
    cases = [c for c in bundle.golden if c.expected.route == "local" and c.expected.sensors]
    for k, change in enumerate(changes, start=3):
        cases[k] = replace(cases[k], expected=replace(cases[k].expected, **change))
    (folder / "golden.h").write_text(golden_header(bundle.program, cases))
    tested = make(folder)
    assert tested.returncode != 0
    assert tested.stdout == f"{len(cases) - 6} of {len(cases)} golden cases are right\nthe first that is not: case 3\n"


def test_what_was_there_stays_if_something_fails(exported: Path, tmp_path: Path, monkeypatch) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    monkeypatch.setattr("hardcase_export.to_c.folder.measure", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(export, exported / "model.hcb", "--c", folder)
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    assert (folder / "model.h").exists()
    with pytest.raises(ZeroDivisionError):
        run(export, exported / "model.hcb", "--c", tmp_path / "new")
    assert {p.name for p in tmp_path.iterdir()} == {"out"}


def test_inline_says_if_it_unrolled_nothing(exported: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(c_size, "MAX_INLINE_NODES", 0)
    assert run(export, exported / "model.hcb", "--c", tmp_path / "code", "--inline") == 0
    assert "  unrolled   nothing: no scorer has trees that are neither too large" in capsys.readouterr().out


def test_what_a_user_wrote_into_a_folder_is_kept(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    (folder / "sensors.h").write_text("/* my drivers */\n")
    assert run(export, exported / "model.hcb", "--c", folder, "--inline") == 0
    assert (folder / "sensors.h").read_text() == "/* my drivers */\n"
    assert (folder / "main.c").read_text() == own_files(load_bundle(GOLDEN))["main.c"]
    assert (folder / "inline.c").exists()
    (folder / "model.hcb").unlink()
    assert run(export, exported / "model.hcb", "--c", folder) == 0
    assert not (folder / "inline.c").exists()
    assert (folder / "sensors.h").read_text() == "/* my drivers */\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["--c", "{tmp}/other"], "is not a C export that hardcase wrote, and holds thesis.tex", id="something-else"
        ),
        pytest.param(["--c", "{tmp}/no/out"], "does not exist", id="a-parent-that-is-not-there"),
        pytest.param(["--c", "{tmp}/out", "--max-loss", "0.1"], "is a bundle", id="a-wish-with-a-bundle"),
        pytest.param(["--out", "{tmp}/m.hcb", "--inline", "--max-loss", "0.1"], "--c", id="inline-without-c"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=said):
        run(export, GOLDEN, *[a.format(tmp=tmp_path) for a in arguments])
    assert {p.name for p in tmp_path.iterdir()} == {"other"}
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_a_program_that_the_kernel_cannot_run_is_refused(tmp_path: Path) -> None:
    program = golden_program()
    with_blob = replace(program, scorers=(*program.scorers, Opaque((), b"", (0,), (1,))))
    loaded = load_bundle(GOLDEN)
    loaded = replace(loaded, bundle=replace(loaded.bundle, program=with_blob))
    with pytest.raises(HardcaseError, match="Python only"):
        write_c(loaded, tmp_path)


# ---------------------------------------------------------------- parts of the kernel


def test_a_kernel_of_only_the_parts_that_a_program_needs_decides_the_same(tmp_path: Path) -> None:
    here = TARGETS[0]
    here.need()
    seen = []
    for seed in range(300, 312):
        folder = tmp_path / str(seed)
        folder.mkdir()
        program = random_program(seed, seed % 6)
        image = Image(program)
        image.pack()
        seen.append(set(parts_of(image)))
        sources = write_programs(folder, [(program, random_cases(program, seed, 20))])[:1]
        kernel = write_kernel(folder, config_header(image))
        built = here.compile([*sources, kernel], folder / "programs", "-O0", f"-I{folder}", f"-I{FILES}")
        assert here.run(built) == "20\n"
    always, ever = set.intersection(*seen), set.union(*seen)
    known = set(re.findall(r"#define (HC_\w+) 0x\w+u", (FOLDER / "hardcase.h").read_text())) - {"HC_ALL_PARTS"}
    assert len(always) <= 2
    assert ever <= known
    assert len(ever) >= 10


@pytest.mark.parametrize(
    ("absent", "is_of_values"),
    [
        ("0u", False),
        ("HC_FORWARDS", False),
        ("HC_STACKS", False),
        ("HC_STARTS", False),
        ("HC_F64", False),
        ("HC_TOURNAMENTS", False),
        ("0u", True),
        ("HC_VALUES", True),
    ],
)
def test_the_check_refuses_an_image_that_needs_a_part_that_is_not_there(
    absent: str, is_of_values: bool, tmp_path: Path
) -> None:
    here = TARGETS[0]
    here.need()
    program = random_program(303, 3) if is_of_values else golden_program()
    data = Image(replace(program, costs=with_start(program.costs, 1))).pack()
    (tmp_path / "check.c").write_text(
        f'#include <stdio.h>\n#include "hardcase.h"\nstatic const uint64_t image[] = {{\n{array(words(data))}\n}};\n'
        'int main(void) { printf("%d\\n", hc_check(image, sizeof image)); return 0; }\n'
    )
    kernel = write_kernel(tmp_path, f"#define HC_PARTS (HC_ALL_PARTS & ~HC_INLINE & ~{absent})\n")
    built = here.compile([tmp_path / "check.c", kernel], tmp_path / "check", f"-I{tmp_path}")
    assert here.run(built) == ("1\n" if absent == "0u" else "0\n")


def test_tables_of_one_policy_with_the_parts_of_another_do_not_compile(exported: Path, tmp_path: Path) -> None:
    need("make", "cc")
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    (folder / "hardcase_config.h").write_text("#define HC_PARTS HC_POLYNOMIALS\n")
    made = make(folder)
    assert made.returncode != 0
    assert "hardcase_config.h is not this policy's" in made.stderr


# ---------------------------------------------------------------- sizes


def test_bounds_hold_for_the_golden_program_and_for_code_of_every_type(tmp_path: Path, monkeypatch) -> None:
    need("arm-none-eabi-gcc")
    monkeypatch.setattr(c_size, "COMPILER", "arm-none-eabi-gcc")
    compiled = c_size._compile
    measured = cache(lambda folder, board: compiled(folder, board, "-O2"))  # the larger one, of which the bounds are
    monkeypatch.setattr(c_size, "_compile", lambda folder, board, _: measured(folder, board))
    for name, program in (("code", random_ensembles(3, 12)), ("golden", golden_program())):
        (tmp_path / name).mkdir()
        data = pack_bundle(Bundle(manifest_of(program).to_json(), program, cases_of(program, 1)))
        made = write_c(load_bytes(data), tmp_path / name, inline=True)
        ensembles = [program.scorers[k] for k in made.inlined]
        numbers = sum(len(t.leaves) for s in ensembles for t in s.trees)
        outputs = max((len(s.base) for s in ensembles), default=0)
        for size in made.sizes:
            assert size.is_measured
            assert size.flash <= made.image_bytes + KERNEL_BYTES + c_size.MAX_NODE_BYTES * numbers
            assert size.stack <= c_size.MAX_STACK_BYTES + c_size.MAX_SUM_BYTES * outputs
        monkeypatch.setattr(c_size, "BOARDS", c_size.BOARDS[:1])


def test_the_makefile_takes_a_level_of_optimisation(exported: Path, tested, tmp_path: Path) -> None:
    assert tested.returncode == 0
    folder = Path(shutil.copytree(exported, tmp_path / "out"))
    sizes = {None: (folder / "selftest").read_bytes()}
    for level in ("-O2", "-Os"):
        assert make(folder, f"OPT={level}").returncode == 0
        sizes[level] = (folder / "selftest").read_bytes()
    assert sizes[None] == sizes["-O2"] != sizes["-Os"]


def test_sizes_are_measured_where_the_compiler_is_and_bounded_where_not(exported: Path, monkeypatch, capsys) -> None:
    need("arm-none-eabi-gcc")
    monkeypatch.setattr(c_size, "COMPILER", "arm-none-eabi-gcc")
    monkeypatch.setattr(c_size, "BOARDS", c_size.BOARDS[:1])
    loaded = load_bundle(exported / "model.hcb")
    numbers = sum(len(t.leaves) for s in loaded.bundle.program.scorers if isinstance(s, Trees) for t in s.trees)
    assert run(export, exported / "model.hcb", "--c", exported.parent / "code", "--inline", "--json") == 0
    said = json.loads(capsys.readouterr().out)["c"]
    assert said["inlined"]
    (size,) = c_size.measure(exported.parent / "code", said["image"], said["sizes"]["Cortex-M0"]["session"], numbers, 3)
    assert said["sizes"]["Cortex-M0"]["flash"] == size.flash
    assert size.is_measured
    monkeypatch.setattr(c_size, "COMPILER", "no-such-compiler")
    (bound,) = c_size.measure(exported.parent / "code", said["image"], size.session, numbers, 3)
    assert not bound.is_measured
    assert said["sizes"]["Cortex-M0"]["flash_small"] == size.flash_small
    assert said["image"] < size.flash_small < size.flash <= bound.flash
    assert 0 < size.stack <= bound.stack
    assert size.session == bound.session > 100
    monkeypatch.setattr(c_size, "COMPILER", "false")
    assert run(export, exported / "model.hcb", "--c", exported.parent / "code") == 0
    assert "upper bounds; install arm-none-eabi-gcc with newlib to measure" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flash", "session", "said"),
    [
        pytest.param(262_144, 15_872, [None, None, None], id="all-fit"),
        pytest.param(773_000, 600, ["flash, it has 262144", None, None], id="flash-of-a-microbit"),
        pytest.param(1000, 16_000, ["RAM, it has 16384", None, None], id="ram-of-a-microbit"),
        pytest.param(5_000_000, 600, ["flash, it has 262144", "has 4194304", "has 4194304"], id="none-fits"),
    ],
)
def test_a_policy_that_a_board_has_no_room_for_is_said_with_both_figures(flash, session, said) -> None:
    for board, words_of_it in zip(BOARDS, said, strict=True):
        lack = c_size.CoreSize(board.core, flash, flash - 100, session, 512, True, board).lacks()
        assert (lack is None) == (words_of_it is None)
        assert words_of_it is None or (f"does not fit a {board.machine}: " in str(lack) and words_of_it in str(lack))
