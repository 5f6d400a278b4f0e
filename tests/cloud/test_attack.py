# SPDX-License-Identifier: Apache-2.0
"""Short forms of the attacks on the cloud; ``make bench NAME=attack`` and ``benchmarks/attack.py`` run them long."""

from __future__ import annotations

from ..helpers.attack.cloud import PATIENT_S, flood, garbage


def test_a_flood_of_one_device_leaves_others_their_answers():
    (outcome,) = flood(45_000, 0, n_asked=20, deadline_s=PATIENT_S, seconds=1.3)(0, 0)
    assert outcome.inputs > 2_600  # twice what a device may send in that time; the slower the machine, the fewer
    assert (outcome.crashes, outcome.wrong) == (0, 0)


def test_broken_requests_and_forged_replies_harm_nobody():
    (outcome,) = garbage(60, 1, n=2000)
    assert (outcome.inputs, outcome.crashes, outcome.wrong) == (2000, 0, 0)
