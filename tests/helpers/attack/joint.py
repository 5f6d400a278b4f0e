# SPDX-License-Identifier: Apache-2.0
"""Attack on joint programs: forged words of the tensor ``joint`` are refused, or decide within what was proved."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hardcase_edge.errors import BundleError
from hardcase_edge.joint import prove
from hardcase_edge.joint.format import decode_joint, encode_joint
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import verify_joint
from hardcase_edge.session.recorded import narrowest
from tests.helpers.edge.joint_programs import play, random_joint, random_world

from .outcome import Outcome

__all__ = ["attack", "forged_words"]

EDGES = (-1, 0, 1, 2, 3, 7, 255, 1023, 1024, 1025, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**62), 2**63 - 1, -(2**63))
FORGERIES = 1000  # of one program
LEAST = 150  # forgeries, on however slow a machine
PLAYED = 0.005  # share of the accepted forgeries that decide an item


def forged_words(rng: random.Random, words: list[int]) -> list[int]:
    """These words with some of them changed, left out or doubled."""
    words = words.copy()
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(words)) if rng.random() < 0.6 else rng.randrange(min(12, len(words)))
        kind = rng.random()
        if kind < 0.7:
            moved = max(-(2**63), min(2**63 - 1, words[at] + rng.choice([-1, 1, 2, 64])))
            words[at] = rng.choice(EDGES) if rng.random() < 0.5 else moved
        elif kind < 0.8 and len(words) > 1:
            del words[at]
        elif kind < 0.9:
            words.insert(at, rng.choice(EDGES))
        else:
            words[at] = words[rng.randrange(len(words))]
    return words


@contextmanager
def proved_once() -> Iterator[None]:
    """Prove a part program and its scorers once, though many records ``Joint`` are forged beside it: nodes differ."""
    verify, scorer = prove.verify, prove.prove_scorer
    reading = prove.reading_operations
    reports: dict[Any, Any] = {}
    proofs: dict[int, Any] = {}
    readings: dict[int, Any] = {}

    def remembered(known: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
        if key not in known:
            try:
                known[key] = make()
            except BundleError as error:
                known[key] = error
        if isinstance(known[key], BundleError):
            raise known[key]
        return known[key]

    prove.verify = lambda program: remembered(reports, program.nodes, lambda: verify(program))
    prove.prove_scorer = lambda part, k, below: remembered(proofs, k, lambda: scorer(part, k, below))
    prove.reading_operations = lambda part: remembered(readings, 0, lambda: reading(part))
    try:
        yield
    finally:
        prove.verify, prove.prove_scorer, prove.reading_operations = verify, scorer, reading


def attack(seconds: float, seed: int) -> list[Outcome]:
    """Forgeries for so many seconds; wrong: a decision beyond its proof, or different in Python and in C."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    inputs = crashes = wrong = accepted = 0
    slowest = 0.0
    while time.monotonic() < end or inputs < LEAST:
        part, joint = random_joint(rng.getrandbits(30), rng.randrange(4))
        original = encode_joint(joint).tolist()
        with proved_once():
            for _ in range(FORGERIES):
                if time.monotonic() >= end and inputs >= LEAST:
                    break
                inputs += 1
                began = time.process_time()
                words = forged_words(rng, original)
                tensor = narrowest(words, "iq", "a forgery") if rng.random() < 0.9 else array("q", words)
                try:
                    forged = decode_joint(tensor)
                    report = verify_joint(part, forged)
                except BundleError:
                    continue
                except Exception:
                    crashes += 1
                    continue
                finally:
                    slowest = max(slowest, time.process_time() - began)
                accepted += 1
                if rng.random() > PLAYED:
                    continue
                world = random_world(rng, part, forged, report.worst_cost)
                try:
                    decisions = [play(open_joint(part, forged, name), world) for name in ("python", None)]
                except Exception:
                    crashes += 1
                    continue
                d = decisions[0]
                within = d.cost <= report.worst_cost and d.rounds <= report.rounds
                within = within and (world.budget is None or d.cost <= world.budget)
                wrong += not within or decisions[0] != decisions[1]
    assert accepted or inputs < 500, "no forgery was ever accepted: the attack tries too little"
    return [Outcome("joint: forged tensors are refused or harmless", inputs, crashes, wrong, slowest)]
