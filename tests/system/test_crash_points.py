# SPDX-License-Identifier: Apache-2.0
"""A process that is killed, or a power cut, at any system call leaves whole files and folders: before or after."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.helpers.attack.files import attack, attack_on_the_unsound

needs_shim = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@needs_shim
def test_a_crash_at_any_call_leaves_what_was_or_what_was_to_be_and_the_next_run_ends_well() -> None:
    outcomes = attack(0, 0)
    assert {o.what: (o.crashes, o.wrong) for o in outcomes} == {o.what: (0, 0) for o in outcomes}
    assert min(o.inputs for o in outcomes) >= 6  # of a single file: open, write, flush, rename and more
    assert sum(o.inputs for o in outcomes) > 200


@needs_shim
def test_a_routine_that_is_not_whole_is_found() -> None:
    assert [(o.what, o.wrong > 0) for o in attack_on_the_unsound()] == [
        ("in_place", True), ("unflushed", True), ("between", True),
    ]  # fmt: skip
