# SPDX-License-Identifier: Apache-2.0
"""Attack on the kernel's glue to Python: calls with arguments of any type, length and size, and objects that raise."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from hardcase_edge.errors import SessionError
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.kernel.machine import KERNEL, decide, has_kernel, open_machine
from tests.helpers.edge.joint_programs import random_joint
from tests.helpers.edge.strategies import random_program

from .outcome import Attack, Outcome

__all__ = ["Raises", "attack"]

CALLS = 200  # on one program


class OddError(Exception):
    """What an object of the attack raises."""


class Raises:
    """An object that raises whatever is asked of it, now and then."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def _odd(self, plain: Any) -> Any:
        if self._rng.random() < 0.7:
            raise OddError
        return plain

    def __index__(self) -> int:
        return int(self._odd(1))

    def __len__(self) -> int:
        return int(self._odd(1))

    def __getitem__(self, key: Any) -> Any:
        return self._odd(key)

    def __contains__(self, key: Any) -> bool:
        return bool(self._odd(True))

    def __iter__(self) -> Any:
        return self._odd(iter((0, 5)))

    def __eq__(self, other: object) -> bool:
        return bool(self._odd(True))

    def __hash__(self) -> int:
        return int(self._odd(0))

    def __bool__(self) -> bool:
        return bool(self._odd(True))

    def __str__(self) -> str:
        return str(self._odd("odd"))

    __repr__ = __str__

    def get(self, key: Any) -> Any:
        """As that of a mapping."""
        return self._odd(key)


def odd(rng: random.Random, depth: int = 0) -> Any:
    """Any object."""
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind < 4:
        return rng.choice([0, 1, 2, 5, -1, 10_000, 10_001, 2**31, -(2**31), 2**63, 2**64, -(2**63) - 1, 2**200, True])
    if kind < 8:
        return rng.choice([
            None, 0.5, float("nan"), float("inf"), "x", "\ud800", b"12", bytearray(8), memoryview(b"12345678"),
            object(), Raises(rng), SessionError, len,
        ])  # fmt: skip
    several = [odd(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 8:
        return several
    if kind == 9:
        return {key: odd(rng, depth + 1) for key in several if type(key) in (int, str, float)}
    return tuple(several)


def _calls(rng: random.Random) -> list[Callable[..., Any]]:
    """Functions of C on one random program, of its image, sessions and chain; and of items, which drive them."""
    from hardcase_edge.kernel import _kernel as kernel  # type: ignore[attr-defined]

    machine = open_machine(random_program(rng.getrandbits(30), rng.randrange(5)), KERNEL)
    part, joint = random_joint(rng.getrandbits(30), rng.randrange(3))
    items = open_joint(part, joint, KERNEL)
    session, item = machine.session(), items.session(rng.randint(1, joint.max_parts))
    row = [rng.choice([0.5, 1.0, None]) for _ in machine.program.features]
    image: Any = machine.image  # type: ignore[union-attr]
    calls = [
        image.session, image.decide, image.move, kernel.Image, kernel.Chain, kernel.Chain(2, bytes(64)).decode,
    ]  # fmt: skip
    calls += [getattr(one, name) for one in (session, item) for name in dir(one) if not name.startswith("_")]

    def forwarded(reply: Any = None, **more: Any) -> Any:
        return decide(machine, row, reply, **more)

    def fed(what: Any = None, costs: Any = None) -> Any:
        """Feed what was asked for, with odd readings."""
        keys = getattr(session.next_action(), "sensors", ())
        return session.feed(dict.fromkeys(keys, what), costs)

    def fed_item(what: Any = None) -> Any:
        return item.feed(dict.fromkeys(getattr(item.next_action(), "sensors", ()), what))

    return [*calls, *[forwarded, fed, fed_item] * 3, session.next_action, item.next_action]


def odd_calls(rng: random.Random) -> Generator[Callable[[], Any], None, None]:
    """Calls of all functions with odd arguments."""
    names = ("budget", "item_size", "dead", "cloud", "reply", "costs")
    while True:
        calls = _calls(rng)
        for _ in range(CALLS):
            keywords = {rng.choice(names): odd(rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))}
            arguments = [odd(rng) for _ in range(rng.choice([0, 1, 1, 2, 3, 4]))]
            yield partial(rng.choice(calls), *arguments, **keywords)


DECLARED = (OddError, SessionError, TypeError, ValueError, OverflowError, LookupError, AttributeError)
ATTACK = Attack(
    "odd arguments of the kernel's functions", odd_calls, lambda call: call(), lambda *_: True, DECLARED, is_timed=False
)


def attack(seconds: float, seed: int) -> list[Outcome]:
    """A crash is an exception that does not say what is wrong with an argument."""
    return ATTACK(seconds, seed) if has_kernel() else []
