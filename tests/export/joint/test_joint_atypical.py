# SPDX-License-Identifier: Apache-2.0
"""The score of atypical parts: it changes no label, purchase or cost, and everyone computes it alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardcase_edge.bundle.evidence import is_above
from hardcase_edge.bundle.load import Loaded, load_bytes
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.device.parts import open_part_bank
from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import ANYTIME, ONE_SHOT
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.session import JointDecision
from hardcase_edge.kernel.machine import has_kernel
from hardcase_edge.program.definition import MICRO, Answer, Branch, Costs
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.decide import decide_rows
from hardcase_export.joint.model import decide_floats
from hardcase_export.joint.quantise import Asking
from tests.helpers.export.joint_models import small_chain, small_items

SHARE = 0.05
TRAIN, HELD, FRESH = (small_items(n, seed)[0] for n, seed in ((300, 3), (200, 4), (40, 5)))
FAR = [item * np.where(np.arange(item.shape[1]) < 3, 4, 1) for item in FRESH]  # readings that no training row has
SETTINGS: dict[str, dict[str, Any]] = {
    ONE_SHOT: {},
    ANYTIME: {},
    "asking": {"hpc": "ab" * 32, "asking": Asking(0.5), "costs": Costs(9 * MICRO)},
}


def make(name: str, atypical: float | None = SHARE, held: Sequence[np.ndarray] = HELD) -> Loaded:
    model = small_chain(release=ANYTIME if name == ANYTIME else ONE_SHOT)
    rng = np.random.default_rng(6)
    truth = [np.where(rng.random(len(x)) < 0.1, 0, decide_floats(model, x).labels) for x in held]
    made = export_chain(
        model, TRAIN, held, truth, name="codes", unit="ms", max_parts=6, atypical=atypical, **SETTINGS[name]
    )
    return load_bytes(made.data, allow_joint=True)


@pytest.fixture(scope="module", params=SETTINGS)
def pair(request: pytest.FixtureRequest) -> tuple[Loaded, Loaded]:
    """The bundle without and with the score."""
    return make(request.param, None), make(request.param)


@pytest.fixture(scope="module")
def scored() -> Loaded:
    return make(ONE_SHOT)


def above_in(loaded: Loaded, decision: JointDecision) -> list[bool | None]:
    return [is_above(p.trace, loaded.bundle.program, loaded.manifest.atypical) for p in decision.parts]


def test_no_label_purchase_or_cost_changes_and_parts_that_are_far_off_are_found(pair: tuple[Loaded, Loaded]) -> None:
    plain, scored = pair
    found = {}
    for name, items in (("fresh", FRESH), ("far", FAR)):
        above: list[bool | None] = []
        for item in items:
            for settings in ({}, {"cloud": False}, {"budget": 9 * 10**6}):
                a, b = (decide_rows(loaded.joint, item, **settings) for loaded in (plain, scored))
                assert (a.labels, a.cost, a.route, a.confidence) == (b.labels, b.cost, b.route, b.confidence)
                assert [p.sensors for p in a.parts] == [p.sensors for p in b.parts]
            above += above_in(scored, decide_rows(scored.joint, item, cloud=False))
        assert None not in above
        found[name] = np.mean([a is True for a in above])
    assert found["fresh"] < 3 * SHARE
    assert found["far"] > 0.5


@pytest.mark.skipif(not has_kernel(), reason="the kernel is needed: hardcase-edge doctor --build")
def test_the_kernel_decides_items_with_the_score_alike(pair: tuple[Loaded, Loaded]) -> None:
    bundle = pair[1].bundle
    machines = [open_joint(bundle.program, bundle.joint, evaluator) for evaluator in ("python", "kernel")]
    for item in (*FRESH, *FAR):
        for settings in ({}, {"cloud": False}, {"budget": 9 * 10**6}, {"dead": (1,)}):
            a, b = (decide_rows(machine, item, **settings) for machine in machines)
            assert a == b


def test_a_threshold_leaves_at_most_the_share_of_held_out_parts_above_it(pair: tuple[Loaded, Loaded]) -> None:
    loaded = pair[1]
    claims = loaded.manifest.claims["atypical"]
    assert claims["share"] == SHARE
    assert claims["parts"]["n"] == sum(map(len, HELD)) == claims["parts"]["scored"]
    assert 0 < claims["parts"]["atypical"] <= SHARE * claims["parts"]["scored"]
    nodes = loaded.bundle.program.nodes
    for k in loaded.manifest.atypical:
        node = nodes[k]
        assert isinstance(node, Branch)
        own, other = (nodes[t] for t in node.targets)
        assert isinstance(own, Answer)
        assert isinstance(other, Answer)
        assert own.scores == other.scores
        assert own.confidences == (10_000,) > other.confidences


def records_of(loaded: Loaded, items: Sequence[np.ndarray], folder: Path, *specs: str) -> list[dict[str, Any]]:
    model = small_chain()
    lines = [",".join(["item", *model.cheap.features, *model.dear.features])]
    lines += [",".join([f"i{k}", *map(repr, row)]) for k, item in enumerate(items) for row in item.tolist()]
    path = folder / "items.csv"
    path.write_text("\n".join(lines) + "\n")
    assert loaded.joint is not None
    bank = open_part_bank([f"replay:{path}", *specs], loaded.machine.program, loaded.manifest, loaded.joint.inner)
    return list(Device(loaded, bank, None, RuntimeConfig()).run())


def test_a_record_names_the_atypical_parts_and_their_confidence_is_that_of_such_parts(
    scored: Loaded, tmp_path: Path
) -> None:
    nodes, n_atypical, n_lowered = scored.bundle.program.nodes, 0, 0
    for item, record in zip((*FRESH, *FAR), records_of(scored, (*FRESH, *FAR), tmp_path), strict=True):
        d = decide_rows(scored.joint, item, cloud=False)
        assert record["atypical"] == [p for p, above in enumerate(above_in(scored, d)) if above]
        caps = {p: nodes[d.parts[p].trace[-1]].confidences[0] for p in record["atypical"]}
        own = [min(part.confidence, caps.get(p, 10_000)) for p, part in enumerate(d.parts)]
        assert record["confidences"] == [c / 10_000 for c in own]
        assert record["confidence"] == min([d.confidence, *caps.values()]) / 10_000
        n_atypical += len(caps)
        n_lowered += sum(a < part.confidence for a, part in zip(own, d.parts, strict=True))
    assert n_lowered > n_atypical / 2 > 0


def test_a_part_without_a_sensor_that_it_wanted_has_no_confidence_as_before(scored: Loaded, tmp_path: Path) -> None:
    records = records_of(scored, FAR, tmp_path, "hog=none")
    lost = [(r, p) for r in records for p in r["failed"].get("hog", [])]
    assert lost
    assert all(r["confidences"][p] is None and r["confidence"] is None for r, p in lost)


def test_a_bundle_without_the_score_has_no_such_key(tmp_path: Path) -> None:
    loaded = make(ONE_SHOT, None)
    assert not loaded.manifest.atypical
    assert "atypical" not in loaded.manifest.claims
    assert all("atypical" not in record for record in records_of(loaded, FRESH[:5], tmp_path))


def test_what_the_score_lacks_is_one_line() -> None:
    with pytest.raises(InputError, match="40 held-out parts"):
        make(ONE_SHOT, held=HELD[:5])
    with pytest.raises(InputError, match=r"atypical is 0\.7"):
        make(ONE_SHOT, 0.7)
