# SPDX-License-Identifier: Apache-2.0
"""Which answers a device still gives alone once its promise is broken: learned from f0's answers as cases come.

Answers that are alike, by class, confidence and number of sensors bought, are a cell. A cell rests, and then all its
cases are forwarded, and f0's answers say how often the device would have been right; or it answers alone, and then one
case in ten is forwarded as a probe. Which cells answer follows from how often f0 has lately differed in each: the best
ones first, as many as are together good enough (docs/math.md (147), (148)). Estimates may be wrong and the world may
turn, so a ledger stands above them: while the probes do not show that the answers given alone have kept the promise,
but for a few, nobody answers alone (docs/math.md (149) to (151)). That holds whatever the cases are, because nobody
knows which are probed. Cells are places in a table of fixed length, so memory is bounded; cells that share a place are
one.

References
----------
.. [1] Online conformal abstention under bandit feedback, arXiv 2506.14067, 2025: the same setting, other rules.
.. [2] Howard, Ramdas, McAuliffe and Sekhon, Time-uniform Chernoff bounds via nonnegative supermartingales, 2020.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, inf, log
from typing import Any

PROBE = 0.1  # share of the cases of a cell that answers which are forwarded
DELTA = 0.05  # probability at most that more answers are ever wrong than the ledger says
ALLOWED = 100  # wrong answers beyond the promised share, and as many again each time that the cases double ...
DOUBLING = 10_000  # ... from so many on
PLACES = 512
EDGES = (6_000, 7_500, 8_500, 9_200, 9_600, 9_800, 9_900, 9_950, 9_990)  # of confidence, in basis points
STAGES = 8  # cells of a class and confidence, by sensors bought
ONE = 4_096  # a wrong answer, in units of what a cell remembers
MOST_KNOWN = 4_096  # answers of f0 that a cell remembers; fewer where the promise is low: as many as have one wrong
FADE = 4_096  # cases after which all cells' shares of them are halved
LOOK = 32  # answers of f0 after which it is decided anew which cells answer, at the latest
CAUTION = 0.75  # share of the tolerated errors that cells may be estimated to have, before there is anything to spare
GRID = tuple((x, -log((1 - (1 - PROBE) * exp(x)) / PROBE)) for x in (0.08, 0.04, 0.02, 0.01, 0.005))
NEEDED = log(len(GRID) / DELTA)


@lru_cache(maxsize=1)  # it is asked of at each case, and changes with few of them
def most_wrong(probes: int) -> float:
    """Wrong answers given alone at most, with probability 1 - ``DELTA`` at all times, after so many wrong probes.

    >>> [round(most_wrong(n)) for n in (0, 1, 10, 100)]
    [58, 75, 230, 1234]
    """
    return min((price * probes + NEEDED) / weight for weight, price in GRID)


def place_of(answer: int, confidence: float | None, n_sensors: int) -> int:
    """The cell of an answer: its class, 0 for values; its confidence, 0 to 1; and the sensors bought for it.

    >>> place_of(0, None, 1), place_of(0, 0.97, 1), place_of(1, 0.97, 3)
    (1, 41, 123)
    """
    basis = -1.0 if confidence is None else 10_000 * confidence
    band = sum(basis >= edge for edge in EDGES)
    return ((answer * (len(EDGES) + 1) + band) * STAGES + min(n_sensors, STAGES - 1)) % PLACES


class Rest:
    """The cells and the ledger.

    Parameters
    ----------
    promised : share of the answers given alone with which f0 agrees at least, above 0 and below 1

    Attributes
    ----------
    n : int
        Cases so far.
    alone : int
        Those of them that the device has answered alone.
    wrong_probes : int
    uncovered : int
        Further cases that could not be forwarded, and stand outside the ledger.
    asked : pair of int and bool, or None
        The case that was forwarded last: its cell, and whether as a probe. Who has several under way at once keeps it
        with each, and sets it again before ``answered``.

    Examples
    --------
    >>> rest = Rest(0.9)
    >>> for _ in range(32):
    ...     if rest.takes(7, 0.5):
    ...         rest.answered(agrees=True)
    >>> rest.takes(7, 0.5), rest.takes(8, 0.5), rest.takes(7, 0.05)
    (False, True, True)
    """

    def __init__(self, promised: float) -> None:
        self.tolerated = 1 - promised
        self.n = self.alone = self.wrong_probes = self.uncovered = 0
        self._memory = min(MOST_KNOWN, ceil(1 / self.tolerated))
        self._cells: dict[int, list[int]] = {}  # by place: cases lately, answers of f0, wrong ones, does it answer
        self._total = 0  # cases lately, of all cells
        self._n_answers = 0
        self.asked: tuple[int, bool] | None = None
        self._owing: set[int] = set()  # cells that answer, and whose probe f0 has not answered

    # ------------------------------------------------------------ what happens

    def takes(self, place: int, draw: float) -> bool:
        """Whether this case is forwarded; ``draw`` is a number from 0 to 1 that nobody could know."""
        self.n += 1
        cell = self._cells.setdefault(place, [0, 0, 0, 0])
        cell[0] += 1
        self._total += 1
        if self._total >= FADE:
            self._fade()
        may_answer = bool(cell[3]) and self.may_answer
        is_probe = may_answer and (place in self._owing or draw < PROBE)
        if may_answer and not is_probe:
            self.asked = None
            self.alone += 1
            return False
        if is_probe:
            self._owing.add(place)
        self.asked = (place, is_probe)
        return True

    def answered(self, *, agrees: bool) -> None:
        """F0 has answered the case that was forwarded last; a second answer, or one to no case, counts for nothing."""
        if self.asked is None:
            return
        (place, is_probe), self.asked = self.asked, None
        self._owing.discard(place)
        cell = self._cells.setdefault(place, [0, 0, 0, 0])
        self.wrong_probes += is_probe and not agrees
        if cell[1] >= self._memory:
            cell[2] -= -(-cell[2] // self._memory)
        else:
            cell[1] += 1
        cell[2] += ONE * (not agrees)
        self._n_answers += 1
        if (cell[3] and not agrees) or self._n_answers % LOOK == 0:
            self._choose()

    def forget(self) -> None:
        """All cells begin anew, at rest; the ledger goes on."""
        self._cells, self._total, self.asked, self._owing = {}, 0, None, set()

    # ------------------------------------------------------------ what is known

    @property
    def allowance(self) -> float:
        """Wrong answers alone that are tolerated by now."""
        return self.tolerated * self.alone + ALLOWED * (1 + (self.n // DOUBLING).bit_length())

    @property
    def may_answer(self) -> bool:
        """Whether the probes show that no more answers are wrong than are tolerated."""
        return most_wrong(self.wrong_probes) <= self.allowance

    @property
    def forwarding(self) -> float:
        """The share of the device's own answers that it forwards, as cases have been lately."""
        if not self._total or not self.may_answer:
            return 1.0
        answering = sum(cell[0] for cell in self._cells.values() if cell[3])
        return 1 - (1 - PROBE) * answering / self._total

    def facts(self) -> dict[str, Any]:
        """For the status."""
        wrong = min(self.alone, int(most_wrong(self.wrong_probes)))
        return {"cases": self.n, "alone": self.alone, "wrong_at_most": wrong, "uncovered": self.uncovered}

    # ------------------------------------------------------------ which cells answer

    def _choose(self) -> None:
        """The best cells answer, as many as are together good enough."""
        spare = max(0.0, 1 - most_wrong(self.wrong_probes) / (self.tolerated * self.alone + ALLOWED))
        most = self.tolerated * (CAUTION + spare)
        each = self._cells.items()
        cells = sorted(((2 * wrong + ONE) / (ONE * (2 * known + 1)), place) for place, (_, known, wrong, _) in each)
        n = wrong = 0.0
        is_good = True
        for share, place in cells:
            cell = self._cells[place]
            n, wrong = n + cell[0] + 1, wrong + (cell[0] + 1) * share
            is_good = is_good and wrong <= most * n
            cell[3] = int(is_good)

    def _fade(self) -> None:
        for cell in self._cells.values():
            cell[0] //= 2
        self._total = sum(cell[0] for cell in self._cells.values())

    # ------------------------------------------------------------ from one sitting to the next

    def to_json(self) -> list[Any]:
        """What ``restore`` takes."""
        cells = [[place, *cell] for place, cell in sorted(self._cells.items())]
        return [self.n, self.alone, self.wrong_probes, self.uncovered, self._n_answers, sorted(self._owing), cells]

    def restore(self, state: object) -> bool:
        """Go on from an earlier ``to_json`` of the same promise; False, and nothing is changed, if it is not one."""
        if not (isinstance(state, list) and len(state) == 7 and _are_counts(state[:5], 2**53)):
            return False
        owing, rows = state[5:]
        if not (isinstance(owing, list) and _are_counts(owing, PLACES - 1) and isinstance(rows, list)):
            return False
        most = (PLACES - 1, FADE, self._memory, ONE * (self._memory + 1), 1)
        for row in rows:
            if not (isinstance(row, list) and len(row) == len(most)):
                return False
            if not all(_are_counts([x], bound) for x, bound in zip(row, most, strict=True)):
                return False
        cells = {row[0]: row[1:] for row in rows}
        n, alone, wrong_probes = state[:3]
        if len(cells) < len(rows) or not set(owing) <= cells.keys() or alone + wrong_probes > n:
            return False
        self.n, self.alone, self.wrong_probes, self.uncovered, self._n_answers = state[:5]
        self._cells, self._owing, self.asked = cells, set(owing), None
        self._total = sum(cell[0] for cell in cells.values())
        return True


def _are_counts(values: list[Any], most: float = inf) -> bool:
    return all(type(x) is int and 0 <= x <= most for x in values)
