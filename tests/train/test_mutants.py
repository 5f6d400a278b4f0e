# SPDX-License-Identifier: Apache-2.0
"""Random changes of the learners: what is changed, and which tests are asked."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import mutants
from benchmarks.mutants import Mutant, drawn, mutants_of

SOURCE = '''"""A module."""

LIMIT = 3


def f(a: int | None, b: bool = True) -> list[int]:
    """Not 1 < 2."""
    if a < 1:
        raise ValueError(f"{a + 1} is not 2")
    return min(a, -b)
'''


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mutant]:
    (tmp_path / "m.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return mutants_of(Path("m.py"))


def test_only_what_a_function_does_is_changed(found: list[Mutant]) -> None:
    """Neither constants of the module nor texts, annotations, defaults or errors."""
    assert sorted((m.line, m.before, m.text) for m in found) == [
        (8, "1", "2"), (8, "a < 1", "(a <= 1)"), (8, "a < 1", "(a >= 1)"), (8, "a < 1", "False"),
        (8, "a < 1", "True"), (10, "-b", "(b)"), (10, "min", "max"), (10, "return min(a, -b)", "return None"),
    ]  # fmt: skip


def test_a_change_leaves_the_rest_of_a_module_as_it_is(found: list[Mutant]) -> None:
    (other,) = (m for m in found if m.text == "max")
    assert other.applied(SOURCE.encode()).decode() == SOURCE.replace("min(", "max(")


def test_a_seed_draws_the_same_mutants_again() -> None:
    first = drawn(5, 3, "polydom/estimate")
    assert drawn(5, 3, "polydom/estimate") == first != drawn(5, 4, "polydom/few")


def test_a_module_is_tested_by_what_imports_it_and_by_its_room() -> None:
    room = Path("tests/train/methods/polydom")
    near, far = room / "test_plan.py", Path("tests/cli/test_joint_build.py")
    few = "hardcase_train.methods.polydom.estimate"
    imported = {near: {few}, room / "test_index.py": {"numpy"}, far: {few}, Path("tests/cli/test_train.py"): {"numpy"}}
    known, others = mutants.tests_of(
        Path("train/hardcase_train/methods/polydom/estimate.py"), imported, mutants.LEARNERS
    )
    assert known == [near, far]
    assert others == [room / "test_index.py", Path("tests/train/methods/test_methods.py")]


def test_a_module_of_the_core_is_tested_by_its_room_and_by_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    known, room = Path("tests/edge/kernel/test_kernel.py"), Path("tests/edge/session/test_trees.py")
    imported = {known: {"hardcase_edge.session.session"}, room: {"numpy"}}
    general = [Path("tests/edge/session/test_from_spec.py"), Path("tests/edge/kernel/test_bounds.py")]
    module = Path("edge_runtime/hardcase_edge/session/session.py")
    assert mutants.tests_of(module, imported, mutants.CORE) == ([known], [room, *general])
    module = Path("edge_runtime/hardcase_edge/program/reads.py")
    assert mutants.tests_of(module, imported, mutants.CORE) == ([], [module, *general]), "and by its examples"
    monkeypatch.setattr(mutants, "mutants_of", lambda module: [Mutant(module, 1, 1, 0, 1, "1", "2")])
    assert {m.module.parts[2] for m in drawn(1_000, 0, "", mutants.CORE)} == set(mutants.CORE.rooms)


@pytest.mark.parametrize("again", [False, True])
def test_a_list_that_was_not_finished_goes_on_where_it_was(
    found: list[Mutant], monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """And asks again for those that lived, if it is told so."""
    first, second, *others = found
    saved: list[dict[str, dict[str, str]]] = []

    def judged(asked: list[Mutant], *rest: object) -> None:
        assert asked == ([second, *others] if again else others)
        note = rest[-1]
        assert callable(note)
        note(asked[0], "killed" if again else "lived")

    monkeypatch.setattr(mutants, "drawn", lambda *_: found)
    monkeypatch.setattr(mutants, "Place", lambda folder: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(mutants, "judged", judged)
    known = {"learners, seed 3": {str(first): "killed", str(second): "lived", "a mutant of other sources": "lived"}}
    made = mutants.run(
        Namespace(
            core=False, only="", seed=3, count=9, jobs=1, minutes=1, again=again, known=lambda: known,
            save=saved.append,
        )
    )  # fmt: skip
    verdicts = made["learners, seed 3"]
    assert list(verdicts) == [str(mutant) for mutant in found]
    others_said = ["killed", "not run"] if again else ["lived", "lived"]
    others_said += ["not run"] * (len(found) - 3)
    assert list(verdicts.values()) == ["killed", *others_said]
    assert saved == [made]
    n_lived, n_not_run = others_said.count("lived"), others_said.count("not run")
    assert f"| learners, seed 3 | {len(found)} | {1 + again} | {n_lived} | 0 | {n_not_run} |" in mutants.page(made)
