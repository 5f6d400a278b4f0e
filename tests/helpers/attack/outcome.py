# SPDX-License-Identifier: Apache-2.0
"""What an attack on one part of the project found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """One row of the table that ``benchmarks/attack.py`` prints.

    An attack is a module ``tests/helpers/attack/NAME.py`` with ``attack(seconds, seed) -> list[Outcome]``: short for
    the tests, long for ``make fuzz``.

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
