# SPDX-License-Identifier: Apache-2.0
"""Joint bundles from a chain in floats: the integers decide as the floats do, and the bundle is whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hardcase_edge.bundle.load import load_bundle, load_bytes
from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.program.definition import MICRO, Costs
from hardcase_export.joint.build import export_chain, table_of
from hardcase_export.joint.decide import decide_rows
from hardcase_export.joint.model import MOST_ROUNDS, ChainModel, decide_floats
from hardcase_export.joint.quantise import Asking
from tests.helpers.export.joint_models import small_chain, small_items

ITEMS, _ = small_items(60)


def labels_of(model: ChainModel) -> list[np.ndarray]:
    return [decide_floats(model, item).labels for item in ITEMS]


@pytest.mark.parametrize("release", [ONE_SHOT, ANYTIME])
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_integers_decide_as_the_floats(release: str, dtype: str) -> None:
    model = small_chain(release=release, dtype=dtype)
    items = small_items(60, whole=dtype == "i32")[0]
    if dtype == "i32":
        model = small_chain(release=release, dtype=dtype)
        object.__setattr__(model, "cheap_weights", model.cheap_weights / 50)
        object.__setattr__(model, "dear_weights", model.dear_weights / 50)
    truth = [decide_floats(model, item).labels for item in items]
    made = export_chain(model, items, items, truth, name="codes", unit="ms", max_parts=6, weight_bits=16)
    assert made.agreement.same_labels == made.agreement.right >= 0.99
    assert made.agreement.same_purchases >= 0.98
    assert 0.1 < made.agreement.bought < 0.9
    assert made.report.rounds == (1 if release == ONE_SHOT else 6)


def with_rounds(*later: tuple[dict[str, float], float], **first: float) -> ChainModel:
    """The small chain, anytime, with a policy for the first round and for each one that follows."""
    model = small_chain(release=ANYTIME)

    def row(weights: dict[str, float], bias: float) -> np.ndarray:
        return np.array([*(weights.get(name, 0.0) for name in FEATURES), bias])

    bias = first.pop("bias")
    return replace(
        model, policy=row(first, 0.0)[:-1], policy_bias=bias, threshold=0.0,
        later=np.array([row(*policy) for policy in later]),
    )  # fmt: skip


@pytest.mark.parametrize("evaluator", ["python", "kernel"])
def test_each_round_has_a_policy_of_its_own(evaluator: str) -> None:
    """The first part buys in the first round, the last one in the second; nobody buys from then on."""
    model = with_rounds(({"last": 2.0}, -1.0), ({}, -3.0), first=2.0, bias=-1.0)
    data = export_chain(model, ITEMS, ITEMS, labels_of(model), name="codes", unit="ms", max_parts=6).data
    bundle = load_bytes(data, allow_joint=True).bundle
    machine = open_joint(bundle.program, bundle.joint, evaluator)
    assert machine.program.sensors[2].features[-1] - machine.program.sensors[2].features[0] == len(FEATURES)
    for item in (i for i in ITEMS if len(i) > 1):
        decision = decide_rows(machine, item)
        assert [p for p, d in enumerate(decision.parts) if 1 in d.sensors] == [0, len(item) - 1]
        assert decision.rounds == (2 if len(item) == 2 else 3)
        assert np.array_equal(decide_floats(model, item).bought, [p in (0, len(item) - 1) for p in range(len(item))])


def test_integers_decide_as_the_floats_with_a_policy_for_each_round() -> None:
    """Weights of gaps that change from round to round, and a last policy for all rounds that follow."""
    later = [({"gap": -0.4, "gap_after": -0.3, "distance": 0.2}, 0.9), ({"own_gap": -0.7, "parts": 0.1}, 0.8)]
    model = with_rounds(*later, gap=-1.0, gap_before=-0.2, bias=1.25)
    truth = labels_of(model)
    made = export_chain(model, ITEMS, ITEMS, truth, name="codes", unit="ms", max_parts=6, weight_bits=16)
    assert made.agreement.same_labels >= 0.99
    assert made.agreement.same_purchases >= 0.99  # two equal gaps are one tie
    alone = replace(model, later=model.later[:0])
    changed = [not np.array_equal(decide_floats(m, i).bought, decide_floats(model, i).bought)
               for m in (alone, replace(model, later=model.later[:1])) for i in ITEMS]  # fmt: skip
    assert np.mean(changed[:60]) > 0.1
    assert np.mean(changed[60:]) > 0.1


def test_a_policy_for_all_rounds_asks_for_no_round_so_that_older_devices_take_it() -> None:
    data = export_chain(
        small_chain(release=ANYTIME), ITEMS, ITEMS, labels_of(small_chain()), name="codes", unit="ms", max_parts=6
    ).data
    assert len(load_bytes(data, allow_joint=True).bundle.program.sensors[2].features) == len(FEATURES)


def in_units(unit: float) -> tuple[ChainModel, list[np.ndarray]]:
    """The model and the items with all readings in another unit."""
    model = small_chain()
    for name in ("cheap_weights", "dear_weights"):
        weights = getattr(model, name)
        object.__setattr__(model, name, np.vstack([weights[:-1] / unit, weights[-1:]]))
    return model, [(item * unit).astype(np.float32).astype(float) for item in ITEMS]


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e5, 1e15])
def test_integers_decide_as_the_floats_whatever_the_unit_of_readings(unit: float) -> None:
    model, items = in_units(unit)  # farads, amperes, pascals: a reading has no size that is usual
    truth = [decide_floats(model, item).labels for item in items]
    made = export_chain(model, items, items, truth, name="codes", unit="ms", max_parts=6, weight_bits=16)
    assert made.agreement.same_labels >= 0.99
    assert 0.1 < made.agreement.bought < 0.9


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_readings_that_codes_cannot_hold_are_named(unit: float) -> None:
    model, items = in_units(unit)
    with pytest.raises(InputError, match=r"readings of 'p0' go up to .*, which codes cannot hold; give another unit"):
        export_chain(model, items, items, labels_of(small_chain()), name="codes", unit="ms", max_parts=6)


def test_the_bundle_is_written_and_is_what_a_device_loads(tmp_path: Path) -> None:
    model = small_chain()
    made = export_chain(
        model, ITEMS, ITEMS, labels_of(model), name="codes", unit="ms", max_parts=6, out=tmp_path / "codes.hcb"
    )
    loaded = load_bundle(tmp_path / "codes.hcb", allow_joint=True)
    assert made.data == (tmp_path / "codes.hcb").read_bytes()
    assert loaded.joint is not None
    assert loaded.manifest.sensors == ("pixels", "hog", "decoder")
    cases = loaded.bundle.items
    assert len(cases) == 6
    assert {c.budget is None for c in cases} == {True, False}
    assert any(any(c.failed) for c in cases)


def test_a_budget_of_an_item_is_spent_on_its_first_doubtful_parts() -> None:
    model = small_chain()
    loaded = load_bytes(
        export_chain(model, ITEMS, ITEMS, labels_of(model), name="codes", unit="ms", max_parts=6).data, allow_joint=True
    )
    item = next(i for i in ITEMS if decide_floats(model, i).bought.sum() >= 3)
    free = decide_rows(loaded.joint, item)
    tight = decide_rows(loaded.joint, item, budget=(len(item) + 4) * 10**6)
    wanted = [p for p, d in enumerate(free.parts) if 1 in d.sensors]
    assert [p for p, d in enumerate(tight.parts) if 1 in d.sensors] == wanted[:1]


def test_doubtful_parts_ask_and_their_neighbours_profit() -> None:
    model = small_chain()
    made = export_chain(
        model, ITEMS, ITEMS, labels_of(model), name="codes", unit="ms", max_parts=6, hpc="ab" * 32,
        asking=Asking(1e9), costs=Costs(2 * MICRO),
    )  # fmt: skip
    cases = load_bytes(made.data, allow_joint=True).bundle.items
    fixed = [(c, p) for c in cases for p, d in enumerate(c.expected.parts) if d.route == "cloud"]
    assert fixed
    for case, p in fixed:
        assert case.replies[p] == (case.expected.parts[p].label, case.expected.parts[p].confidence)


def test_arrays_that_do_not_fit_are_named() -> None:
    model = small_chain()
    with pytest.raises(InputError, match="start of the chain has shape"):
        ChainModel(**{**model.__dict__, "start": model.start[:-1]})
    with pytest.raises(InputError, match="items to take ranges from"):
        export_chain(model, [], ITEMS, [], name="codes", unit="ms", max_parts=6)
    with pytest.raises(InputError, match="later of the chain has shape"):
        replace(model, release=ANYTIME, later=np.zeros((2, 3)))
    for release, rounds in ((ONE_SHOT, 2), (ANYTIME, MOST_ROUNDS + 1)):
        with pytest.raises(InputError, match=f"policies for {rounds} rounds and the release '{release}'"):
            replace(model, release=release, later=np.zeros((rounds - 1, len(FEATURES) + 1)))


def test_confidences_rise_with_the_gap() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.integers(0, 1000, 400)
    margins, confidences = table_of(gaps.tolist(), (rng.random(400) < gaps / 1000).tolist())
    assert list(confidences) == sorted(confidences)
    assert len(margins) + 1 == len(confidences) > 3
    assert confidences[0] < 2500
    assert confidences[-1] > 7500
