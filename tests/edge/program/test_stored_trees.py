# SPDX-License-Identifier: Apache-2.0
"""Trees of a bundle that stay bytes: what they are to everyone else, and that nothing unchecked is ever looked at."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from dataclasses import replace

import pytest

from hardcase_edge.bundle.file import Bundle, pack_bundle, unpack_bundle
from hardcase_edge.errors import ProgramError
from hardcase_edge.kernel.image import make_image
from hardcase_edge.kernel.machine import PYTHON, decide, has_kernel, open_machine
from hardcase_edge.program import definition as d
from hardcase_edge.program import stored_trees as stored
from hardcase_edge.program.decode import decode
from hardcase_edge.program.encode import encode
from hardcase_edge.program.format import TREE
from hardcase_edge.program.stored_trees import Shape, StoredTrees, children_of, depth_of, longest_way, outline_of
from hardcase_edge.verifier.verify import verify

HEAP = d.Tree(0, 2, (0, 1, 0), (5, -7, 9), (True, False, True), (), (1, 2, 3, 4, 5, 6, 7, 8))
CHAIN = d.Tree(1, 1, (1, 0), (3, 4), (False, True), ((-1, 1), (-2, -3)), (10, 20, 30))
LEAF = d.Tree(0, 1, (), (), (), (), (11,))
TREES = (HEAP, CHAIN, LEAF)
OUTPUT, WIDTH, NODES, HAS_CHILDREN, SLOTS, THRESHOLDS, CHILDREN, LEAVES = range(TREE)


def program_of(trees=TREES):
    return d.Program(
        features=(d.Feature("i32"), d.Feature("f32")),
        sensors=(d.Sensor((0, 1), (1_000_000,)),),
        uplink=d.Uplink(),
        columns=(d.Column(0, d.Affine(0, 1, 0, 0)), d.Column(1, d.Affine(0, 1, 0, 0))),
        scorers=(d.Trees((0, 1), (0, 0), trees), d.Stack(0, (1, 2), ((2, -3), (1, 1)), (0, 5))),
        nodes=(d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 2))),
        n_classes=2,
    )


def stored_program(trees=TREES):
    return decode(encode(program_of(trees)))[0]


def stored_trees():
    return stored_program().scorers[0].trees


def test_stored_trees_are_a_sequence_of_the_same_trees():
    trees = stored_trees()
    assert isinstance(trees, StoredTrees)
    assert len(trees) == 3
    assert [trees[0], trees[-2], trees[2]] == list(trees) == list(TREES)
    assert trees[1:] == TREES[1:]
    assert HEAP in trees
    with pytest.raises(IndexError):
        trees[3]


def test_stored_trees_equal_a_tuple_and_hash_and_print_as_one():
    trees = stored_trees()
    assert trees == TREES
    assert TREES == trees == stored_trees()
    assert trees != TREES[:2]
    assert trees != 3
    assert hash(trees) == hash(TREES)
    assert repr(trees) == repr(TREES)
    assert stored_program() == program_of()


def test_a_copy_stands_without_the_bundle():
    for copied in (copy.deepcopy(stored_trees()), pickle.loads(pickle.dumps(stored_trees()))):  # noqa: S301
        assert copied == TREES
        assert isinstance(copied, tuple)


def test_both_evaluators_decide_as_they_do_with_tuples():
    program = stored_program()
    assert verify(program) == verify(program_of())
    assert make_image(program) == make_image(program_of())
    machines = [open_machine(program), open_machine(program, PYTHON), open_machine(program_of(), PYTHON)]
    assert has_kernel() == (type(machines[0]) is not type(machines[1]))
    for row in ([x, y] for x in range(-10, 12, 3) for y in (-8.0, -7.0, 2.5, 4.0, float("nan"))):
        first, *others = (decide(machine, row) for machine in machines)
        assert [first, first] == others


def test_an_image_is_the_same_by_the_outlines_of_the_verifier():
    program = stored_program()
    outlines = verify(program).outlines
    assert outlines[0] == outline_of(TREES) == outline_of(stored_trees())
    assert outlines[0].shapes == (Shape(0, 2, 3, 2), Shape(1, 1, 2, 2), Shape(0, 1, 0, 0))
    assert outlines[0].splits == {(0, True), (1, False)}
    assert not outlines[1].shapes
    assert make_image(program, outlines) == make_image(program)


def test_children_and_depth_are_the_same_of_both_layouts():
    assert children_of(HEAP) == [(1, 2), (-1, -2), (-3, -4)]
    assert depth_of(HEAP) == longest_way(children_of(HEAP)) == 2
    assert children_of(CHAIN) == CHAIN.children
    assert depth_of(CHAIN) == 2
    assert list(children_of(LEAF)) == []
    assert depth_of(LEAF) == longest_way([]) == 0


@pytest.mark.parametrize("children", [[(0, -1)], [(1, -1), (-2, 0)], [(1, -1), (1, -2)]])
def test_a_node_that_leads_back_has_no_depth(children):
    with pytest.raises(ProgramError, match="leads back"):
        longest_way(children)


def test_no_tree_of_a_bundle_is_kept(monkeypatch):
    many = d.Tree(0, 1, (0,) * 255, tuple(range(255)), (True,) * 255, (), tuple(range(1000, 1256)))
    trees = tuple(replace(many, thresholds=tuple(range(k, k + 255))) for k in range(1000, 1200))
    data = pack_bundle(Bundle({}, program_of((CHAIN, LEAF, *trees)), ()))
    tracemalloc.start()
    try:
        bundle = unpack_bundle(data)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) > 100_000
    assert held < 40_000, "trees have become objects"
    made = []
    monkeypatch.setattr(stored, "Tree", lambda *values: made.append(values) or d.Tree(*values))
    outlines = verify(bundle.program).outlines
    assert len(made) <= len(trees) + 8, "the verifier goes over them once"
    make_image(bundle.program, outlines)
    assert len(made) <= 2 * len(trees) + 16, "and the image once"


def changed(tree, word, value):
    """Tensors in which one word of one tree's record says something else."""
    tensors = encode(program_of())
    (at,) = [k for k in range(0, len(tensors["program"]), 2) if tensors["program"][k : k + 2].tolist() == [1, 2]][-1:]
    records = tensors["program"][at + 6]
    tensors["i32"][records + tree * TREE + word] = value
    return tensors


@pytest.mark.parametrize(
    ("tree", "word", "value", "said"),
    [
        pytest.param(0, WIDTH, 0, "leaves of width 0 for 2 scores", id="no-width"),
        pytest.param(0, WIDTH, 3, "leaves of width 3 for 2 scores", id="too-wide"),
        pytest.param(0, NODES, -1, "a tree has -1 nodes", id="nodes-below-0"),
        pytest.param(0, NODES, 2**31 - 1, "numbers at 0 of the i16 pool, which has", id="endless-nodes"),
        pytest.param(1, HAS_CHILDREN, 2, "a flag is 2", id="neither-heap-nor-pointers"),
        pytest.param(1, SLOTS, -1, "2 numbers at -1 of the i16 pool", id="slots-before-the-pool"),
        pytest.param(1, SLOTS, 10**6, "2 numbers at 1000000 of the i16 pool", id="slots-elsewhere"),
        pytest.param(1, THRESHOLDS, 10**6, "2 numbers at 1000000 of the i16 pool", id="thresholds-elsewhere"),
        pytest.param(1, CHILDREN, -3, "4 numbers at -3 of the i16 pool", id="children-before-the-pool"),
        pytest.param(2, LEAVES, 2**31 - 1, "1 numbers at 2147483647 of the i16 pool", id="leaves-elsewhere"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_before_a_tree_is_made(tree, word, value, said, monkeypatch):
    monkeypatch.setattr(StoredTrees, "_tree", None)
    with pytest.raises(ProgramError, match=said):
        decode(changed(tree, word, value))


def test_a_negative_slot_is_refused_before_a_tree_is_made():
    tensors = encode(program_of())
    for k, number in enumerate(tensors["i16"]):
        if number == 3 and tensors["i16"][k + 1] == 0:  # the slots of CHAIN
            tensors["i16"][k] = -3
            break
    with pytest.raises(ProgramError, match="negative slot"):
        decode(tensors)


def test_numbers_that_many_trees_share_are_counted_for_each(monkeypatch):
    monkeypatch.setattr("hardcase_edge.program.decode.MAX_NUMBERS", 2_000)
    with pytest.raises(ProgramError, match="more than 2000 numbers"):
        decode(encode(program_of(TREES + (HEAP,) * 100)))


@pytest.mark.parametrize("value", [-(2**31), -1000, -1, 0, 1, 2, 3, 7, 1000, 2**31 - 1])
@pytest.mark.parametrize("word", range(TREE))
@pytest.mark.parametrize("tree", range(3))
def test_whatever_a_record_says_it_is_refused_or_a_tree_that_fits(tree, word, value):
    try:
        program = decode(changed(tree, word, value))[0]
        verify(program)
    except ProgramError:
        return
    for each in program.scorers[0].trees:
        assert len(each.splits) == len(each.thresholds) == len(each.missing_left)
        assert len(each.leaves) == (len(each.splits) + 1) * each.width
    make_image(program)
