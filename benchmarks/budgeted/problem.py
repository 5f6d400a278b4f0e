# SPDX-License-Identifier: Apache-2.0
"""What a method is given: training rows, sensors, wishes; and a session, which sells the readings of test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

import numpy as np

__all__ = ["Method", "OverspentError", "Problem", "Sensor", "Session", "Wish"]

MEAN, HARD = "mean", "hard"
SLACK = 1e-9


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
    """A budget: of the mean cost over all rows, which is only measured, or of every row, which the session enforces."""

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
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    sensors: tuple[Sensor, ...]
    wishes: tuple[Wish, ...]
    seed: int = 0
    texts: frozenset[int] = frozenset()
    groups: np.ndarray | None = None

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


@dataclass
class Session:
    """Test rows whose readings are for sale.

    Attributes
    ----------
    problem, wish : what is asked for
    n : number of rows
    spent : (n,) cost of each row so far
    is_bought : (n, n_sensors)
    """

    problem: Problem
    wish: Wish
    X: np.ndarray = field(repr=False)
    spent: np.ndarray = field(init=False)
    is_bought: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._X = self.X
        del self.X  # only ``buy`` gives readings
        self.n = len(self._X)
        self.spent = np.zeros(self.n)
        self.is_bought = np.zeros((self.n, len(self.problem.sensors)), dtype=bool)

    def buy(self, sensor: int, rows: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """The readings of a sensor, (n_rows, n_columns of it), of these rows or of all; what a row has is free.

        Raises
        ------
        OverspentError
            A row cannot pay for it within its hard budget.
        """
        at = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        item = self.problem.sensors[sensor]
        new = np.unique(at[~self.is_bought[at, sensor]])
        if self.wish.kind == HARD and (self.spent[new] + item.cost > self.wish.budget + SLACK).any():
            raise OverspentError(f"{item.name} costs {item.cost:g}, which is more than a row has left")
        self.spent[new] += item.cost
        self.is_bought[new, sensor] = True
        return np.asarray(self._X[np.ix_(at, item.columns)])


class Method(Protocol):
    """A competitor."""

    def fit(self, problem: Problem) -> None:
        """Learn from the training rows; all wishes are known."""

    def decide(self, session: Session) -> np.ndarray:
        """The class of each row of the session, (n,), with what it buys there for ``session.wish``."""


def digest(*arrays: np.ndarray) -> str:
    """Of numbers of rows or of rows, so that a record says which they were."""
    made = sha256()
    for a in arrays:
        made.update(np.ascontiguousarray(a).tobytes())
    return made.hexdigest()[:16]
