# SPDX-License-Identifier: Apache-2.0
"""A short run of the attacks on a device's surroundings; ``benchmarks/attack.py`` runs them long."""

from __future__ import annotations

from tests.helpers.attack.device import hostile_broker, hostile_values


def test_a_hostile_broker_neither_ends_the_link_nor_delays_the_device() -> None:
    outcome = hostile_broker(0.5, seed=1)
    assert outcome.inputs > 20
    assert (outcome.crashes, outcome.wrong) == (0, 0), outcome


def test_no_value_of_a_plug_in_is_more_than_a_failed_sensor() -> None:
    (outcome,) = hostile_values(0.2, seed=1)
    assert outcome.inputs > 100
    assert (outcome.crashes, outcome.wrong) == (0, 0), outcome
