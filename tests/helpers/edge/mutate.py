# SPDX-License-Identifier: Apache-2.0
"""Programs with one thing changed: at a named place, or at random."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

Step = str | int
EXTREMES = [
    0, 1, -1, 2, 3, 127, 128, 32766, 32767, 32768, -32767, -32768, 2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1,
]  # fmt: skip


def change(value: Any, place: str, new: Any) -> Any:
    """The value with ``new`` at a place such as ``nodes[1].targets[0]``; a function changes what is there."""
    return _put(value, [int(s) if s.isdigit() else s for s in re.findall(r"\w+", place)], new)


def _put(value: Any, steps: list[Step], new: Any) -> Any:
    if not steps:
        return new(value) if callable(new) else new
    first, rest = steps[0], steps[1:]
    if isinstance(first, str):
        return replace(value, **{first: _put(getattr(value, first), rest, new)})
    return (*value[:first], _put(value[first], rest, new), *value[first + 1 :])


def places(value: Any, at: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """Every place in a program and what stands there."""
    yield at, value
    if is_dataclass(value):
        for f in fields(value):
            yield from places(getattr(value, f.name), (*at, f.name))
    elif isinstance(value, tuple):
        for k, item in enumerate(value):
            yield from places(item, (*at, k))


def mutate(program: Any, rng: random.Random) -> Any:
    """The program with one random thing changed, to something of the same kind: what a decoder could give."""
    wanted = rng.choice([int, int, int, tuple, str, bool, type(None)])
    able = [(at, v) for at, v in places(program) if type(v) is wanted and at]
    if not able:
        return program
    at, value = rng.choice(able)
    alike = [v for other, v in able if _kind(other) == _kind(at)]
    return _put(program, list(at), _other(value, rng, alike))


def _kind(at: tuple[Step, ...]) -> list[str]:
    return ["" if isinstance(step, int) else step for step in at]


def _other(value: Any, rng: random.Random, alike: list[Any]) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value, rng.choice(EXTREMES), rng.choice(alike)])
    if isinstance(value, str):
        return rng.choice(["threshold", "margin", "argmax", "tournament", "class", "value", "i32", "f32", "f64"])
    if value is None:
        return rng.choice(EXTREMES)
    k = rng.randrange(len(value) + 1)
    shuffled = tuple(rng.sample(value, len(value)))
    return rng.choice([value[:k] + value[k + 1 :], value + value[:k], shuffled, (), rng.choice(alike)])
