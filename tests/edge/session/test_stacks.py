# SPDX-License-Identifier: Apache-2.0
"""Many stacks on one ensemble: what they read, and how often a session walks a tree that they share."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace
from itertools import product

import pytest

from hardcase_edge.errors import ImageError, ProgramError, SessionError
from hardcase_edge.kernel.image import Image, make_image
from hardcase_edge.kernel.machine import KERNEL, PYTHON, decide, open_machine
from hardcase_edge.program.decode import decode
from hardcase_edge.program.definition import Acquire, Answer, Branch, Node, Number, Program, Slice, Stack, Trees
from hardcase_edge.program.encode import encode
from hardcase_edge.program.reads import indices_of, read_by_scorers, readers_of, shared_trees
from hardcase_edge.session import scoring
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.from_spec import World
from tests.helpers.edge.shared_stacks import of_both
from tests.helpers.edge.worlds import as_tuple, by_the_pages

ROWS = list(product((0.0, 1.0, 2.0), (0.0, 1.0, None)))


def test_a_stack_reads_its_members_sensors() -> None:
    p = of_both()
    reads = [indices_of(bits) for bits in read_by_scorers(p)]
    assert reads == [(0,), (0, 1), (0, 1), (0, 1)]
    alone = replace(p, scorers=(*p.scorers[:2], Stack(1, (0,), ((1,),), (0,)), p.scorers[3]))
    assert [indices_of(bits) for bits in read_by_scorers(alone)] == [(0,), (0, 1), (0,), (0, 1)]
    assert readers_of(alone) == ((0, 1, 2, 3), (1, 3))
    assert (shared_trees(p), shared_trees(alone)) == ({1: (0, 2)}, {1: (0,)})


def root_first(member: int) -> Program:
    """A root that has bought sensor 0 alone, and stands on one tree of an ensemble that reads sensor 1, too."""
    p = of_both()
    nodes: tuple[Node, ...] = (
        Acquire((0,), 1, 1), Branch(Slice(2, 0, 1), "threshold", (2, 3), 5), Answer(Slice(2, 0, 1), "value"),
        Acquire((1,), 4, 4), Answer(Slice(3, 0, 1), "value"),
    )  # fmt: skip
    root = Stack(1, (member,), ((1,),), (0,))
    return replace(p, scorers=(*p.scorers[:2], root, p.scorers[3]), nodes=nodes)


def test_a_root_may_stand_on_an_ensemble_whose_other_trees_read_what_it_has_not_bought() -> None:
    assert verify(root_first(0)).longest_path == 4
    for member in (1, 2):
        with pytest.raises(ProgramError, match="node 1: scorer 2 reads sensor 1, which no path to it has tried"):
            verify(root_first(member))


@pytest.mark.parametrize("evaluator", [PYTHON, KERNEL])
def test_stacks_that_share_trees_decide_as_the_pages_say(evaluator: str) -> None:
    p = of_both()
    verify(p)
    assert decode(encode(p)) == (p, False)
    machine, results = open_machine(p, evaluator), set()
    for row in ROWS:
        one = decide(machine, row)
        assert as_tuple(one) == by_the_pages(p, World(row)), row
        results.add((one.result, one.trace))
    assert len({trace for _, trace in results}) == 3, "the rows take three ways"


def test_a_tree_that_stacks_share_is_walked_once_and_again_when_its_sensor_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, walked, plain = of_both(), [], scoring.walk
    below = p.scorers[1]
    assert isinstance(below, Trees)
    trees = [scoring.prepare_tree(tree, below.columns) for tree in below.trees]

    def count(node: object, codes: list[int]) -> list[Number]:
        walked.append(trees.index(node))
        return plain(node, codes)

    monkeypatch.setattr(scoring, "walk", count)
    machine, walks = open_machine(p, PYTHON), {}
    for row in ((1.0, 1.0), (0.0, 1.0), (0.0, 0.0)):
        walked.clear()
        trace = decide(machine, row).trace
        walks[trace] = sorted(walked)
    assert walks == {
        (0, 1, 3, 5, 6): [0, 1, 2, 2],  # the tree of both sensors again, when the second has come
        (0, 1, 2, 3, 5, 6): [0, 1, 2],
        (0, 1, 2, 3, 4): [0, 2],
    }


def test_a_tree_that_one_stack_reads_has_no_cell_of_its_own() -> None:
    p = of_both()
    single = replace(p, scorers=(*p.scorers[:3], replace(p.scorers[3], members=(1,), weights=((1,),))))
    assert (len(Image(p).leaves), len(Image(single).leaves)) == (2, 0)
    assert len(make_image(single)) < len(make_image(p))


@pytest.mark.parametrize("value", [0, 1, 3, 5, 7, 2**31 - 1, 2**32 - 1])
def test_an_image_with_a_damaged_word_is_refused_or_harmless(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a stack names a leaf, or a leaf its tree; ``make bench NAME=attack`` starts from such an image too."""
    p, n_refused = of_both(), 0
    image = make_image(p)
    for at in range(0, len(image), 4):
        damaged = image[:at] + struct.pack("<I", value) + image[at + 4 :]
        monkeypatch.setattr("hardcase_edge.kernel.compiled.make_image", lambda *_, now=damaged: now)
        try:
            machine = open_machine(p, KERNEL)
        except ImageError:
            n_refused += 1
            continue
        with contextlib.suppress(SessionError):
            decide(machine, (1.0, 1.0))
    assert n_refused > 40
