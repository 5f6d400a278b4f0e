# SPDX-License-Identifier: Apache-2.0
"""Attacks on running budgets: streams that spend what they can, restarts at any moment, forged tables and files."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from hardcase_edge.base.clock import Clock
from hardcase_edge.base.files import sealed
from hardcase_edge.bundle.prices import MOST_THRESHOLD, Prices, prices_of
from hardcase_edge.device.surroundings import Case
from hardcase_edge.errors import BundleError
from hardcase_edge.more.servo.companion import Budgets, budgets_of
from hardcase_edge.more.servo.ledger import MOST, read_ledger
from hardcase_edge.program.cost import to_unit
from hardcase_edge.session.session import CLOUD, DEGRADED, LOCAL, Decision
from hardcase_edge.settings.config import RunConfig
from tests.helpers.attack.outcome import Attack, each, forever, mutated, spoilt
from tests.helpers.edge.device import make_loaded, make_program

PRICES = Prices((1,), ((900,), (256,), (0,)), (300.0, 30.0, 1.0), (0.9, 0.1, 0.0), 1)
ODD: list[Any] = [None, True, -1, 0, 1, 2**61, -(2**61), 2**63, 10**400, 0.5, float("nan"), "", "1", [], [1], {}]


def _life(rng: random.Random, folder: Path, loaded: Any) -> bool:
    per_hour = rng.choice([1.0, 100.0, 5_000.0, 1e6, 1e9])
    battery_mwh = rng.choice([None, 0.001, 10.0])
    config = RunConfig(
        budget_per_hour=per_hour, battery=battery_mwh, until=None if battery_mwh is None else "2099-01-01",
        max_forward_rate=rng.choice([None, "1%", "50%"]), budget_file=str(folder / "b.json"),
    )  # fmt: skip
    at, spent, began = 0.0, 0, 0.0

    def start() -> Budgets:
        budgets = budgets_of(config, loaded, Clock(), lambda line: None, lambda: at)
        assert budgets is not None
        return budgets

    budgets = start()
    assert budgets.servo.spending is not None
    burst, battery = budgets.servo.spending.burst, None if budgets.plan is None else budgets.plan.left
    for _ in range(rng.randint(1, 30)):
        at += rng.choice([0.0, 0.01, 1.0, 60.0, 4_000.0])
        case = Case(None, rng.choice([None, 10**9]), True)
        budgets.begin(case)
        assert case.limit is not None
        cost = rng.choice([case.limit, min(case.limit, rng.randint(0, 10**9))])
        route = rng.choice([CLOUD, DEGRADED, LOCAL]) if case.can_ask else LOCAL
        case.decision, case.record = Decision(0, 9_000, route, cost, (), ()), {"cost": to_unit(cost)}
        case.has_asked = route != LOCAL
        budgets.end(case)
        spent += cost
        if spent > burst + per_hour * 1e6 * (at - began) / 3600 + 1 or (battery is not None and spent > battery):
            return False
        if rng.random() < 0.2:
            if rng.random() < 0.5:
                budgets.stop()
            budgets = start()  # otherwise the power was cut
    return True


def table(rng: random.Random) -> tuple[dict[str, Any], random.Random]:
    """A table with anything in the place of anything, and chance."""
    prices: dict[str, Any] = PRICES.to_json()
    for _ in range(rng.randint(1, 3)):
        prices = spoilt(rng, prices, [*ODD, rng.randint(-1000, 1000)], ("more",))
    return prices, rng


def stays_within(case: tuple[dict[str, Any], random.Random], prices: Any) -> bool:
    """No table is taken that could move a threshold outside its range."""
    if isinstance(prices, BundleError):
        return True
    columns, rng = list(zip(*prices.levels, strict=True)), case[1]
    moved = [prices.at(rng.randint(-(2**40), 2**40)) for _ in range(20)]
    return all(
        min(c) <= t <= max(c) and abs(t) <= MOST_THRESHOLD for at in moved for c, t in zip(columns, at, strict=True)
    )


def files(rng: random.Random) -> Generator[Path, None, None]:
    """Files of budgets with any bytes, as a writer of wrong numbers or a bad disk leaves them."""
    good = b'{"plan":"p","spending":[123,456],"forwards":[1,2],"battery":[9,10]}'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.json"
        while True:
            data = mutated(rng, good)
            path.write_bytes(sealed(data) if rng.random() < 0.5 else data)
            yield path


def lives(rng: random.Random) -> bool:
    """Whether a device that spends all it may, and loses its power, spends no more than the plan and two bursts."""
    with tempfile.TemporaryDirectory() as folder:
        return _life(rng, Path(folder), make_loaded(prices=PRICES))


def are_numbers(case: Path, parts: Any) -> bool:
    """Nothing is taken that is no count."""
    return all(type(x) is int and 0 <= x < MOST for numbers in (parts or {}).values() for x in numbers)


PROGRAM = make_program()
attack = each(
    Attack(
        "budgets: lives that spend all they may", forever(lambda rng: rng), lives, is_timed=False
    ),
    Attack(
        "budgets: forged tables of prices", forever(table), lambda case: prices_of(case[0], PROGRAM), stays_within,
        (BundleError,), is_timed=False,
    ),
    Attack(
        "budgets: files of any bytes", files, lambda path: read_ledger(path, "p"), are_numbers, is_timed=False
    ),
)  # fmt: skip
