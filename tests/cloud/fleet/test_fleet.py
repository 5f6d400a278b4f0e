# SPDX-License-Identifier: Apache-2.0
"""The fleet's sensors read rows as they are: what a missing value means is the session's to say."""

from __future__ import annotations

import numpy as np
import pytest

from hardcase_cloud.fleet.threads import RowBank
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.device.device import Device, RuntimeConfig
from hardcase_edge.program.definition import (
    MICRO,
    Acquire,
    Affine,
    Answer,
    Column,
    Feature,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)

NAN = float("nan")


def loaded(nullable):
    """Sensor ``pair`` (two features, class 1 where the first is above 0); where it fails, the answer is always 1."""
    part = Slice(0, 0, 1)
    program = Program(
        features=(Feature("f32", nullable), Feature("f32", nullable)),
        sensors=(Sensor((0, 1), (MICRO,)),),
        uplink=Uplink(),
        columns=(Column(0, Affine(8, 1, 0, 0)),),
        scorers=(Polynomial((0,), (-1,), 1, ((0,),), ((1,),), (0,)), Polynomial((), (), 1, ((0,),), ((1,),), (0,))),
        nodes=(Acquire((0,), 1, 2), Answer(part), Answer(Slice(1, 0, 1))),
        n_classes=2,
    )
    manifest = Manifest("pair", "mJ", ("a", "b"), ("pair",), (0, 1))
    return load_bytes(pack_bundle(Bundle(manifest.to_json(), program, ())))


def labels(rows, nullable):
    made = loaded(nullable)
    bank = RowBank(made.machine.program.sensors, iter(enumerate(np.array(rows).tolist())))
    return [r["label"] for r in Device(made, bank, None, RuntimeConfig()).run()]


def test_a_row_is_read_as_it_is_and_nan_is_missing():
    bank = RowBank((Sensor((1, 0), (1,)), Sensor((2,), (1,))), iter([(7, [1.5, NAN, 0.0])]))
    assert bank.next_item()
    assert bank.item == 7
    assert bank.read([0, 1]) == {0: [None, 1.5], 1: [0.0]}
    assert not bank.next_item()


@pytest.mark.parametrize(
    ("row", "nullable", "label"),
    [
        pytest.param([1.0, 1.0], True, 1, id="all-there"),
        pytest.param([-1.0, NAN], True, 0, id="one-missing"),
        pytest.param([NAN, NAN], True, 0, id="all-missing-and-may-be"),
        pytest.param([-1.0, NAN], False, 1, id="one-missing-that-may-not-be"),
        pytest.param([NAN, NAN], False, 1, id="all-missing-that-may-not-be"),
    ],
)
def test_a_sensor_has_failed_only_if_a_reading_is_missing_that_may_not_be(row, nullable, label):
    assert labels([row], nullable) == [label]
