# SPDX-License-Identifier: Apache-2.0
"""The judge of the emulated machine's power cuts (`make machine`) can fail."""

from __future__ import annotations

import pytest

from tests.helpers.machine.cuts import LOST, OLDER, Cuts

CONSOLE = "[    4.1] RUNS 1.6 TRUSTS 6\r\nPUT 7\r\nGOOD 7\r\nPUT 8\r\n"


@pytest.mark.parametrize(
    ("console", "release", "trusts", "wrong"),
    [
        pytest.param(CONSOLE, 8, 8, None, id="what was received"),
        pytest.param(CONSOLE, 9, 9, None, id="newer than anybody knows of"),
        pytest.param(CONSOLE, 7, 8, LOST, id="not what was received"),
        pytest.param(CONSOLE, 8, 7, LOST, id="older trust"),
        pytest.param(CONSOLE + "GOOD 8\r\n", 7, 9, OLDER, id="older than what was tried"),
        pytest.param(CONSOLE + "GOOD 8\r\nPUT 1", 8, 8, None, id="half a line"),
    ],
)
def test_what_runs_after_a_cut_is_compared_with_what_was_acknowledged(
    console: str, release: int, trusts: int, wrong: str | None
) -> None:
    cuts = Cuts()
    cuts.read(console)
    cuts.check(release, trusts)
    assert {what for what, n in cuts.wrong.items() if n} == ({wrong} if wrong else set())
    assert len(cuts.lines) == (wrong is not None)


@pytest.mark.parametrize(("n_cut", "says", "ended"), [(2, True, 1), (1, True, 0), (2, False, 0)])
def test_a_trial_of_which_three_starts_were_cut_may_end_if_the_machine_says_so(
    n_cut: int, says: bool, ended: int
) -> None:
    cuts = Cuts()
    cuts.read(CONSOLE)
    for _ in range(n_cut):
        cuts.check(8, 8)
        cuts.read("RUNS 1.8 TRUSTS 8\r\n")
    cuts.check(7, 8, says_ended=says)
    assert (cuts.ended, cuts.wrong[LOST]) == (ended, 1 - ended)
    cuts.check(7, 8)
    assert cuts.wrong[LOST] == 2 * (1 - ended)
