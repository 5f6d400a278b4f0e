# SPDX-License-Identifier: Apache-2.0
"""Which bundle may take another one's place: what would break a device or its readers is a difference, and no more."""

from __future__ import annotations

from dataclasses import replace as replaced
from typing import Any

import pytest

from hardcase_edge.bundle.compatible import Identity, differences, differences_told, identity_in, identity_of
from hardcase_edge.bundle.load import load_bytes
from tests.helpers.edge.device import FEATURES, HPC, make_bundle_bytes


def toy(**more: Any) -> Identity:
    return identity_in(make_bundle_bytes(**more))


WITHOUT_WINDOW: dict[str, Any] = {"windows": {}}


@pytest.mark.parametrize(
    "more",
    [
        {"name": "another build"}, {"hpc": bytes(reversed(HPC)).hex()}, {"claims": {"accuracy": {"test": 0.5}}},
        {"classes": ("high", "low")}, {"ranges": ((0.0, 1.0), None, None, None, None)},
    ],
    ids=["build", "f0", "claims", "order of classes", "ranges"],
)  # fmt: skip
def test_what_breaks_no_device_is_no_difference(more: dict[str, Any]) -> None:
    assert differences(toy(**more), toy()) == differences_told(toy(**more), toy().told()) == ()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"program": "wine"}, "its name is 'wine', and 'toy' runs here"),
        ({"target": "quality"}, "its target is 'quality', and 'target' runs here"),
        ({"unit": "EUR"}, "its unit of cost is 'EUR', and 'mJ' runs here"),
        ({"classes": ("low", "higher")}, "it answers the classes 'higher', 'low', and here the classes 'high', 'low'"),
        ({"sensors": ("y", "vib")}, "the sensor 'y' is not here"),
        ({"features": ("z", *FEATURES[1:])}, "the sensor 'x' gives z, and here x"),
        ({"windows": {"vib": 60}}, "the sensor 'vib' gives window of 60 samples, and here window of 5 samples"),
        (WITHOUT_WINDOW, "the sensor 'vib' gives vib_mean, vib_deviation"),
    ],
)  # fmt: skip
def test_what_would_break_a_device_is_told_in_words(more: dict[str, Any], said: str) -> None:
    [line] = differences(toy(**more), toy())
    assert line.startswith(said)
    assert len(differences_told(toy(**more), toy().told())) == 1, "the facts of a device tell it, too"


def test_a_bundle_that_decides_items_of_parts_answers_otherwise_than_one_that_does_not() -> None:
    made = load_bytes(make_bundle_bytes())
    alone, items = (identity_of(made.manifest, made.bundle.program, is_joint=joint) for joint in (False, True))
    [line] = differences(items, alone)
    assert line.startswith("it answers items of several parts, ")
    assert differences_told(items, alone.told()) != ()


@pytest.mark.parametrize(("names", "said"), [("abc", "'a', 'b', 'c' is"), ("abcd", "'a', 'b', 'c' (and 1 more) is")])
def test_a_line_names_three_and_counts_the_others(names: str, said: str) -> None:
    one = replaced(toy(), sensors={name: ((name, "number"),) for name in names}, needed=tuple(names))
    assert differences(one, toy()) == (f"the sensor {said} not here",)


def test_a_sensor_that_is_dropped_or_never_bought_is_no_difference() -> None:
    both = toy()
    one = replaced(both, sensors={"x": both.sensors["x"]}, needed=("x",))
    assert differences(one, both) == differences_told(one, both.told()) == ()
    unused = replaced(both, sensors={**both.sensors, "spare": (("s", "number"),)})
    assert differences(unused, both) == differences_told(unused, both.told()) == ()
    assert differences(both, one) == ("the sensor 'vib' is not here",)


@pytest.mark.parametrize(
    ("new", "old", "differs"),
    [
        ("number", "whole number", False), ("whole number", "number", True), ("text", "number", True),
        ("text", "whole number", True), ("number", "text", True), ("text", "text", False),
    ],
)  # fmt: skip
def test_a_reading_must_still_be_what_the_bundle_takes(new: str, old: str, *, differs: bool) -> None:
    one, two = (replaced(toy(), sensors={"x": (("x", kind),)}, needed=("x",)) for kind in (new, old))
    assert bool(differences(one, two)) == differs
    if not differs:
        assert differences_told(one, two.told()) == (), "the cloud refuses nothing that the device would take"


def test_facts_that_lie_are_no_reason_and_move_no_terminal() -> None:
    for told in (None, 7, [], {}, {"is": []}, {"is": "x", "name": "\x1b[31m\ud800" * 99, "sensors": "\0" * 9_999}):
        assert all(line.isprintable() and len(line) < 300 for line in differences_told(toy(), told))
    assert len(str(toy(program="\x07" * 200, target="\1" * 200).told())) < 2_000


def test_a_bundle_of_very_many_sensors_tells_its_name_alone() -> None:
    many = replaced(toy(), sensors={f"s{k}": ((f"f{k}", "number"),) for k in range(500)}, needed=("s0",))
    assert "sensors" not in many.told()
    assert differences_told(toy(), many.told()) == ()
