# SPDX-License-Identifier: Apache-2.0
"""Short forms of the attacks on the cloud; ``make bench NAME=attack`` and ``benchmarks/attack.py`` run them long."""

from __future__ import annotations

from ..helpers.attack.cloud import flood, garbage


def test_a_flood_of_one_device_leaves_others_their_answers(tmp_path):
    outcome = flood(tmp_path, seconds=1.3, n_asked=20, rate=45_000, qos=0, deadline_s=0.6)
    assert outcome.inputs > 10_000
    assert (outcome.crashes, outcome.wrong) == (0, 0)


def test_broken_requests_and_forged_replies_harm_nobody(tmp_path):
    outcome = garbage(tmp_path, 1000, 1)
    assert (outcome.inputs, outcome.crashes, outcome.wrong) == (2000, 0, 0)
