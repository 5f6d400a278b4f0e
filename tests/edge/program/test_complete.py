# SPDX-License-Identifier: Apache-2.0
"""Every kind of scorer, node and column of a program is known wherever programs are explained, made and executed.

A new member of a union in ``program/definition.py`` fails here, with the name of each place that does not know it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from hardcase_edge.errors import ImageError
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.machine import EVALUATORS, KERNEL, has_kernel, open_machine
from hardcase_edge.more.batch.evaluate import Batch
from hardcase_edge.more.batch.scores import score_codes
from hardcase_edge.program.cost import to_micro
from hardcase_edge.program.decode import decode
from hardcase_edge.program.definition import LAYERS, Answer, Branch, Column, Network, Node, Opaque, Program, Scorer
from hardcase_edge.program.encode import encode
from hardcase_edge.program.format import RULES
from hardcase_edge.program.kinds import ANSWERS
from hardcase_edge.program.readings import normalise
from hardcase_edge.session.drive import drive
from hardcase_edge.session.session import Decision
from tests.helpers.edge.from_spec import Decided, World
from tests.helpers.edge.strategies import random_program, random_readings
from tests.helpers.edge.worlds import by_the_pages
from tests.helpers.places import ROOT

RULE = get_type_hints(Column)["rule"]
MEMBERS = [*get_args(Scorer), *get_args(Node), *get_args(RULE), *RULES, *ANSWERS, *LAYERS]
IN_PYTHON_ALONE = {Opaque}  # a user's TFLite model, which runs in an interpreter of its own and is not proved
EXECUTED = [member for member in MEMBERS if member not in IN_PYTHON_ALONE]
KERNEL_FILES = ROOT / "edge_runtime" / "hardcase_edge" / "kernel"


def name_of(member: Any) -> str:
    return member if isinstance(member, str) else member.__name__


def members_of(program: Program, trace: tuple[int, ...]) -> set[Any]:
    """The members that a decision on this way has met."""
    nodes = [program.nodes[k] for k in trace]
    scorers = [program.scorers[n.scores.scorer] for n in nodes if isinstance(n, Branch | Answer)]
    columns = [program.columns[c] for s in scorers for c in getattr(s, "columns", ())]
    said = {n.rule for n in nodes if isinstance(n, Branch)} | {n.kind for n in nodes if isinstance(n, Answer)}
    said |= {layer.kind for s in scorers if isinstance(s, Network) for layer in s.layers}
    return {*map(type, nodes), *map(type, scorers), *(type(c.rule) for c in columns), *said}


@cache
def cases() -> list[tuple[Program, list[Any], Decided]]:
    """Random programs with readings that their types hold, and what the pages say of them, answered with class 1."""
    made = []
    for seed in range(400):
        program, rng = random_program(seed, seed % 6), random.Random(seed)
        readings = normalise(random_readings(rng, program), [f.dtype for f in program.features])
        made.append((program, readings, by_the_pages(program, World(readings, reply=(1, 9_000)))))
    return made


@cache
def met() -> set[Any]:
    return set().union(*(members_of(program, decided[5]) for program, _, decided in cases()))


def by_session(evaluator: str) -> Callable[[Program, list[Any]], tuple[int, int]]:
    def run(program: Program, readings: list[Any]) -> tuple[int, int]:
        def read(asked: tuple[int, ...]) -> dict[int, list[Any]]:
            return {s: [readings[f] for f in program.sensors[s].features] for s in asked}

        decision: Decision = drive(open_machine(program, evaluator).session(), read, lambda need: (1, 9_000))
        return int(decision.result), decision.cost

    return run


def by_numpy(program: Program, readings: list[Any]) -> tuple[int, int]:
    table = np.array([[np.nan if x is None else float(x) for x in readings]]).reshape(1, -1)
    outcome, _ = Batch(program, table).walk(np.array([1]))
    return int(outcome.label[0]), to_micro(float(outcome.cost[0]))


def by_bytes(program: Program, readings: list[Any]) -> tuple[int, int]:
    return by_session("python")(decode(encode(program))[0], readings)


RUNS = {"a bundle's bytes": by_bytes, "numpy": by_numpy} | {name: by_session(name) for name in EVALUATORS}


@pytest.mark.parametrize("member", MEMBERS, ids=name_of)
def test_the_specification_explains_it(member: Any) -> None:
    text = (ROOT / "docs" / "SPEC-program-v1.md").read_text(encoding="utf-8")
    name, meaning = name_of(member), text.partition("## 3. Columns")[2].partition("## 5. ")[0]
    assert re.search(rf"\*\*{name}\b|^\| `{name}\(|^- `{name}`|Kind `{name}`", meaning, re.M), (
        f"SPEC-program, sections 3 and 4, does not say what {name} means"
    )
    layout = text.partition("## 6. Encoding")[2]
    assert re.search(rf"^#### 6\.[57]\.\d {name}:|\b{name}\b", layout, re.M | re.I), (
        f"SPEC-program, section 6, does not lay out {name}"
    )


@pytest.mark.parametrize("member", [m for m in EXECUTED if not isinstance(m, str)], ids=name_of)
def test_the_image_and_the_kernel_name_it(member: Any) -> None:
    page = (ROOT / "docs" / "SPEC-image-v1.md").read_text(encoding="utf-8")
    name = member.__name__.upper()
    assert re.search(rf"^\| \d \| {name} \|", page, re.M), f"SPEC-image has no row of {name}"
    header = (KERNEL_FILES / "hc_layout.h").read_text(encoding="utf-8")
    enums = " ".join(re.findall(r"enum (?:scorer|node|rule) \{(.*?)\}", header))
    assert re.search(rf"\b{name}\b", enums), f"hc_layout.h has no {name}"


@pytest.mark.parametrize("member", EXECUTED, ids=name_of)
def test_the_generator_makes_it_and_the_evaluator_from_the_pages_executes_it(member: Any) -> None:
    assert member in met(), f"no decision of 400 random programs meets {name_of(member)}: strategies.py lacks it"


@pytest.mark.parametrize("place", RUNS)
def test_whoever_executes_programs_decides_all_of_them_as_the_pages_say(place: str) -> None:
    if place == KERNEL and not has_kernel():
        pytest.skip("the kernel was not built: it needs a C compiler")
    wrong: list[set[str]] = []
    for program, readings, expected in cases():
        try:
            is_same = RUNS[place](program, readings) == (expected[0], expected[3])
        except Exception:
            is_same = False
        if not is_same:
            wrong.append(set(map(name_of, members_of(program, expected[5]))))
    if wrong:
        pytest.fail(f"{place} does not decide {len(wrong)} programs so; all met {set.intersection(*wrong)}")


def test_what_runs_in_python_alone_is_refused_by_name_everywhere_else() -> None:
    program = random_program(1, 2, with_opaque=True)
    model = next(k for k, s in enumerate(program.scorers) if isinstance(s, Opaque))
    assert decode(encode(program))[0] == program
    with pytest.raises(ImageError, match="TFLite"):
        make_image(program)
    with pytest.raises(ValueError, match="TFLite"):
        score_codes(program.scorers, model, np.zeros((len(program.columns), 1), dtype=np.int64))
