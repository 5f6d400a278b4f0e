# SPDX-License-Identifier: Apache-2.0
"""The picture of a policy: what its boxes say is true of the rows, and it stays readable for programs of any size."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from hardcase.cli import main
from hardcase.measuring.measure import NodeFigures, node_figures
from hardcase.reports.policy_boxes import ANSWER, CLOUD, MORE, flow_of
from hardcase.reports.policy_picture import BOX, place_boxes, policy_svg
from hardcase.reports.policy_states import states_of
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.definition import MARGIN, Acquire, Answer, Branch, Program, Slice
from hardcase_edge.session.session import CLOUD as TO_CLOUD
from hardcase_edge.session.session import Decision
from hardcase_export.bundle import export_bundle
from hardcase_export.integers.decide import decisions
from tests.helpers.cli.pages import HOSTILE
from tests.helpers.edge.c_programs import random_cases
from tests.helpers.edge.strategies import random_program
from tests.helpers.export.builds import MANIFEST, SENSORS, cascade_draft, make_build, make_rows, static_draft


@pytest.fixture(scope="module")
def decided() -> tuple[Program, list[Decision], np.ndarray]:
    """A cascade that forwards, its decisions on rows, and their classes."""
    X, y = make_rows(200, 3)
    X[:20, 2] = np.nan  # the sensor "middle" fails
    program = cascade_draft()
    return program, decisions(program, X, y, [9000] * len(y)), y


def manifest_of(program: Program) -> Manifest:
    """Names for any program."""
    features = tuple(f"f{k} {HOSTILE[k % 3]}" for k in range(len(program.features)))
    sensors = tuple(f"s{k} {HOSTILE[k % 3]}" for k in range(len(program.sensors)))
    return Manifest(HOSTILE[2], HOSTILE[0], features, sensors, tuple(range(program.n_classes)))


# ---------------------------------------------------------------- what the boxes say


def test_every_row_ends_at_a_node_at_its_whole_cost(decided: tuple[Program, list[Decision], np.ndarray]) -> None:
    program, made, y = decided
    f = node_figures(program, made, y.tolist())
    assert sum(f.ended) == f.n == f.rows[0] == len(y)
    assert sum(f.lost) == sum(d.result != label for d, label in zip(made, y, strict=True))
    total = sum(n * cost for n, cost in zip(f.ended, f.cost, strict=True))
    assert total == pytest.approx(sum(to_unit(d.cost) for d in made))
    for node in range(1, len(program.nodes)):
        assert f.rows[node] == sum(rows for (_, to), rows in f.steps.items() if to == node)
        assert f.rows[node] == f.ended[node] + sum(rows for (at, _), rows in f.steps.items() if at == node)


def test_boxes_and_arrows_keep_every_row(decided: tuple[Program, list[Decision], np.ndarray]) -> None:
    program, made, y = decided
    flow = flow_of(program, MANIFEST, node_figures(program, made, y.tolist()))
    ends = [box for box in flow.boxes if box.kind in (ANSWER, CLOUD)]
    assert sum(box.rows or 0 for box in ends) == flow.n == 200
    assert next(b.rows for b in ends if b.kind == CLOUD) == sum(d.route == TO_CLOUD for d in made)
    assert flow.left_out == len(program.nodes) - len({node for d in made for node in d.trace})
    assert all(a.rows for a in flow.arrows)


def test_nodes_that_follow_each_other_share_a_box_with_its_question(
    decided: tuple[Program, list[Decision], np.ndarray],
) -> None:
    program, made, y = decided
    works = [(d, label) for d, label in zip(made, y.tolist(), strict=True) if d.trace[:3] == (0, 1, 2)][20:]
    figures = node_figures(program, [d for d, _ in works], [label for _, label in works])
    start = flow_of(program, MANIFEST, figures).boxes[0]
    assert start.title == "buy near, middle"
    assert start.lines[:2] == ("30.00 mJ", "sure? margin ≥ 0.35 (80 % right)")
    assert start.lines[2].replace("\xa0", " ") == "100 % of rows, 30.00 mJ so far"


def test_without_rows_a_picture_shows_the_way_without_failures() -> None:
    program = replace(
        static_draft(), nodes=(Acquire((2,), 2, 1), Acquire((0,), 2, 2), Answer(Slice(0, 0, 3)))
    )  # what is bought instead is not shown
    flow = flow_of(program, MANIFEST, None)
    assert [box.title for box in flow.boxes] == ["buy far", "answer"]
    assert (flow.n, flow.left_out, flow.boxes[0].rows) == (None, 1, None)
    assert "1 more nodes, for failed sensors" in policy_svg(program, MANIFEST)


# ---------------------------------------------------------------- size and safety


def long_program(n: int) -> Program:
    """A chain of n questions, each with an answer of its own."""
    part = Slice(0, 0, 3)
    questions = [Branch(part, MARGIN, (k + 1, n + k), 5 * k / n) for k in range(n)]
    return replace(static_draft(), nodes=(*questions, *(Answer(part) for _ in range(n))))


def test_a_program_of_hundreds_of_nodes_has_a_small_picture() -> None:
    program = long_program(200)
    flow = flow_of(program, MANIFEST, None)
    assert len(flow.boxes) <= 14
    assert flow.boxes[-1].kind == MORE
    assert len(policy_svg(program, MANIFEST)) < 40_000
    n = len(program.nodes)
    figures = NodeFigures(10, (10,) * n, (1.0,) * n, (0,) * n, (0,) * n, {(k, k + 1): 10 for k in range(199)})
    assert len(flow_of(program, MANIFEST, replace(figures, steps=flow_steps(program))).boxes) <= 32


def flow_steps(program: Program) -> dict[tuple[int, int], int]:
    return {(k, t): 5 for k, node in enumerate(program.nodes) if isinstance(node, Branch) for t in node.targets}


def test_a_large_policy_is_shown_by_the_sensors_that_rows_have_bought() -> None:
    rng = random.Random(0)
    sensors = tuple(replace(SENSORS[0], features=(k,)) for k in range(6))
    order = [rng.sample(range(6), 6) for _ in range(60)]
    program = replace(static_draft(), sensors=sensors, nodes=tuple(Acquire((s,), 1, 1) for s in range(6)))
    manifest = replace(MANIFEST, sensors=tuple("abcdef"))
    made = [
        Decision(0, 0, "cloud" if k % 5 == 0 else "local", 0, tuple(sorted(way[: k % 7])), tuple(way[: k % 7]))
        for k, way in enumerate(order)
    ]
    flow = states_of(program, manifest, made, [k % 2 for k in range(60)], limit=8)
    assert len(flow.boxes) == 10  # eight states, the others, f0
    assert (flow.boxes[0].title, flow.boxes[0].rows) == ("no sensor yet", 60)
    assert [b.kind for b in flow.boxes[-2:]] == [MORE, CLOUD]
    ended = [line for b in flow.boxes[:-2] for line in b.lines if "answered here" in line]
    assert ended
    into = {k: sum(a.rows or 0 for a in flow.arrows if a.target == k) for k in range(1, 8)}
    assert all(into[k] <= (flow.boxes[k].rows or 0) for k in into)


@pytest.mark.parametrize("seed", range(12))
def test_any_program_has_a_picture_that_is_xml_and_holds_no_script(seed: int) -> None:
    program = random_program(seed, seed % 6)
    cases = random_cases(program, seed, 8)
    manifest = manifest_of(program)
    made = [c.expected for c in cases]
    for svg in (policy_svg(program, manifest), policy_svg(program, manifest, made, [0] * len(made))):
        root = ElementTree.fromstring(svg)
        assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {"svg", "style", "g", "title", "text", "rect", "path"}
        assert not {a for e in root.iter() for a in e.attrib if a.startswith("on") or "href" in a}
        assert "nan" not in svg


def test_boxes_of_a_layer_never_overlap() -> None:
    for seed in range(12):
        program = random_program(seed, seed % 6)
        layers, ways = place_boxes(flow_of(program, manifest_of(program), None))
        for layer in layers:
            places = [(i.x - i.width / 2, i.x + i.width / 2) for i in layer]
            assert all(a[1] < b[0] for a, b in itertools.pairwise(places))
        assert all(way[k].layer + 1 == way[k + 1].layer for way in ways.values() for k in range(len(way) - 1))
        assert all(item.x >= BOX / 2 for layer in layers for item in layer if item.box is not None)


# ---------------------------------------------------------------- hardcase inspect --svg


def test_inspect_draws_a_bundle_with_rows_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = make_build(tmp_path / "build")
    export_bundle(build, build / "model.hcb", max_loss=0.01)
    out = tmp_path / "policy.svg"
    assert main(["inspect", str(build / "model.hcb"), "--svg", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    without = out.read_text(encoding="utf-8")
    assert "claimed for its test rows: accuracy" in without
    assert "% of rows" not in without.replace("\xa0", " ")
    assert main(["inspect", str(build / "model.hcb"), "--svg", str(out), "--rows", str(build / "test.npz")]) == 0
    (tmp_path / "mine.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    assert main(["inspect", str(build / "model.hcb"), "--svg", str(tmp_path / "mine.svg")]) == 2
    assert "mine.svg exists and is not a picture that hardcase drew; name another" in capsys.readouterr().err
    assert (tmp_path / "mine.svg").read_text() == '<svg xmlns="http://www.w3.org/2000/svg"/>'
    with_rows = out.read_text(encoding="utf-8").replace("\xa0", " ")
    assert "300 rows of test.npz" in with_rows
    assert "100 % of rows" in with_rows
    capsys.readouterr()
    assert main(["inspect", str(build / "model.hcb"), "--rows", str(build / "test.npz")]) == 2
    assert (
        capsys.readouterr().err == "hardcase inspect: --rows and --hpc are for the picture; name its file with --svg\n"
    )
