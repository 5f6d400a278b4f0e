# SPDX-License-Identifier: Apache-2.0
"""Joint sessions against a second reading of docs/SPEC-joint-v1.md, which tries all labels of all parts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hardcase_edge.joint.chain import ChainDecoder
from hardcase_edge.joint.definition import MAX_GAP, Chain
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.joint.session import JointDecision
from hardcase_edge.kernel.machine import has_kernel
from tests.helpers.edge.evaluators import evaluator  # noqa: F401
from tests.helpers.edge.joint_oracle import best_labels, decide_item, item_gaps
from tests.helpers.edge.joint_programs import play, random_chain, random_joint, random_world


def as_tuple(d: JointDecision) -> object:
    parts = tuple((p.label, p.confidence, p.route, p.cost, p.sensors, p.trace, p.failed, p.unpaid) for p in d.parts)
    return parts, d.confidence, d.route, d.cost, d.rounds


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_items_are_decided_as_the_page_says(first: int) -> None:
    for seed in range(first, first + 20):
        part, joint = random_joint(seed, size=seed % 4)
        report, machine = verify_joint(part, joint), open_joint(part, joint)
        rng = random.Random(seed)
        for _ in range(4):
            world = random_world(rng, part, joint, report.worst_cost)
            decision = play(machine, world)
            assert as_tuple(decision) == decide_item(part, joint, world), (seed, world)
            assert world.budget is None or decision.cost <= world.budget
            assert decision.cost <= report.worst_cost
            assert decision.rounds <= report.rounds


def test_the_chain_is_what_all_labels_of_all_parts_say() -> None:
    rng = random.Random(20)
    for _ in range(150):
        k, n = rng.randint(2, 4), rng.randint(1, 5)
        chain, span = random_chain(rng, k), rng.choice([1, 5, 10**6])
        scores = [[rng.randint(-span, span) for _ in range(k)] for _ in range(n)]
        fixed = {p: rng.randrange(k) for p in range(n) if rng.random() < 0.15}
        expected = best_labels(chain, scores, fixed), item_gaps(chain, scores, fixed)
        for decoder in (ChainDecoder(chain), *compiled(chain)):
            assert decoder.decode(scores, fixed) == expected
            assert decoder.decode(scores, fixed, False) == (expected[0], [])


def test_gaps_beyond_32_bits_are_cut_off() -> None:
    chain = Chain(2, (2**50, -(2**50), -(2**50), 2**50), (0, 0), (0, 0))
    for decoder in (ChainDecoder(chain), *compiled(chain)):
        assert decoder.decode([[0, 1], [0, 0]], {}) == ([1, 1], [1, 1])
        assert decoder.decode([[0, 1], [2**40, 0]], {}) == ([0, 0], [MAX_GAP, MAX_GAP])


class Emptying:
    """A number by ``__index__``, which empties a list on the way."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __index__(self) -> int:
        self._rows.clear()
        return 0


def test_no_code_of_a_caller_runs_while_the_compiled_chain_reads() -> None:
    for decoder in compiled(Chain(2, (0, 0, 0, 0), (0, 0), (0, 0))):
        rows: list[Any] = [[0, 0], [0, 0]]
        odd = Emptying(rows)
        for fixed, scores in (({0: odd}, rows), ({odd: odd}, rows), ({}, [[odd, 0], [0, 0]])):
            with pytest.raises(TypeError, match="parts, labels and scores are ints"):
                decoder.decode(scores, fixed)
        assert rows == [[0, 0], [0, 0]]


def compiled(chain: Chain) -> list[Any]:
    if not has_kernel():
        return []
    from hardcase_edge.kernel.compiled_chain import CompiledChain

    return [CompiledChain(chain.labels, chain.transitions, chain.start, chain.stop)]
