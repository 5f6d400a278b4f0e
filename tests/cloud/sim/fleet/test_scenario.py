# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what is wrong with one is said in one line, with the nearest key."""

from __future__ import annotations

import pytest

from hardcase_cloud.sim.fleet.scenario import KINDS, parse_scenario, read_scenario
from hardcase_edge.errors import InputError
from tests.helpers.places import ROOT

WRONG = {
    "[flet]\n": "s.toml: the top level has the unknown key 'flet'; did you mean 'fleet'?",
    "[fleet]\ndevises = 5": "s.toml: [fleet] has the unknown key 'devises'; did you mean 'devices'?",
    "[fleet]\nzzz = 5": "s.toml: [fleet] has the unknown key 'zzz'; known keys are devices, decisions, ",
    "[network]\nloss = 1.5": "s.toml: [network] loss is 1.5; use 0 to 1",
    "[network]\nreorder = -0.1": "s.toml: [network] reorder is -0.1; use 0 to 1",
    "[network]\nloss = nan": "s.toml: [network] loss is 'nan'; a number is expected",
    "[network]\nloss = true": "s.toml: [network] loss is 'True'; a number is expected",
    "[network]\ndelay_ms = 1.5": "s.toml: [network] delay_ms is '1.5'; a whole number is expected",
    "[fleet]\ndevices = 0": "s.toml: [fleet] devices is 0; use 1 to 1e+06",
    "[fleet]\ndevices = 1000000\ndecisions = 101": "s.toml: [fleet] makes more than 100000000 decisions; lower ",
    "[fleet]\nhard = 2": "s.toml: [fleet] hard is 2; use 0 to 1",
    "[cloud]\nworkers = -1": "s.toml: [cloud] workers is -1; use 1 to 1000",
    "fleet = 3": "s.toml: [fleet] is 3, a table is expected",
    "fault = 3": "s.toml: fault is '3', [[fault]] tables are expected",
    "[[fault]]\nat_s = 1": "s.toml: [[fault]] has no kind; use one of partition, ",
    "[[fault]]\nkind = 'wroker'": "s.toml: [[fault]] has the unknown kind 'wroker'; did you mean 'worker'?",
    "[[fault]]\nkind = 'worker'\nshar = 1": "s.toml: [[fault]] has the unknown key 'shar'; did you mean 'share'?",
    "[[fault]]\nkind = 'worker'\nshare = 7": "s.toml: [[fault]] share is 7; use 0 to 1",
    "[[fault]]\nkind = 'worker'\nfor_s = 0": "s.toml: [[fault]] for_s is 0; use 0.001 to 1e+06",
    "[[fault]]\nkind = 'worker'\nevery_s = 1e-9": "s.toml: [[fault]] every_s is 1e-09; use 0 for once, or 0.01 or more",
    "[rollout]\nbundle = 'bad'": "s.toml: [rollout] bundle is 'bad'; use one of good, worse, crashing",
    "[rollout]\nbundle = 3": "s.toml: [rollout] bundle is '3'; a text is expected",
    "[rollout]\ncannary = 3": "s.toml: [rollout] has the unknown key 'cannary'; did you mean 'canary'?",
    "[rollout]\ncanary = 1.5": "s.toml: [rollout]: the canary of a roll-out is 1.5; expected a whole number from 1 to",
    "[rollout]\nabort_after = true": "s.toml: [rollout]: the abort after of a roll-out is True; expected a whole",
    "[rollout]\nabort_above = 3": "s.toml: [rollout]: the abort above of a roll-out is 3; expected 0 to 1",
    "= ": "s.toml",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_scenario_is_told_in_one_line_with_the_nearest_key(text):
    with pytest.raises(InputError) as error:
        parse_scenario("s.toml", text.encode())
    assert str(error.value).startswith(WRONG[text])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["chaos", "small", "rollout", "link"])
def test_the_examples_can_be_read(name):
    scenario = read_scenario(ROOT / "examples" / "fleet" / f"{name}.toml")
    assert scenario.fleet.devices >= 200
    assert scenario.has_network


def test_the_example_of_chaos_has_every_kind_of_fault():
    assert {fault.kind for fault in read_scenario(ROOT / "examples" / "fleet" / "chaos.toml").faults} == set(KINDS)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        read_scenario(tmp_path / "none.toml")
