# SPDX-License-Identifier: Apache-2.0
"""Recorded decisions as words and readings: what golden cases of rows and of items have in common.

A reader is strict: it takes what these writers write, and nothing else. docs/SPEC-bundle-v1.md section 4 defines the
fields; docs/SPEC-joint-v1.md section 7 has the same ones for items of several parts.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..errors import BundleError
from ..program.definition import CODE_MAX, MISSING
from ..program.format import Tensor, are_held
from ..program.readings import Reading
from .actions import CLOUD, DEGRADED, LOCAL

ROUTES = (LOCAL, CLOUD, DEGRADED)  # by their words
MAX_CASES = 4096
MAX_NUMBERS = 2**20  # words, and readings: 64 cases of 16,384 features
NO_BUDGET = -1
BITS = 15  # sensors in a word
LEAST, MOST = -(2**63), 2**63 - 1
NAN = float("nan")
AGAIN = "export the bundle again"


# ---------------------------------------------------------------- writing


def narrowest(words: Sequence[int], types: str, what: str) -> array:  # type: ignore[type-arg]
    """These words as an array of the first of these types that holds them all.

    Parameters
    ----------
    types : codes of ``array``, the narrowest first
    what : has the words, for the message

    Raises
    ------
    BundleError
        None does.
    """
    for code in types:
        try:
            return array(code, words)
        except OverflowError:
            continue
    raise BundleError(f"{what} has a number beyond 64 bits; {AGAIN}")


def sensor_words(sensors: Sequence[int], n_sensors: int) -> list[int]:
    """A set of sensors as bits, 15 sensors to a word, the lowest first.

    >>> sensor_words((0, 2, 16), 17)
    [5, 2]
    """
    members = set(sensors)
    return [sum(1 << k for k in range(BITS) if first + k in members) for first in range(0, n_sensors, BITS)]


def readings_tensor(numbers: Sequence[float]) -> array:  # type: ignore[type-arg]
    """Readings, NaN for missing, as int16 if all are whole and fit, else as float32 if that is exact, else as float64.

    >>> readings_tensor([1.0, NAN]), readings_tensor([0.5]).typecode, readings_tensor([0.1]).typecode
    (array('h', [1, -32768]), 'f', 'd')
    """
    if all(x != x or (-CODE_MAX <= x <= CODE_MAX and x == int(x)) for x in numbers):
        return array("h", [MISSING if x != x else int(x) for x in numbers])
    return array("f" if are_held([x for x in numbers if x == x], "f32") else "d", numbers)


# ---------------------------------------------------------------- reading


def numbers_of(readings: Tensor, cases: str) -> list[float]:
    """The numbers in a tensor of ``readings_tensor``, NaN for missing; ``cases`` is what messages call its owners.

    Raises
    ------
    BundleError
        There are too many, or the tensor has another type than theirs.
    """
    _check_count(len(readings), f"readings in {cases}")
    numbers: list[float] = list(map(float, readings.tolist()))
    if readings.itemsize == 2:
        numbers = [NAN if x == MISSING else x for x in numbers]
    if readings.itemsize != readings_tensor(numbers).itemsize:
        raise BundleError(f"the readings in {cases} are not of their type, the narrowest that holds them; {AGAIN}")
    return numbers


def typed_row(row: Sequence[float], are_i32: Sequence[bool]) -> tuple[Reading, ...]:
    """Readings in their features' types: None for NaN, an int for a whole i32 reading."""
    pairs = zip(row, are_i32, strict=True)
    return tuple([None if x != x else int(x) if is_i32 and x == x // 1 else x for x, is_i32 in pairs])


class Words:
    """The words of a tensor one after the other, each checked against its range.

    Parameters
    ----------
    tensor : of integers, of the narrowest type that holds them
    n_sensors : of the program
    cases : what messages call the owners of the words, such as "the golden cases"

    Raises
    ------
    BundleError
        By every method too: there are too many or too few words, or one is out of range.
    """

    def __init__(self, tensor: Tensor, n_sensors: int, cases: str) -> None:
        _check_count(len(tensor), f"words in {cases}")
        self._words: list[int] = tensor.tolist()
        self._at, self._n_sensors, self._cases = 0, n_sensors, cases
        if tensor.itemsize != narrowest(self._words, "hiq", cases).itemsize:
            raise BundleError(f"the words in {cases} are not of their type, the narrowest that holds them; {AGAIN}")

    def one(self, what: str, low: int = LEAST, high: int = MOST) -> int:
        """The next word, which ``what`` names in messages."""
        return self.run(what, 1, low, high)[0]

    def run(self, what: str, n: int, low: int = LEAST, high: int = MOST) -> tuple[int, ...]:
        """The next n words."""
        words = tuple(self._words[self._at : self._at + n])
        if len(words) != n:
            raise BundleError(f"{self._cases} are truncated at {what}; {AGAIN}")
        for k, word in enumerate(words):
            if not low <= word <= high:
                raise BundleError(f"{self._cases}: word {self._at + k} has {what} {word}, not {low} to {high}; {AGAIN}")
        self._at += n
        return words

    def budget(self, least: int) -> int | None:
        """A budget that pays for the start of a decision, ``least``; None for no limit."""
        amount = self.one("budget", NO_BUDGET)
        if amount != NO_BUDGET and amount < least:
            raise BundleError(f"{self._cases}: a budget of {amount} is below {least}, the cost of a start; {AGAIN}")
        return None if amount == NO_BUDGET else amount

    def sensors(self) -> tuple[int, ...]:
        """A set of sensors, as ``sensor_words`` writes it, in order of index."""
        sensors: list[int] = []
        for first in range(0, self._n_sensors, BITS):
            word = self.one("the sensors", 0, 2 ** min(BITS, self._n_sensors - first) - 1)
            sensors += [first + k for k in range(BITS) if word >> k & 1]
        return tuple(sensors)

    def reply(self, most: int | None) -> tuple[int, int] | None:
        """The HPC's result, 0 to ``most`` (None: any), and its confidence in basis points; None if no reply comes."""
        does_come = self.one("a flag", 0, 1)
        least, largest = (LEAST, MOST) if most is None else (0, most)
        result, confidence = self.one("a reply of", least, largest), self.one("a reply's confidence", 0, 10_000)
        if not does_come and (result or confidence):
            raise BundleError(f"{self._cases} have a reply of {result}, {confidence} that does not come; {AGAIN}")
        return (result, confidence) if does_come else None

    def end(self) -> None:
        """No word follows."""
        if self._at != len(self._words):
            raise BundleError(f"{self._cases} have {len(self._words) - self._at} words too many; {AGAIN}")


def _check_count(n: int, what: str) -> None:
    if n > MAX_NUMBERS:
        raise BundleError(f"there are {n} {what}, and at most {MAX_NUMBERS} are read; {AGAIN}")
