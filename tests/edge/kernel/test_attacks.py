# SPDX-License-Identifier: Apache-2.0
"""What the attacks on bundles and the kernel are made of, and that they would notice what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.kernel.fuzz import fuzz, has_fuzzer
from tests.golden.make_golden import GOLDEN
from tests.helpers.attack import crafted
from tests.helpers.attack.bundles import Parts, sealed
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.spec_examples import example_bundle
from tests.helpers.edge.strategies import random_program


@pytest.mark.skipif(not has_fuzzer(), reason="clang is needed: apt install clang libclang-rt-14-dev")
def test_mutated_images_and_calls_in_any_order_do_no_harm(tmp_path: Path) -> None:
    for seconds in (1, 4, 16):  # on a machine too busy for so many
        found = fuzz(seconds, 0, tmp_path / "found", "-O0", seeds=8)
        assert not found.has_harm, found.output
        if found.executions > 1_000 and found.accepted > 100:
            return
    pytest.fail(found.output)


def test_a_bundle_taken_apart_is_packed_as_it_was() -> None:
    for data in (GOLDEN.read_bytes(), example_bundle(), bundle_of(random_program(3))):
        parts = Parts.of(data)
        parts.place()
        assert parts.pack() == data == sealed(data[:-32])


def test_a_slow_bundle_and_a_dead_process_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crafted, "LARGEST", 10)
    monkeypatch.setattr(crafted, "MOST_SECONDS", -1.0)
    assert crafted.attack(0.2, 1)[0].wrong > 0
    monkeypatch.setattr(crafted, "loading_cost", lambda _: 1 / 0)
    assert crafted.attack(0.2, 1)[0].crashes > 0
