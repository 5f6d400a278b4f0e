# SPDX-License-Identifier: Apache-2.0
"""Short runs of the attacks that need no broker; ``make bench NAME=attack`` runs all of them long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.attack import (
    bundles,
    crafted,
    device,
    glue,
    identity,
    item_bounds,
    joint,
    memory,
    records,
    servo,
)
from tests.helpers.attack.outcome import Outcome

ATTACKS: dict[str, tuple[Callable[[float, int], list[Outcome]], float, int]] = {  # seconds, and inputs of each row
    "bundles and programs": (bundles.attack, 0.8, 1),
    "crafted bundles": (crafted.attack, 0.4, 1),
    "the kernel's functions": (glue.functions, 0.4, 1),
    "a broker and plug-ins": (device.attack, 1.0, 21),
    "values of a plug-in": (device.hostile_values, 0.2, 101),
    "records and their files": (records.attack, 0.6, 1),
    "budgets": (servo.attack, 0.15, 1),
    "layouts and windows": (memory.attack, 0.15, 1),
    "joint programs": (joint.attack, 0.25, 101),
    "bounds of items": (item_bounds.attack, 0.3, 1),
    "certificates": (identity.attack, 0.3, 21),
}
MORE = (1, 4, 16)  # times the seconds, on a machine too busy for so many inputs


@pytest.mark.parametrize("name", ATTACKS)
def test_a_short_attack_finds_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crafted, "LARGEST", 300)
    attack, seconds, least = ATTACKS[name]
    for times in MORE:
        outcomes = attack(seconds * times, 1)
        assert [(o.crashes, o.wrong) for o in outcomes] == [(0, 0)] * len(outcomes), outcomes
        if all(o.inputs >= least for o in outcomes):
            return
    pytest.fail(f"fewer than {least} inputs: {outcomes}")
