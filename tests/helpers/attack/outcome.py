# SPDX-License-Identifier: Apache-2.0
"""What every attack is and comes to: cases that are drawn, what is done to each, and what may come of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tests.helpers.places import ROOT

PIECES = (b"", b"-", b"85000", b"nan", b"1e308", b"e9", b"0x1", b"null", b"\0", b"\xff", b"\n", b"YES", b"t=", b"[",
          b"]", b",", b"9" * 20, b"9" * 600, b".", b"_")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One row of the table that ``benchmarks/attack.py`` prints.

    what    : what was attacked, in a few words
    inputs  : how many inputs were tried
    crashes : of them, how many ended a process or raised what nobody declares
    wrong   : how many were accepted, or answered, against the rule that is under attack
    slowest : CPU seconds of the slowest input, 0 where nobody measures them
    """

    what: str
    inputs: int
    crashes: int
    wrong: int
    slowest: float = 0.0

    def __add__(self, more: Outcome) -> Outcome:
        """Both in one row."""
        return Outcome(
            self.what, self.inputs + more.inputs, self.crashes + more.crashes, self.wrong + more.wrong,
            max(self.slowest, more.slowest),
        )  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """One row of the table of attacks.

    make : cases without an end; what they need stands around their ``yield``
    run : what is done to a case, whose CPU time counts if it ``is_timed``; what it raises is a crash, but for
        ``refusals``
    allowed : whether the result or refusal may come of a case, or the result itself; Outcomes count in the attack's
        own row or in one of ``rows``
    least : cases that run however long they take; all there are if it is infinite
    """

    name: str
    make: Callable[[random.Random], Generator[Any, None, None]]
    run: Callable[[Any], Any]
    allowed: Callable[[Any, Any], bool | Outcome | list[Outcome]] = lambda case, result: bool(result)
    refusals: tuple[type[Exception], ...] = ()
    rows: tuple[str, ...] = ()
    is_timed: bool = True
    caught: type[BaseException] = Exception
    least: float = 1

    def __call__(self, seconds: float, seed: int, n: int | None = None) -> list[Outcome]:
        """Cases for so many seconds, but ``least`` at least, and at most n."""
        end, clock = time.monotonic() + seconds, time.process_time if self.is_timed else float
        rows = {name: Outcome(name, 0, 0, 0) for name in (self.name, *self.rows)}
        with closing(self.make(random.Random(seed))) as cases:
            for case in cases:
                began = clock()
                try:
                    try:
                        result = self.run(case)
                    except self.refusals as refusal:
                        result = refusal
                    finally:
                        rows[self.name] += Outcome(self.name, 1, 0, 0, clock() - began)
                    found = self.allowed(case, result)
                    for row in found if isinstance(found, list) else [found]:
                        row = row if isinstance(row, Outcome) else Outcome(self.name, 0, 0, not row)
                        rows[row.what] += row
                except self.caught:
                    rows[self.name] += Outcome(self.name, 0, 1, 0)
                    if rows[self.name].crashes == 1:
                        print(f"{self.name}: {str(case)[:500]}\n{traceback.format_exc()}", file=sys.stderr)
                tried = rows[self.name].inputs
                if (tried >= self.least and time.monotonic() >= end) or tried == n:
                    break
        return list(rows.values())


def calls(
    name: str, make: Callable[[random.Random], Generator[Callable[[], Outcome], None, None]], least: float = 1
) -> Attack:
    """An attack whose cases are calls that count their own inputs."""

    def counted(_: object, found: Outcome) -> Outcome:
        return replace(found, inputs=found.inputs - 1)  # the case has been counted

    return Attack(name, make, lambda call: call(), counted, is_timed=False, least=least)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """These bytes as they are, or with some of them flipped, cut out, cut off or replaced."""
    changed, chance = bytearray(data), rng.random
    for _ in range((0, 1, 1, 1, 2, 5)[int(6 * chance())]):
        at = int((len(changed) + 1) * chance())
        if at < len(changed) and chance() < 0.3:
            changed[at] ^= 1 << int(8 * chance())
            continue
        piece = (
            PIECES[int(len(PIECES) * chance())] if chance() < 0.5 else rng.randbytes((1, 1, 1, 400)[int(4 * chance())])
        )
        changed[at : at + (0, 1, 1, 2, len(changed))[int(5 * chance())]] = piece
    return bytes(changed)


def spoilt(rng: random.Random, value: Any, values: Sequence[Any], names: Sequence[str]) -> Any:
    """This JSON value with one thing in it replaced, removed, repeated or under another name, deep or shallow."""
    if isinstance(value, dict | list) and value and rng.random() < 0.85:
        key, kind = rng.choice([*value] if isinstance(value, dict) else range(len(value))), rng.random()
        below = spoilt(rng, value[key], values, names) if kind >= 0.2 else value[key]
        if isinstance(value, list):
            parts = [] if kind < 0.1 else [below] * (rng.choice([2, 2, 100]) if kind < 0.2 else 1)
            return value[:key] + parts + value[key + 1 :]
        rest = value if kind < 0.05 else {name: part for name, part in value.items() if name != key}
        name = rng.choice([*names, *value]) if kind < 0.2 else key
        return rest if 0.05 < kind < 0.12 else rest | {name: below}
    return deepcopy(rng.choice(values))


class Odd:
    """An object that raises one of these errors, or gives something absurd where it is None, however it is used."""

    def __init__(self, rng: random.Random, *errors: type[BaseException] | None) -> None:
        self._rng, self._errors = rng, errors

    def _look(self, *_: object) -> Any:
        error = self._rng.choice(self._errors)
        if error is not None:
            raise error
        return self._rng.choice([0, 1, 2, 5, -1, 10**12, 1.5, "x", None, iter((0, 5))])

    __float__ = __int__ = __index__ = __len__ = __getitem__ = __iter__ = __bool__ = __eq__ = __hash__ = _look
    __contains__ = __str__ = __repr__ = get = _look


def each(*attacks: Callable[[float, int], list[Outcome]]) -> Callable[[float, int], list[Outcome]]:
    """Several attacks, each for its share of the time."""
    return lambda seconds, seed: [row for attack in attacks for row in attack(seconds / len(attacks), seed)]


def apart(function: Callable[..., None], *words: object, **environment: str) -> list[Outcome]:
    """What a function prints in a process of its own, which gets these words and what it must have loaded first.

    Raises
    ------
    subprocess.CalledProcessError
        It has died, or took two minutes longer than the first word's seconds.
    """
    code = f"import sys; from {function.__module__} import {function.__name__} as f; f(*sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], env={**os.environ, **environment}, cwd=ROOT, check=True,
        capture_output=True, text=True, timeout=float(str(words[0])) + 120,
    )  # fmt: skip
    return [Outcome(**row) for row in json.loads(ended.stdout.splitlines()[-1])]


def least_seconds(call: Callable[[], object], enough: float = 0.0, count: int = 1) -> float:
    """CPU seconds of a call, made ``count`` times: the least of three, because other work takes some of them, or the
    first that is ``enough``.
    """
    least = inf
    for _ in range(3):
        began = time.process_time()
        for _ in range(count):
            call()
        least = min(least, (time.process_time() - began) / count)
        if least <= enough:
            break
    return least


def forever(draw: Callable[[random.Random], Any]) -> Callable[[random.Random], Generator[Any, None, None]]:
    """Cases of which each is drawn alone."""

    def cases(rng: random.Random) -> Generator[Any, None, None]:
        while True:
            yield draw(rng)

    return cases
