# SPDX-License-Identifier: Apache-2.0
"""What a method is given: training rows, sensors, wishes; and a session, which sells the readings of test rows.

A ``Meter`` holds the test rows, counts every purchase and refuses what a hard budget does not pay. It stays with the
harness; a method has a ``Session``, which asks the meter for readings and can neither see it nor change its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import numpy as np

MEAN, HARD = "mean", "hard"
SLACK = 1e-9
Rows = Sequence[int] | np.ndarray


class OverspentError(Exception):
    """A purchase would cost a row more than its hard budget; nothing was bought."""


@dataclass(frozen=True)
class Sensor:
    """Columns that are bought together, at a cost for each row."""

    name: str
    columns: tuple[int, ...]
    cost: float = 1.0


@dataclass(frozen=True)
class Wish:
    """A budget: of the mean cost over all rows, which is only measured, or of every row, which the meter enforces."""

    budget: float
    kind: str = MEAN

    def __str__(self) -> str:
        return f"{self.kind} {self.budget:g}"


@dataclass(frozen=True)
class Problem:
    """Rows, sensors and wishes.

    Attributes
    ----------
    X, y : training rows (n, n_columns), NaN for missing, and their classes from 0
    sensors : each column belongs to one of them
    wishes : ``decide`` is called once for each
    seed : of the split, and for what a method draws
    texts : columns that hold codes of texts, whose order means nothing
    groups : (n,) training rows with the same number are of one person or machine; None: rows stand for themselves
    is_ordered : sensors come one after another, as the segments of a window; who reads one has paid for all before it
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    sensors: tuple[Sensor, ...]
    wishes: tuple[Wish, ...]
    seed: int = 0
    texts: frozenset[int] = frozenset()
    groups: np.ndarray | None = None
    is_ordered: bool = False

    @property
    def n_classes(self) -> int:
        """Classes are numbered from 0."""
        return int(self.y.max()) + 1

    @property
    def costs(self) -> np.ndarray:
        """Of each sensor."""
        return np.array([s.cost for s in self.sensors])

    def columns(self, sensors: Sequence[int]) -> list[int]:
        """The columns of these sensors, in their order."""
        return [c for s in sensors for c in self.sensors[s].columns]

    def bought_with(self, sensor: int) -> slice:
        """The sensors that a row has, and has paid for, when it has read this one."""
        return slice(0 if self.is_ordered else sensor, sensor + 1)


class Meter:
    """Test rows for sale, and the only count of what was bought of them.

    Attributes
    ----------
    spent : (n,) cost of each row so far
    is_read : (n, n_sensors)
    """

    def __init__(self, problem: Problem, wish: Wish, X: np.ndarray) -> None:
        self._sensors, self._wish, self._X, self._problem = problem.sensors, wish, X, problem
        self.spent = np.zeros(len(X))
        self.is_read = np.zeros((len(X), len(problem.sensors)), dtype=bool)

    def sell(self, sensor: int, rows: np.ndarray) -> np.ndarray:
        """The readings of a sensor, (n_rows, n_columns of it), of these rows; what a row has is free.

        Raises
        ------
        IndexError
            There is no such sensor or row.
        OverspentError
            A row cannot pay for it within its hard budget.
        """
        if not 0 <= sensor < len(self._sensors):
            raise IndexError(f"there is no sensor {sensor}; sensors are numbered from 0 to {len(self._sensors) - 1}")
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self._X):
            raise IndexError(f"rows are numbered from 0 to {len(self._X) - 1}")
        item = self._sensors[sensor]
        new, bought = np.unique(rows[~self.is_read[rows, sensor]]), self._problem.bought_with(sensor)
        due = ~self.is_read[new, bought] @ self._problem.costs[bought]
        beyond = np.flatnonzero(self.spent[new] + due > self._wish.budget + SLACK)
        if self._wish.kind == HARD and len(beyond):
            row, cost = new[beyond[0]], due[beyond[0]]
            raise OverspentError(
                f"{item.name} costs {cost:g}, and row {row} has {self._wish.budget - self.spent[row]:g} left; "
                "read only rows whose session.left pays for it"
            )
        self.spent[new] += due
        self.is_read[new, bought] = True
        return np.asarray(self._X[np.ix_(rows, item.columns)])


class Session:
    """What a method sees of the test rows: it reads sensors, and pays.

    Attributes
    ----------
    problem, wish : what is asked for
    n : number of rows
    is_read : (n, n_sensors) what was bought; changing it changes nothing that is measured
    """

    def __init__(self, problem: Problem, wish: Wish, n: int, sell: Callable[[int, np.ndarray], np.ndarray]) -> None:
        self.problem, self.wish, self.n, self._sell = problem, wish, n, sell
        self.is_read = np.zeros((n, len(problem.sensors)), dtype=bool)

    @property
    def spent(self) -> np.ndarray:
        """(n,) cost of each row so far."""
        return self.is_read @ self.problem.costs

    @property
    def left(self) -> np.ndarray:
        """(n,) what the budget leaves each row; of a mean budget it may be negative."""
        return self.wish.budget - self.spent

    def read(self, sensor: int | str, rows: Rows | None = None) -> np.ndarray:
        """The readings of a sensor, (n_rows, n_columns of it), of these rows or of all; what a row has is free.

        Raises
        ------
        KeyError, IndexError
            There is no sensor of this name, or none of this number, or no such row; or rows are neither numbers nor a
            mask of all rows.
        OverspentError
            A row cannot pay for it within its hard budget.
        """
        at = self._rows(rows)
        number = self._number(sensor) if isinstance(sensor, str) else int(sensor)
        readings = self._sell(number, at)
        self.is_read[at, self.problem.bought_with(number)] = True
        return readings

    def _rows(self, rows: Rows | None) -> np.ndarray:
        """Their numbers; of a mask, where it is true."""
        if rows is None:
            return np.arange(self.n)
        at = np.asarray(rows)
        if at.dtype == bool and at.shape == (self.n,):
            return np.flatnonzero(at)
        if at.ndim != 1 or (at.size and at.dtype.kind not in "iu"):
            raise IndexError(
                f"rows are a list of their numbers or a mask of shape ({self.n},); "
                f"these have the shape {at.shape} and the type {at.dtype}"
            )
        return at.astype(np.int64)

    def _number(self, name: str) -> int:
        names = [s.name for s in self.problem.sensors]
        if name not in names:
            raise KeyError(f"there is no sensor {name}; sensors are {', '.join(names[:8])}{' ...' * (len(names) > 8)}")
        return names.index(name)


class Method(Protocol):
    """A competitor."""

    def fit(self, problem: Problem) -> None:
        """Learn from the training rows; all wishes are known."""

    def decide(self, session: Session) -> np.ndarray:
        """The class of each row of the session, (n,), with what it reads there for ``session.wish``."""


def digest(*arrays: np.ndarray) -> str:
    """Of numbers of rows or of rows, so that a record says which they were."""
    made = sha256()
    for a in arrays:
        made.update(np.ascontiguousarray(a).tobytes())
    return made.hexdigest()[:16]
