# SPDX-License-Identifier: Apache-2.0
"""Ensembles as code: the scores and decisions of the tables, on every edge, under sanitizers."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hardcase_edge.kernel import reading_keys as keys
from hardcase_edge.kernel.image import Image
from hardcase_edge.kernel.reading_keys import Keys
from hardcase_edge.program.definition import CODE_MAX, Column, Program, Rank, Tree, Trees
from hardcase_export.to_c.boards import FILES
from hardcase_export.to_c.header import words
from hardcase_export.to_c.inline import Fork, Leaf, inline_source, question, unrolled
from hardcase_export.to_c.names import array
from tests.edge.kernel.test_kernel import SANITIZED
from tests.helpers.edge.c_programs import random_cases
from tests.helpers.edge.kernel_cases import write_kernel
from tests.helpers.edge.machines import Target
from tests.helpers.edge.strategies import random_program
from tests.helpers.export.inline import edge_rows, plain_ensembles, random_ensembles, write_inlined, write_unrolled
from tests.helpers.tools import need


def mixed() -> Program:
    return random_ensembles(3, 12)


PROGRAMS = {
    "mixed-types": mixed,
    "other-mixed-types": lambda: random_ensembles(4, 12),
    "whole-numbers": lambda: plain_ensembles(5, "i32"),
    "single": lambda: plain_ensembles(6, "f32"),
    "double": lambda: plain_ensembles(7, "f64"),
}


def sanitized(compiler: str) -> Target:
    need(compiler)
    return Target(compiler, (compiler, *SANITIZED))


# ---------------------------------------------------------------- scores


@pytest.mark.parametrize(
    ("compiler", "program"),
    [*[pytest.param("cc", p, id=name) for name, p in PROGRAMS.items()], pytest.param("clang", mixed, id="clang")],
)
def test_scores_on_every_edge_are_the_oracles(compiler: str, program, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is needed: apt install {compiler}")
    made, here = program(), sanitized(compiler)
    rows = edge_rows(random.Random(8), made, 150)
    built = here.compile(write_unrolled(tmp_path, made, rows), tmp_path / "unrolled")
    right, of, all_ = here.run(built).split()
    assert (right, of) == (all_, "of")
    assert int(all_) > 1000


def test_a_sensor_of_too_many_readings_has_codes_and_the_same_scores(tmp_path: Path, monkeypatch) -> None:
    program, here = random_ensembles(3, 12), sanitized("cc")
    rows = edge_rows(random.Random(9), program, 60)
    monkeypatch.setattr(keys, "MAX_SENSOR_BYTES", 8)
    some = write_unrolled(tmp_path, program, rows)
    text = (tmp_path / "inline.c").read_text()
    assert "_cell(" in text
    assert "key" in text
    right, _, all_ = here.run(here.compile(some, tmp_path / "unrolled")).split()
    assert right == all_


# ---------------------------------------------------------------- decisions


def test_random_programs_decide_as_with_tables(tmp_path: Path) -> None:
    here = sanitized("cc")
    seen: list[set[str]] = []
    for seed in range(400, 420):
        program = random_program(seed, seed % 6)
        folder = tmp_path / str(seed)
        folder.mkdir()
        cases = random_cases(program, seed, 60)
        sources, inlined = write_inlined(folder, program, cases)
        if not inlined:
            continue
        built = here.compile(sources, folder / "programs", f"-I{folder}", f"-I{FILES}")
        assert here.run(built) == "60\n"
        seen.append({c.expected.route for c in cases})
        if len(seen) == 4:
            break
    assert len(seen) == 4
    assert set.union(*seen) == {"local", "cloud", "degraded"}


# ---------------------------------------------------------------- questions


def one_tree(dtype: str, thresholds: tuple[float, ...], threshold: int, missing_left: bool) -> Image:
    """An image of one question: 1 if left, else 2."""
    scorer = Trees((0,), (0,), (Tree(0, 1, (0,), (threshold,), (missing_left,), (), (1, 2)),))
    program = replace(plain_ensembles(0, dtype), columns=(Column(4, Rank(thresholds)),), scorers=(scorer,))
    return Image(program, [0])


@pytest.mark.parametrize(
    ("dtype", "thresholds", "threshold", "missing_left", "text"),
    [
        pytest.param("i32", (-7, 9), -CODE_MAX, True, "key32(keys, {}) <= -7", id="whole"),
        pytest.param("i32", (-7, 9), 1 - CODE_MAX, False, "last32(keys, {}) <= 2147483656u", id="missing-right"),
        pytest.param("i32", (-7, 9), 2 - CODE_MAX, True, None, id="beyond-the-last"),
        pytest.param("i32", (-7, 9), 2 - CODE_MAX, False, "last32(keys, {}) <= 4294967294u", id="is-it-there"),
        pytest.param("i32", (0, 2**31 - 1), 1 - CODE_MAX, True, None, id="the-highest"),
        pytest.param("f32", (-0.5, 0.5), -CODE_MAX, True, "key32(keys, {}) <= -1056964609", id="single"),
        pytest.param("f64", (1.0,), -CODE_MAX, True, "key64(keys, {}) <= INT64_C(4607182418800017408)", id="double"),
        pytest.param("f64", (1.0,), 5, False, "last64(keys, {}) <= 18442240474082181119u", id="is-a-double-there"),
    ],
)
def test_a_question_is_one_comparison_of_a_reading(dtype, thresholds, threshold, missing_left, text) -> None:
    image = one_tree(dtype, thresholds, threshold, missing_left)
    size = 8 if dtype == "f64" else 4
    place = size * image.p.sensors[0].features.index(4)
    asked = question(image, 0, threshold, missing_left, True)
    assert (asked and asked.text()) == (text and text.format(place))
    (root,) = unrolled(image, 0).roots
    assert root == (Leaf(0, (1,)) if asked is None else Fork(asked, Leaf(0, (1,)), Leaf(0, (2,))))
    assert image.cells.counts == (0, 0, 0, 0), "no codes are made"


def test_keys_lie_as_the_readings_in_their_struct() -> None:
    program = random_ensembles(3, 12)
    found = Keys(program, range(12))
    for sensor, begin in found.sensors.items():
        assert begin % 8 == 0
        places = [
            found.place(c) - begin
            for c, column in enumerate(program.columns)
            if column.feature in program.sensors[sensor].features and found.has(c)
        ]
        assert all(0 <= place < keys.MAX_SENSOR_BYTES for place in places)
    assert Keys(program, []).n_bytes == 0


def test_code_holds_no_floating_point_and_what_it_does_not_ask_is_not_there() -> None:
    image = Image(random_ensembles(3, 12), range(12))
    image.pack()
    text = re.sub(r"/\*.*?\*/", "", inline_source({k: unrolled(image, k) for k in range(12)}), flags=re.S)
    assert not re.search(r"\b(float|double|malloc|goto)\b", text)
    plain = Image(plain_ensembles(5, "i32"), range(8))
    plain.pack()
    source = inline_source({k: unrolled(plain, k) for k in range(8)})
    assert "key32" in source
    assert "64(" not in source
    assert "_cell(" not in source


# ---------------------------------------------------------------- the check

CHECK = """
#include <stdio.h>
#include "hardcase.h"
static uint64_t image[] = {
%s
};
void hc_inline(uint32_t n, const unsigned char *k, const unsigned char *s, const unsigned char *w, unsigned char *out)
{
    (void)n, (void)k, (void)s, (void)w, (void)out;
}
int main(void)
{
    uint32_t *words = (uint32_t *)(void *)image, *keys = words + words[11] / 4 + 10, was = *keys;
    printf("%%d", hc_check(image, sizeof image));
    for (uint32_t to = 0; to < 16; to++) {
        *keys = to == 0 ? 0 : to < 8 ? was + to : to < 12 ? to * 8 - 40 : words[24] - 8 * (12 - to) + 8;
        if (*keys != was) printf(" %%d", hc_check(image, sizeof image));
    }
    return 0;
}
"""


def test_the_check_refuses_keys_that_lie_elsewhere(tmp_path: Path) -> None:
    here = sanitized("cc")
    image = Image(plain_ensembles(5, "i32"), range(8))
    (tmp_path / "check.c").write_text(CHECK % array(words(image.pack())))
    kernel = write_kernel(tmp_path, "#define HC_PARTS HC_ALL_PARTS\n")
    built = here.compile([tmp_path / "check.c", kernel], tmp_path / "check", f"-I{tmp_path}")
    first, *others = here.run(built).split()
    assert first == "1"
    assert len(others) >= 12
    assert set(others) == {"0"}
