# SPDX-License-Identifier: Apache-2.0
"""Each rule of docs/SPEC-program-v1.md section 5 refuses its own violation; and what is verified runs safely."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from hardcase_edge.errors import ProgramError
from hardcase_edge.program import definition as d
from hardcase_edge.program.decode import decode
from hardcase_edge.program.encode import encode
from hardcase_edge.verifier.scorers import prove_scorer
from hardcase_edge.verifier.verify import verify
from tests.edge.session.test_session_properties import Driver
from tests.helpers.edge.crafted import branch_bomb, empty_ensembles, stacked, unread_outputs, wide_branch
from tests.helpers.edge.mutate import change, mutate
from tests.helpers.edge.strategies import programs, random_program, seeds
from tests.helpers.places import ROOT

SPEC = ROOT / "docs" / "SPEC-program-v1.md"
SAFE = 2**62


def good() -> d.Program:
    """A small program that has everything once."""
    heap = d.Tree(0, 1, (0,), (5,), (True,), (), (10, -10))
    pointers = d.Tree(1, 1, (1, 2), (0, 1), (False, True), ((1, -1), (-2, -3)), (1, 2, 3))
    return d.Program(
        features=(d.Feature("f64"), d.Feature("f32", nullable=True), d.Feature("i32")),
        sensors=(d.Sensor((0,), (10, 2)), d.Sensor((1,), (20,)), d.Sensor((2,), (30,))),
        uplink=d.Uplink(56 + 8 + 4 + 4, (0, 1, 2)),
        costs=d.Costs(100, 1, 5),
        columns=(d.Column(0, d.Affine(8, 3, 0, 4)), d.Column(1, d.Rank((0.5, 1.5))), d.Column(2, d.Rank((1, 2, 3)))),
        scorers=(
            d.Polynomial((0, 1), (None, 5), 1, ((0,), (1,), (2,)), ((1, 2, 3), (4, 5, 6)), (7, 8)),
            d.Trees((0, 1, 2), (0, 0), (heap, pointers)),
            d.Stack(1, (0, 1), ((1, 2), (3, 4)), (5, 6)),
            d.Opaque((0,), b"model", (0,), (9,)),
            d.Polynomial((), (), 1, ((0,),), ((1,), (0,)), (0, 0)),
        ),
        nodes=(
            d.Acquire((0, 1), 1, 9),
            d.Branch(d.Slice(0, 0, 1), "threshold", (2, 3), 4),
            d.Answer(d.Slice(0, 0, 2), margins=(1, 2), confidences=(1, 2, 3)),
            d.Acquire((1, 2), 4, 4),
            d.Branch(d.Slice(1, 0, 2), "argmax", (5, 6)),
            d.Branch(d.Slice(2, 0, 2), "tournament", (6, 7, 8), bracket=((0, 1), (3, 2))),
            d.Forward((1,), 9),
            d.Select((d.Candidate(5, (1, 1), 8),), 9),
            d.Answer(d.Slice(3, 0, 1)),
            d.Answer(d.Slice(4, 0, 2)),
        ),
        n_classes=2,
        max_item_size=10,
    )


def test_the_program_that_the_table_breaks_is_good() -> None:
    report = verify(good())
    assert report.unproved == (3,)
    assert report.worst_cost == (10 + 2 * 10) + 20 + 30 + (100 + 72 + 5)
    assert report.best_cost == (10 + 2) + 20
    assert report.longest_path == 7
    assert decode(encode(good())) == (good(), False)


def test_the_widest_range_of_an_opaque_scorer_is_good() -> None:
    p = good()
    opaque = replace(p.scorers[3], low=(1 - SAFE,), high=(SAFE - 1,))
    verify(replace(p, scorers=(*p.scorers[:3], opaque, *p.scorers[4:])))


def test_trees_may_read_what_only_some_paths_have_bought() -> None:
    verify(change(good(), "nodes[9].scores", d.Slice(1, 0, 2)))


def many_sensors(p: d.Program) -> d.Program:
    return replace(p, sensors=p.sensors + (d.Sensor((), (0,)),) * 8_190)


def wide_request(p: d.Program) -> d.Program:
    n = 8_186
    extra = (d.Feature("f64"),) * n
    sensor = d.Sensor(tuple(range(3, 3 + n)), (0,))
    uplink = replace(p.uplink, features=tuple(range(3, 3 + n)), request_bytes=56 + 8 * n)
    return replace(p, features=p.features + extra, sensors=(*p.sensors, sensor), uplink=uplink)


def hasty(p: d.Program) -> d.Program:
    line = d.Polynomial((1, 2), (5, 5), 1, ((0,), (1,), (2,)), ((1, 2, 3), (4, 5, 6)), (7, 8))
    return change(replace(p, scorers=(*p.scorers, line)), "nodes[9].scores", d.Slice(5, 0, 2))


def costly(p: d.Program) -> d.Program:
    n = 2000
    big = d.Polynomial((0,) * n, (0,) * n, 1, tuple((k,) for k in range(n)), ((0,) * n,) * n, (0,) * n)
    nodes = (d.Acquire((0,), 1, 1), d.Branch(d.Slice(5, 0, 1), "threshold", (2, 2)), d.Answer(d.Slice(5, 0, 2)))
    return replace(p, scorers=(*p.scorers, big), nodes=nodes)


def wide_sensor(p: d.Program) -> d.Program:
    n = 32_769
    return replace(
        p, features=p.features + (d.Feature("f64"),) * n, sensors=(*p.sensors, d.Sensor(tuple(range(3, 3 + n)), (0,)))
    )


def many_cells(p: d.Program) -> d.Program:
    n = 65_535
    flat = d.Polynomial(tuple(range(3, 3 + n)), (0,) * n, 1, (), ((),), (0,))
    return replace(p, columns=p.columns + (d.Column(2, d.Rank(())),) * n, scorers=(*p.scorers, flat))


def second_forward(p: d.Program) -> d.Program:
    constant = d.Slice(4, 0, 1)
    nodes = (d.Forward((0,), 1), d.Branch(constant, "threshold", (2, 3)), d.Forward((), 3), d.Answer(constant))
    return replace(p, nodes=nodes)


LAYER = d.Layer("conv", (2, 2), (1, 1), (0, 0), (1, 1, 2), 0, -128, 127, (1,) * 8, (0, 0), (1, 1), (31, 31))
POOL = d.Layer("max", (2, 2), (1, 1), (1, 1), (1, 1, 1), 0, -128, 127)
WIDE = d.Layer("conv", (1000, 600), (1, 1), (0, 0), (2, 2, 1), 0, 0, 9, (1,) * 600_000, (0,), (1,), (31,))


def networked(**parts: Any) -> Callable[[d.Program], d.Program]:
    """Adds a network over a nullable feature of int8 codes, with these parts of its own."""
    layers = LAYER, replace(POOL, shape=(1, 1, 2))
    plain = {"columns": (3,) * 4, "substitutes": (7,) * 4, "shape": (2, 2, 1), "zero_point": 0, "layers": layers}

    def add(p: d.Program) -> d.Program:
        column = d.Column(1, d.Affine(0, 1, 0, 0, -128, 127))
        return replace(p, columns=(*p.columns, column), scorers=(*p.scorers, d.Network(**plain | parts)))

    return add


def layered(**parts: Any) -> Callable[[d.Program], d.Program]:
    """Adds a network of two layers, the first with these parts of its own."""
    return networked(layers=(replace(LAYER, **parts), replace(POOL, shape=(1, 1, 2))))


RULES: list[tuple[str, str, Any, str]] = [
    # rule and case, place to change (or "" for the whole program), what to, the words that must be said
    ("V1-sensors", "", many_sensors, "8193 sensors, at most 8192"),
    ("V1-no-node", "nodes", (), "0 nodes"),
    ("V1-nodes", "nodes", lambda n: n * 2000, "20000 nodes"),
    ("V1-no-size", "max_item_size", 0, "largest item size is 0"),
    ("V1-size", "max_item_size", 2**31, "largest item size is 2147483648"),
    ("V1-one-class", "n_classes", 1, "1 classes"),
    ("V1-minus-classes", "n_classes", -1, "-1 classes"),
    ("V1-classes", "n_classes", 32_768, "32768 classes"),
    ("V2-type", "features[1].dtype", "i16", "feature 1 is of type 'i16'"),
    ("V3-shared", "sensors[1].features", (0, 1), "feature 0 belongs to 2 sensors"),
    ("V3-twice", "sensors[1].features", (1, 1), "feature 1 belongs to 2 sensors"),
    ("V3-orphan", "sensors[1].features", (), "feature 1 belongs to 0 sensors"),
    ("V3-unknown", "sensors[1].features", (1, 3), "a feature that does not exist"),
    ("V3-negative", "sensors[1].features", (1, -1), "a feature that does not exist"),
    ("V4-no-cost", "sensors[1].cost", (), "sensor 1 has 0 coefficients"),
    ("V4-long-cost", "sensors[1].cost", (0,) * 9, "sensor 1 has 9 coefficients"),
    ("V4-negative-cost", "sensors[1].cost", (5, -1), "sensor 1 has the coefficient -1"),
    ("V4-huge-cost", "sensors[1].cost", (SAFE,), "sensor 1 has the coefficient"),
    ("V4-fraction", "sensors[1].cost", (0.5,), "sensor 1 has the coefficient 0.5"),
    ("V4-request", "costs.per_request", -1, "the cost per_request is -1"),
    ("V4-byte", "costs.per_byte", -1, "the cost per_byte is -1"),
    ("V4-cloud", "costs.cloud_per_request", SAFE, "the cost cloud_per_request is"),
    ("V5-sum", "sensors[1].cost", (SAFE - 1,), "too large to add"),
    ("V5-size", "sensors[1].cost", (0, SAFE // 10), "too large to add"),
    ("V5-request", "costs.per_byte", SAFE // 72, "too large to add"),
    ("V6-unknown", "uplink.features", (0, 1, 3), "uplink feature 3 is named, but there are 3"),
    ("V6-twice", "uplink.features", (0, 1, 1), "carries a feature twice"),
    ("V7-length", "uplink.request_bytes", 71, "has 72 bytes, the program says 71"),
    ("V7-no-feature", "uplink", d.Uplink(request_bytes=56), "has 0 bytes, the program says 56"),
    ("V7-too-long", "", wide_request, "a request has 65544 bytes, at most 65536"),
    ("V8-unknown", "columns[1].feature", 3, "column 1: feature 3 is named"),
    ("V8-negative", "columns[1].feature", -1, "column 1: feature -1 is named"),
    ("V9-frac", "columns[0].rule.frac", 65, "column 0: the affine rule"),
    ("V9-mul", "columns[0].rule.mul", -(2**31), "column 0: the affine rule"),
    ("V9-add", "columns[0].rule.add", SAFE, "column 0: the affine rule"),
    ("V9-shift", "columns[0].rule.shift", 63, "column 0: the affine rule"),
    ("V9-minus-shift", "columns[0].rule.shift", -1, "column 0: the affine rule"),
    ("V9-low", "columns[0].rule.low", -32768, "column 0: the affine rule"),
    ("V9-high", "columns[0].rule.high", 32768, "column 0: the affine rule"),
    ("V9-crossed", "columns[0].rule", d.Affine(0, 1, 0, 0, 5, 4), "column 0: the affine rule"),
    ("V9-float", "columns[0].rule.mul", 1.5, "column 0: an affine number is 1.5"),
    ("V10-many", "columns[2].rule.thresholds", tuple(range(65_535)), "column 2 has 65535 thresholds, at most 65534"),
    ("V10-nan", "columns[1].rule.thresholds", (float("nan"),), "not finite"),
    ("V10-inf", "columns[1].rule.thresholds", (float("inf"),), "not finite"),
    ("V10-order", "columns[1].rule.thresholds", (1.5, 0.5), "column 1: thresholds do not increase"),
    ("V10-equal", "columns[1].rule.thresholds", (0.5, 0.5), "column 1: thresholds do not increase"),
    ("V10-not-held", "columns[1].rule.thresholds", (0.1,), "f32 does not hold 0.1 exactly"),
    ("V10-not-whole", "columns[2].rule.thresholds", (1.5,), "i32 does not hold 1.5 exactly"),
    ("V11-column", "scorers[0].columns", (0, 3), "scorer 0: column 3 is named"),
    ("V11-tree-column", "scorers[1].columns", (0, 1, -1), "scorer 1: column -1 is named"),
    ("V11-feature", "scorers[3].features", (3,), "scorer 3: feature 3 is named"),
    ("V11-no-output", "scorers[0]", d.Polynomial((), (), 1, (), (), ()), "scorer 0 has no output"),
    ("V11-opaque-no-output", "scorers[3]", d.Opaque((0,), b"", (), ()), "scorer 3 has no output"),
    ("V12-substitutes", "scorers[0].substitutes", (0,), "one substitute per column"),
    ("V12-degrees", "scorers[0].terms[1]", (1, 1), "terms do not all have one degree"),
    ("V12-degree", "scorers[0].terms", ((0,) * 4,) * 3, "terms do not all have one degree of 1 to 3"),
    ("V12-no-degree", "scorers[0].terms", ((),) * 3, "terms do not all have one degree of 1 to 3"),
    ("V12-position", "scorers[0].terms[1]", (3,), "term position 3 is named"),
    ("V12-rows", "scorers[0].bias", (7,), "2 rows of weights for 1 outputs"),
    ("V12-row", "scorers[0].weights[1]", (1, 2), "2 weights for 3 terms"),
    ("V12-bits", "scorers[0].weight_bits", 32, "weights have 32 bits, 8 or 16 are expected"),
    ("V13-draft", "scorers[0].weights[0]", (1.0, 2, 3), "quantise this draft first"),
    ("V13-draft-bias", "scorers[0].bias", (7.5, 8), "quantise this draft first"),
    ("V13-draft-leaf", "scorers[1].trees[0].leaves", (0.5, 1), "quantise this draft first"),
    ("V13-draft-base", "scorers[1].base", (0.5, 1), "quantise this draft first"),
    ("V13-draft-margin", "nodes[2].margins", (0.5, 1), "node 2: a margin is 0.5"),
    ("V13-draft-threshold", "nodes[1].threshold", 0.5, "node 1: the threshold is 0.5"),
    ("V13-constant", "scorers[0].constant", 32768, "the constant is 32768"),
    ("V13-substitute", "scorers[0].substitutes", (None, -32768), "a substitute is -32768"),
    ("V13-weight", "scorers[0].weights[0]", (32768, 0, 0), "a weight is 32768"),
    ("V13-weight-8", "scorers[0]", lambda s: replace(s, weights=((128, 0, 0),) * 2, weight_bits=8), "a weight is 128"),
    ("V13-bias", "scorers[0].bias", (SAFE + 1, 0), "a bias is"),
    ("V13-stack-weight", "scorers[2].weights[0]", (-32768, 0), "scorer 2: a weight is -32768"),
    ("V14-sum", "scorers[0].bias", (SAFE - 1, 0), "scorer 0: a sum may reach"),
    ("V14-cubes", "scorers[0]", lambda s: replace(s, terms=((0, 0, 0),) * 5, weights=((32767,) * 5,) * 2), "may reach"),
    ("V14-stack", "scorers[2].bias", (SAFE - 16, 0), "scorer 2: a sum may reach"),
    ("V15-nullable", "scorers[0].substitutes", (None, None), "scorer 0 reads feature 1, which may be missing"),
    ("V15-opaque", "scorers[3].features", (1,), "scorer 3 reads feature 1, which may be missing"),
    ("V16-output", "scorers[1].trees[1].output", 2, "tree 1: outputs 2 to 3 of 2"),
    ("V16-minus-output", "scorers[1].trees[1].output", -1, "tree 1: outputs -1 to 0 of 2"),
    ("V16-width", "scorers[1].trees[0].width", 0, "tree 0: outputs 0 to 0 of 2"),
    ("V16-thresholds", "scorers[1].trees[0].thresholds", (), "tree 0: 1 nodes need 1 thresholds"),
    ("V16-missing", "scorers[1].trees[0].missing_left", (), "tree 0: 1 nodes need"),
    ("V16-leaves", "scorers[1].trees[0].leaves", (1,), "2 leaves of width 1"),
    ("V16-position", "scorers[1].trees[0].splits", (3,), "tree 0: column position 3 is named"),
    ("V16-incomplete", "scorers[1].trees[1].children", (), "2 nodes are not a complete tree"),
    ("V16-few-children", "scorers[1].trees[1].children", ((-1, -2),), "1 pairs of children for 2 nodes"),
    ("V16-leaf-twice", "scorers[1].trees[1].children", ((1, -1), (-2, -2)), "child of exactly one node"),
    ("V16-back", "scorers[1].trees[1].children", ((-1, -2), (1, -3)), "node 1 leads back"),
    ("V16-root-again", "scorers[1].trees[1].children", ((0, -1), (-2, -3)), "child of exactly one node"),
    ("V17-leaf", "scorers[1].trees[0].leaves", (32768, 0), "tree 0: a leaf is 32768"),
    ("V17-threshold", "scorers[1].trees[0].thresholds", (-32768,), "tree 0: a threshold is -32768"),
    ("V17-missing-right", "scorers[1].trees[1].thresholds", (32767, 0), "would send missing to the left"),
    ("V17-columns", "scorers[1].columns", (0,) * 16_384, "16384 columns, at most 16383"),
    (
        "V17-nodes",
        "scorers[1].trees[0]",
        d.Tree(0, 1, (0,) * 65_535, (0,) * 65_535, (True,) * 65_535, (), (0,) * 65_536),
        "65535 nodes, at most 32767",
    ),
    ("V18-sum", "scorers[1].base", (2**31 - 10, 0), "scorer 1: a sum may reach 2147483648"),
    ("V19-later", "scorers[2].trees", 2, "stands on scorer 2, which must come before"),
    ("V19-unknown", "scorers[2].trees", -1, "stands on scorer -1"),
    ("V19-no-trees", "scorers[2].trees", 0, "stands on scorer 0, which has no trees"),
    ("V19-member", "scorers[2].members", (0, 2), "scorer 2: tree 2 is named"),
    ("V19-twice", "scorers[2].members", (1, 1), "scorer 2 names a tree twice"),
    ("V19-wide", "scorers[1].trees[0]", lambda t: replace(t, width=2, leaves=(1, 2, 3, 4)), "leaves of width 2, not 1"),
    ("V19-rows", "scorers[2].bias", (5,), "2 rows of weights for 1 outputs"),
    ("V19-row", "scorers[2].weights[0]", (1,), "1 weights for 2 trees"),
    ("V20-empty", "scorers[3].low", (10,), "the declared range 10 to 9 is empty"),
    ("V20-count", "scorers[3].high", (10, 11), "1 lower and 2 upper bounds"),
    ("V20-wide", "scorers[3].high", (SAFE,), "an upper bound is"),
    ("V21-back", "nodes[3].then", 3, "node 3 leads to 3"),
    ("V21-beyond", "nodes[7].otherwise", 10, "node 7 leads to 10"),
    ("V21-minus", "nodes[4].targets[0]", -1, "node 4 leads to -1"),
    ("V21-lost", "nodes[1].targets", (3, 3), "node 2 cannot be reached"),
    ("V22-sensor", "nodes[3].sensors", (1, 3), "node 3: sensor 3 is named"),
    ("V22-forward-sensor", "nodes[6].sensors", (-1,), "node 6: sensor -1 is named"),
    ("V22-twice", "nodes[3].sensors", (1, 2, 1), "node 3 names a sensor twice"),
    ("V22-nothing", "nodes[3].sensors", (), "node 3 buys nothing"),
    ("V23-nothing-to-say", "uplink", d.Uplink(), "node 6 forwards, but the uplink carries no feature"),
    ("V23-again", "", second_forward, "node 0: its fallback forwards again"),
    ("V24-scorer", "nodes[4].scores.scorer", 5, "node 4: scorer 5 is named"),
    ("V24-stop", "nodes[4].scores.stop", 3, "node 4: outputs 0 to 3 of 2"),
    ("V24-empty", "nodes[4].scores.start", 2, "node 4: outputs 2 to 2 of 2"),
    ("V24-start", "nodes[4].scores.start", -1, "node 4: outputs -1 to 2 of 2"),
    ("V25-rule", "nodes[4].rule", "coin", "rule coin"),
    ("V25-threshold", "nodes[1].scores.stop", 2, "rule threshold with 2 scores"),
    ("V25-margin", "nodes[1]", d.Branch(d.Slice(0, 0, 2), "margin", (2, 3, 3), 4),
     "rule margin with 2 scores, 3 targets"),
    ("V25-argmax", "nodes[4].targets", (5, 6, 6), "rule argmax with 2 scores, 3 targets"),
    ("V25-tournament", "nodes[5].targets", (6, 7, 8, 8), "rule tournament with 2 scores, 4 targets"),
    ("V25-matches", "nodes[5].bracket", ((0, 1),), "3 targets and 1 matches"),
    ("V25-match-of-three", "nodes[5].bracket", ((0, 1, 1), (3, 2)), "3 targets and 2 matches"),
    ("V25-idle-matches", "nodes[4].bracket", ((0, 1),), "rule argmax with 2 scores, 2 targets and 1 matches"),
    ("V25-early-winner", "nodes[5].bracket", ((0, 3), (1, 2)), "match 0: entrant 3 is named"),
    ("V25-plays-twice", "nodes[5].bracket", ((0, 1), (0, 3)), "must play exactly once"),
    ("V25-threshold-range", "nodes[1].threshold", SAFE + 1, "node 1: the threshold is"),
    ("V26-classes", "n_classes", 3, "node 2 answers with 2 scores for 3 classes"),
    ("V26-kind", "nodes[9].kind", "guess", "answers a guess"),
    ("V26-value-among-classes", "nodes[8].kind", "value", "answers a value with 1 scores in a program of 2 classes"),
    ("V26-class-among-values", "n_classes", 0, "for 0 classes"),
    ("V26-shift-of-a-class", "nodes[2].shift", -1, "node 2: the shift is -1, outside"),
    ("V26-margins", "nodes[2].margins", (2, 2), "node 2: margins do not increase"),
    ("V26-confidences", "nodes[2].confidences", (1, 2), "one confidence more"),
    ("V26-confidence", "nodes[2].confidences", (1, 2, 10_001), "outside 0 to 10000"),
    ("V26-minus-confidence", "nodes[2].confidences", (-1, 2, 3), "outside 0 to 10000"),
    ("V27-none", "nodes[7].candidates", (), "node 7 has no candidate"),
    ("V27-size", "nodes[7].candidates[0].max_size", 0, "for items of at most 0"),
    ("V27-cost", "nodes[7].candidates[0].cost", (-1,), "node 7: the cost of a candidate has the coefficient -1"),
    ("V27-no-cost", "nodes[7].candidates[0].cost", (), "node 7: the cost of a candidate has 0 coefficients"),
    ("V28-not-tried", "", hasty, "node 9: scorer 5 reads sensor 2, which some path to it has not tried"),
    ("V28-trees", "nodes[2].scores", d.Slice(1, 0, 2),
     "node 2: scorer 1 reads sensor 2, which no path to it has tried"),
    ("V28-stack", "nodes[2].scores", d.Slice(2, 0, 2),
     "node 2: scorer 2 reads sensor 2, which no path to it has tried"),
    ("V28-at-once", "nodes[3].sensors", (1,), "node 4: scorer 1 reads sensor 2, which no path to it has tried"),
    ("V29-may-have-failed", "nodes[0].otherwise", 1, "node 1: scorer 0 reads sensor 0, which some path to it may"),
    ("V29-opaque", "nodes[9].scores", d.Slice(3, 0, 1), "node 9: scorer 3 reads sensor 0, which some path to it may"),
    ("V1-scorers", "scorers", lambda s: s * 13_108, "65540 scorers, at most 65535"),
    ("V3-bytes", "", wide_sensor, "sensor 3 gives 262152 bytes, at most 262144"),
    ("V25-targets", "", lambda _: wide_branch(16_385), "node 0 has 16385 targets, at most 16384"),
    ("V27-sum", "nodes[7].candidates[0].cost", (0, SAFE // 10 + 1), "a candidate may cost"),
    ("V30-operations", "", costly, "operations, at most 4000000"),
    ("V30-targets-and-sensors", "", lambda _: branch_bomb(1, 16_384), "operations, at most 4000000"),
    ("V31-columns-of-scorers", "", lambda _: stacked(700), "steps to prove and lay out, at most 5000000"),
    ("V31-scorers", "", lambda _: empty_ensembles(240), "steps to prove and lay out, at most 5000000"),
    ("V32-cells", "", many_cells, "scorers read 65540 codes"),
    ("V33-session", "", lambda _: unread_outputs(300, 2_000), "a session takes 4800399 bytes, at most 4194304"),
    ("V33-network", "", networked(layers=(WIDE,)), "a session takes"),
    ("V15-network", "", networked(substitutes=(None,) * 4), "scorer 5 reads feature 1, which may be missing"),
    ("V34-none", "", networked(layers=()), "scorer 5 has no layer"),
    ("V34-columns", "", networked(shape=(2, 2, 2)), "scorer 5 reads 4 columns, but its shape is (2, 2, 2)"),
    ("V34-side", "", networked(shape=(4, 65_536, 1)), "1 to 65535 are allowed"),
    ("V34-substitutes", "", networked(substitutes=(1,)), "one substitute per column"),
    ("V34-kind", "", layered(kind="dense"), "layer 0 is 'dense', not conv, depthwise"),
    ("V34-stride", "", layered(stride=(0, 1)), "1 to 65535 are allowed"),
    ("V34-padding", "", layered(padding=(2, 0)), "1 windows of 2, a step of 1 and 2 before do not fit 2"),
    ("V34-windows", "", layered(shape=(3, 1, 2)), "3 windows of 2, a step of 1 and 0 before do not fit 2"),
    ("V34-channels", "", layered(kind="depthwise"), "layer 0 has 2 channels, its input 1"),
    ("V34-weights", "", layered(weights=(1,) * 7), "7 weights, 8 are expected"),
    ("V34-biases", "", layered(bias=(1,)), "one bias, multiplier and shift for each of 2 channels"),
    ("V34-pool", "", layered(kind="max", shape=(1, 1, 1)), "a pool has weights or a zero point of its own"),
    ("V35-column", "", networked(columns=(0,) * 4), "column 0, whose codes are not held within -128 to 127"),
    ("V35-rank", "", networked(columns=(1,) * 4), "column 1, whose codes are not held within -128 to 127"),
    ("V35-substitute", "", networked(substitutes=(128,) * 4), "a substitute is 128, outside -128 to 127"),
    ("V35-zero", "", networked(zero_point=-129), "the zero point is -129"),
    ("V35-weight", "", layered(weights=(1,) * 7 + (-129,)), "a weight is -129"),
    ("V35-bias", "", layered(bias=(0, 2**31)), "a bias is 2147483648"),
    ("V35-multiplier", "", layered(multipliers=(1, -1)), "a multiplier is below 0"),
    ("V35-shift", "", layered(shifts=(0, 31)), "a shift is below 1"),
    ("V35-shift-63", "", layered(shifts=(63, 31)), "a shift is 63"),
    ("V35-clamp", "", layered(low=-129), "outputs of -129 to 127 around 0 are out of range"),
    ("V35-clamp-empty", "", layered(low=3, high=2), "outputs of 3 to 2 around 0 are out of range"),
    ("V35-outputs", "", layered(zero_point=128), "outputs of -128 to 127 around 128 are out of range"),
    ("V36-sum", "", layered(bias=(0, 2**31 - 1)), "a sum may reach 2147484159 and overflow 32 bits"),
    ("V36-operations", "", networked(layers=(replace(POOL, window=(8_000, 4_001)),)), "takes 4001008 operations"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "new", "said"), [pytest.param(*row[1:], id=row[0]) for row in RULES])
def test_a_program_that_breaks_one_rule_is_refused_and_the_place_is_named(place: str, new: Any, said: str) -> None:
    program = new(good()) if place == "" else change(good(), place, new)
    with pytest.raises(ProgramError) as caught:
        verify(program)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_rule_of_the_specification_is_broken_here_and_no_other() -> None:
    numbered = {line.split(".")[0].strip("* ") for line in SPEC.read_text().splitlines() if line.startswith("**V")}
    assert numbered == {row[0].split("-")[0] for row in RULES}
    assert len(numbered) == 36


# ---------------------------------------------------------------- verified means safe


@given(programs(4), seeds)
@settings(max_examples=300)
def test_one_thing_changed_is_refused_or_still_runs_safely(program: d.Program, seed: int) -> None:
    rng = random.Random(seed)
    changed = mutate(program, rng)
    try:
        report = verify(changed)
    except ProgramError:
        return
    assert decode(encode(changed)) == (changed, False)
    for k in range(3):
        world = Driver(changed, seed + k, garbage=0.05)
        decision = world.run()  # fails if the session raises, loops, or asks for a sensor twice
        assert world.budget is None or decision.cost <= world.budget
        assert world.requests > 1 or decision.cost <= report.worst_cost


def test_the_mutations_both_break_and_keep_programs() -> None:
    verdicts = {True: 0, False: 0}
    for seed in range(400):
        changed = mutate(random_program(seed), random.Random(seed))
        try:
            verify(changed)
        except ProgramError:
            verdicts[False] += 1
        else:
            verdicts[True] += 1
    assert min(verdicts.values()) >= 50, verdicts


# ---------------------------------------------------------------- what the report says


def chain(n: int, width: int = 1) -> d.Program:
    """Every sensor may be bought or not: 2 to the n sets of sensors reach the end."""
    sensors = tuple(d.Sensor((), (2**k % 1_000_003,)) for k in range(n))
    nodes: list[Any] = []
    for k in range(n):
        nodes.append(d.Branch(d.Slice(0, 0, 1), "threshold", (2 * k + 1, 2 * k + 2)))
        nodes.append(d.Acquire((k,), 2 * k + 2, 2 * k + 2))
    scorer = d.Polynomial((), (), 1, ((0,),), ((0,),), (0,))
    return d.Program((), sensors, d.Uplink(), (), (scorer,), (*nodes, d.Answer(d.Slice(0, 0, 1), "value")), 0)


def test_the_costs_of_a_small_program_are_exact() -> None:
    report = verify(chain(8))
    assert (report.worst_cost, report.best_cost, report.is_exact) == (255, 0, True)


def test_too_many_paths_give_a_bound_that_says_so() -> None:
    program = chain(40)
    report = verify(program)
    assert not report.is_exact
    assert report.worst_cost == sum(s.cost[0] for s in program.sensors)
    assert report.best_cost == 0


def test_a_worst_case_is_reached_and_not_passed() -> None:
    column = d.Column(0, d.Affine(0, 1, 0, 0))
    cube = d.Polynomial((0,), (0,), 1, ((0, 0, 0),) * 2, ((32767, 32767),), (0,))
    program = d.Program((d.Feature("i32"),), (d.Sensor((0,), (1,)),), d.Uplink(), (column,), (cube,), (), 0)
    nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(0, 0, 1), "value"))
    assert SAFE > 2 * 32767 * 32767**3
    program = replace(program, nodes=nodes)
    verify(program)
    world = Driver(program, 0)
    world.failing = world.dead = frozenset()
    world.budget, world.readings = None, [10**9]
    assert world.run().result == 2 * 32767**4
    with pytest.raises(ProgramError, match="may reach"):
        verify(change(program, "scorers[0].bias", (SAFE - 2 * 32767**4,)))
    verify(change(program, "scorers[0].bias", (SAFE - 2 * 32767**4 - 1,)))


def test_the_shift_of_a_value_is_in_range_and_keeps_it_in_64_bits() -> None:
    program = chain(1)
    for shift in (-62, 62):
        verify(change(program, "nodes[2].shift", shift))  # its score is always 0
    for shift in (-63, 63):
        with pytest.raises(ProgramError, match=f"node 2: the shift is {shift}, outside"):
            verify(change(program, "nodes[2].shift", shift))
    program = change(change(program, "scorers[0].bias", (-5,)), "nodes[2].shift", 59)
    verify(program)
    with pytest.raises(ProgramError, match=r"node 2: a value of 5 times 2\^60 overflows 64 bits"):
        verify(change(program, "nodes[2].shift", 60))


# ---------------------------------------------------------------- proving is bounded, too


def many_stacks() -> d.Program:
    tree = d.Tree(0, 1, (0,) * 32_767, (0,) * 32_767, (True,) * 32_767, (), (1,) * 32_768)
    trees = d.Trees((0,), (0,), (tree,) * 20)
    stack = d.Stack(0, tuple(range(20)), ((1,) * 20,), (0,))
    base = d.Program((d.Feature("f64"),), (d.Sensor((0,), (1,)),), d.Uplink(), (d.Column(0, d.Rank(())),), (), (), 0)
    nodes = (d.Acquire((0,), 1, 1), d.Answer(d.Slice(1, 0, 1), "value"))
    return replace(base, scorers=(trees, *[stack] * 3000), nodes=nodes)


def wide_and_long() -> d.Program:
    scorer = d.Polynomial((), (), 1, ((0,),), ((0,),), (0,))
    everything = tuple(range(8_192))
    nodes = [d.Acquire(everything, k + 1, k + 1) for k in range(300)]
    sensors = (d.Sensor((), (1,)),) * 8_192
    return d.Program((), sensors, d.Uplink(), (), (scorer,), (*nodes, d.Answer(d.Slice(0, 0, 1), "value")), 0)


def one_big_scorer_read_often() -> d.Program:
    columns = tuple(d.Column(f, d.Affine(0, 1, 0, 0)) for f in range(8_000))
    trees = d.Trees(tuple(range(8_000)), (0,), ())
    sensor = d.Sensor(tuple(range(8_000)), (1,))
    nodes = [d.Branch(d.Slice(0, 0, 1), "threshold", (k + 1, k + 1)) for k in range(1, 16_000)]
    scorers = (trees,)
    return d.Program(
        (d.Feature("f32"),) * 8_000, (sensor,), d.Uplink(), columns, scorers,
        (d.Acquire((0,), 1, 1), *nodes, d.Answer(d.Slice(0, 0, 1), "value")), 0,
    )  # fmt: skip


def test_an_opaque_scorer_counts_a_column_once_and_an_output_twice() -> None:
    opaque = d.Opaque((0,), b"model", (0, 0, 0), (9, 9, 9))
    proved = prove_scorer(replace(good(), scorers=(opaque,)), 0, ())
    assert (proved.operations, proved.work) == (0, 1 + 2 * 3)


@pytest.mark.parametrize("make", [many_stacks, wide_and_long, one_big_scorer_read_often, lambda: chain(4000)])
def test_no_program_keeps_the_verifier_busy(make: Callable[[], d.Program]) -> None:
    program = make()
    started = time.process_time()
    verify(program)
    assert time.process_time() - started < 60, "some three seconds, and not with the square of its size"
