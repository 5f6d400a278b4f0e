# SPDX-License-Identifier: Apache-2.0
"""Records are dataclasses, frozen and with slots, without the module that makes those."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from hardcase_edge.base.record import cached, record
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.device.device import RuntimeConfig
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import Address
from hardcase_edge.program.definition import Affine, Column, Feature, Opaque, Rank
from hardcase_edge.session.session import NeedSensors

COLUMN = Column(3, Affine(1, 2, 3, 4))


def twin_of(made):
    """The class as ``dataclasses`` would make it."""
    fields = [(f.name, f.type, dataclasses.field(default=f.default, repr=f.repr)) for f in dataclasses.fields(made)]
    return dataclasses.make_dataclass(type(made).__name__, fields, frozen=True, slots=True)


@pytest.mark.parametrize(
    "made",
    [COLUMN, Feature("f64"), Rank((1, 2)), Opaque((0,), b"secret", (1,), (2,)), NeedSensors((1, 2))],
    ids=lambda made: type(made).__name__,
)
def test_a_record_is_what_a_dataclass_would_be(made):
    values = [getattr(made, f.name) for f in dataclasses.fields(made)]
    twin = twin_of(made)(*values)
    assert repr(made) == repr(twin)
    assert type(made).__slots__ == type(made).__match_args__ == type(twin).__match_args__
    assert made == type(made)(*values) != twin
    assert len({made, type(made)(*values)}) == 1
    assert not hasattr(made, "__dict__")
    again = pickle.loads(pickle.dumps(made))  # noqa: S301
    assert again == copy.copy(made) == copy.deepcopy(made) == dataclasses.replace(made) == made


def test_fields_are_given_by_place_or_by_name_and_may_have_defaults():
    assert Affine(1, 2, 3, shift=4) == Affine(shift=4, add=3, mul=2, frac=1)
    assert Affine(1, 2, 3, 4).low == -32767
    assert Manifest("a", "b", (), (), ()).windows == {}
    assert Manifest("a", "b", (), (), ()).windows is not Manifest("a", "b", (), (), ()).windows


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param((1, 2, 3), {}, id="too-few"),
        pytest.param((1, 2, 3, 4, 5, 6, 7), {}, id="too-many"),
        pytest.param((1, 2, 3, 4), {"frac": 1}, id="twice"),
        pytest.param((1, 2, 3, 4), {"odd": 1}, id="unknown"),
    ],
)
def test_other_values_are_refused(values, named):
    with pytest.raises(TypeError, match="Affine"):
        Affine(*values, **named)


def test_where_names_are_asked_for_values_without_one_are_refused():
    with pytest.raises(TypeError, match="RuntimeConfig"):
        RuntimeConfig(1.0)
    with pytest.raises(TypeError, match="RuntimeConfig"):
        RuntimeConfig(*range(6))
    with pytest.raises(InputError):
        RuntimeConfig(count=0)


def test_nothing_can_be_set_or_deleted():
    with pytest.raises(AttributeError, match="feature"):
        COLUMN.feature = 1
    with pytest.raises(AttributeError, match="feature"):
        del COLUMN.feature
    with pytest.raises(AttributeError, match="other"):
        COLUMN.other = 1


@record(frozen=True, slots=True)
class Sum:
    """Two numbers, and how often they were added."""

    parts: tuple[int, ...]
    calls: list[int]

    @cached
    def total(self) -> int:
        """All parts together."""
        self.calls.append(1)
        return sum(self.parts)


def test_a_cached_property_is_worked_out_once_and_is_not_a_field():
    one, other = Sum((1, 2), []), Sum((1, 2), [])
    assert (one.total, one.total, one.calls) == (3, 3, [1])
    other.calls.append(1)
    assert one == other
    assert repr(one) == repr(other) == "Sum(parts=(1, 2), calls=[1])"
    assert [f.name for f in dataclasses.fields(one)] == ["parts", "calls"]
    assert Sum.total.__doc__ == "All parts together."
    with pytest.raises(AttributeError):
        one.total = 4


def test_a_copy_works_its_cached_properties_out_anew():
    one = Sum((1, 2), [])
    assert one.total == 3
    assert dataclasses.replace(one, parts=(4,)).total == 4
    assert copy.copy(one).total == 3
    assert len(one.calls) == 3


def test_a_field_that_is_not_for_printing_is_not_printed():
    assert "secret" not in repr(Address(host="h", port=1, password="secret"))


def test_fields_and_replace_and_asdict_work():
    assert dataclasses.asdict(Column(3, Rank((1, 2)))) == {"feature": 3, "rule": {"thresholds": (1, 2)}}
    assert dataclasses.replace(COLUMN, feature=4) == Column(4, COLUMN.rule)
    assert dataclasses.fields(RuntimeConfig)[0].name == "budget"
