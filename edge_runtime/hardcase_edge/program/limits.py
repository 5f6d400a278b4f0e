# SPDX-License-Identifier: Apache-2.0
"""The limits of a program: one list, which the reader, the verifier, the image and the kernel all hold to.

docs/SPEC-program-v1.md section 5 states them with its rules. ``kernel/hc_check.h`` has those that an image can break
as constants of its own, because a microcontroller has no Python; a test compares them with these.
"""

from __future__ import annotations

SAFE = 2**62  # sums stay below this, so that the difference of two fits 64 bits

CLOCK_UNIT = "ms"  # of costs by the clock, so that a micro-unit is a nanosecond
MAX_NAME = 200  # characters of a name: of a sensor, a class, a unit
MAX_SENSORS = 8_192
MAX_NODES = 16_384
MAX_TARGETS = 16_384  # of one Branch; its entrants are numbered in 16 bits
MAX_SCORERS = 65_535
MAX_CLASSES = 32_767
MAX_RANKS = 65_534  # thresholds of a column, so that every rank is a code
MAX_CELLS = 65_536  # codes that scorers read, with missing below and above counted apart: numbered in 16 bits
MAX_READING_BYTES = 262_144  # of one sensor's readings: the kernel finds a reading by 16 bits, in steps of 4 bytes
MAX_ITEM_SIZE = 2**31 - 1
MAX_COEFFICIENTS = 8
MAX_SHIFT = 62  # of a value, to either side
MAX_TREE_COLUMNS = 16_383  # a slot is 2 * position + 1, in 16 bits
MAX_TREE_NODES = 32_767  # a child is -1 - leaf, in 16 bits
MAX_DIMENSION = 65_535  # of a layer: its height, width, channels, window and stride
MAX_LAYER_SHIFT = 62  # of a layer's sums, to the right

MAX_NUMBERS = 4_000_000  # that a reader takes from the pools
MAX_OPERATIONS = 4_000_000  # of one decision: seconds, not hours, on the slowest device
MAX_SESSION_BYTES = 4_194_304  # that a session takes in the kernel
MAX_WORK = 5_000_000  # of reading, proving and laying out a program: under two seconds on a computer

# What a part of a program adds to its work beside its numbers, each of which adds 1.
WORK = {
    "feature": 8,
    "sensor": 16,
    "column": 24,
    "scorer": 120,
    "tree": 60,
    "layer": 60,
    "node": 32,
    "term": 3,
    "candidate": 8,
    "read": 1,
}

# The longest that one operation takes, and what a decision takes beside them to begin and to end, by evaluator:
# measured on a computer, see docs/decisions/counted-work.md.
NANOSECONDS = {"kernel": 25, "python": 500}
CALL_NANOSECONDS = {"kernel": 2_000, "python": 10_000}
# What Python takes to begin and to end an item of several parts, and for each part at each release, for the kernel too.
ITEM_NANOSECONDS, STEP_NANOSECONDS = 20_000, 4_000


def worst_decision_ms(operations: int, evaluator: str) -> float:
    """The longest that a decision of so many operations takes on a computer, in milliseconds.

    >>> worst_decision_ms(10_000, "python")
    5.01
    """
    return round((operations * NANOSECONDS[evaluator] + CALL_NANOSECONDS[evaluator]) / 1e6, 3)


def worst_item_ms(operations: int, steps: int, evaluator: str) -> float:
    """The longest that an item of several parts takes: Python walks over its parts, whoever evaluates them.

    ``steps``: of parts at releases, which count among the operations of the evaluator in Python.

    >>> worst_item_ms(10_000, 100, "kernel")
    0.672
    """
    walk = ITEM_NANOSECONDS + (steps * STEP_NANOSECONDS if evaluator == "kernel" else 0)
    return round(worst_decision_ms(operations, evaluator) + walk / 1e6, 3)
