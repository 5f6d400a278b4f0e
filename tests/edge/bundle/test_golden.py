# SPDX-License-Identifier: Apache-2.0
"""The committed bundle of format 1 is what this code writes, and decides as it did when it was written."""

from __future__ import annotations

from collections import Counter

from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.kernel.machine import name_of
from hardcase_edge.program.definition import Acquire, Answer, Branch, Forward, Select
from hardcase_edge.session.session import CLOUD, DEGRADED, LOCAL
from tests.golden.make_golden import GOLDEN, golden_bundle, golden_program
from tests.helpers.edge.evaluators import evaluator  # noqa: F401


def test_the_bytes_of_format_1_have_not_changed() -> None:
    assert golden_bundle() == GOLDEN.read_bytes()


def test_the_committed_bundle_loads_and_decides_as_it_says(evaluator: str) -> None:  # noqa: F811
    loaded = load_bytes(GOLDEN.read_bytes())
    assert name_of(loaded.machine) == evaluator
    assert loaded.bundle.program == golden_program()
    assert len(loaded.bundle.golden) == 64


def test_the_golden_cases_visit_every_node_and_every_route() -> None:
    loaded = load_bytes(GOLDEN.read_bytes())
    visited = Counter(k for case in loaded.bundle.golden for k in case.expected.trace)
    assert set(visited) == set(range(len(loaded.bundle.program.nodes)))
    assert {case.expected.route for case in loaded.bundle.golden} == {LOCAL, CLOUD, DEGRADED}
    kinds = {type(loaded.bundle.program.nodes[k]) for k in visited}
    assert kinds == {Acquire, Branch, Select, Answer, Forward}
