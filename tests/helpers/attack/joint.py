# SPDX-License-Identifier: Apache-2.0
"""Attack on joint programs: forged words of the tensor ``joint`` are refused, or decide within what was proved."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from hardcase_edge.errors import BundleError
from hardcase_edge.joint import prove
from hardcase_edge.joint.definition import Joint
from hardcase_edge.joint.format import decode_joint, encode_joint
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import JointReport, verify_joint
from hardcase_edge.session.recorded import narrowest
from tests.helpers.edge.joint_programs import play, random_joint, random_world

from .outcome import Attack

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
    verify, reading = prove.verify, prove.reading_operations
    reports: dict[Any, Any] = {}
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

    def verified(program: Any, proofs: list[Any]) -> Any:
        report, proofs[:] = remembered(reports, program.nodes, lambda: (verify(program, proofs), [*proofs]))
        return report

    prove.verify = verified
    prove.reading_operations = lambda part: remembered(readings, 0, lambda: reading(part))
    try:
        yield
    finally:
        prove.verify, prove.reading_operations = verify, reading


class Forgeries:
    """Forged tensors of random items; some that are accepted decide an item."""

    def make(self, rng: random.Random) -> Generator[Any, None, None]:
        tried = self.accepted = 0
        self.rng = rng
        try:
            while True:
                part, joint = random_joint(rng.getrandbits(30), rng.randrange(4))
                original = encode_joint(joint).tolist()
                with proved_once():
                    for _ in range(FORGERIES):
                        tried += 1
                        words = forged_words(rng, original)
                        yield part, narrowest(words, "iq", "a forgery") if rng.random() < 0.9 else array("q", words)
        finally:
            assert self.accepted or tried < 500, "no forgery was ever accepted: the attack tries too little"

    def run(self, case: Any) -> tuple[Joint, JointReport]:
        part, tensor = case
        forged = decode_joint(tensor)
        return forged, verify_joint(part, forged)

    def allowed(self, case: Any, result: Any) -> bool:
        """No decision is beyond its proof, or different in Python and in C."""
        if isinstance(result, BundleError):
            return True
        self.accepted += 1
        if self.rng.random() > PLAYED:
            return True
        part, (forged, report) = case[0], result
        world = random_world(self.rng, part, forged, report.worst_cost)
        one, two = (play(open_joint(part, forged, name), world) for name in ("python", None))
        within = one.cost <= report.worst_cost and one.rounds <= report.rounds
        return one == two and within and (world.budget is None or one.cost <= world.budget)


forgeries = Forgeries()
attack = Attack(
    "joint: forged tensors are refused or harmless", forgeries.make, forgeries.run, forgeries.allowed, (BundleError,),
    least=LEAST,
)  # fmt: skip
