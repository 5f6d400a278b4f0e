# SPDX-License-Identifier: Apache-2.0
"""The first sensor of a routing policy: the one whose reading says which others to buy.

Its cells are judged by one step of lookahead. In each cell the sensors that lower the loss most are bought, first the
same ones in all cells, then those of each cell; models are the cell's own both times, so that the difference is worth
of routing alone. Half of the judged rows choose the sensors, the other half has the loss. docs/math.md (154).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...stages.subset_search import SubsetSearch
from .bayes import Cell, RouteRows
from .cells import Cells, make_cells

DEPTH = 4  # sensors that lookahead buys beside the first one
SHORTLIST = 5  # first sensors that are looked at so deep, those of the largest gains by one further sensor
LOOKED_AT = 1500  # judged rows at most
MOST_NUMBERS = 3 * 10**8  # of log densities that the search over roots may compute
MOST_ROOTS = 2
NEAR = 1.1  # times the least loss, that another root may have
USUAL_CELLS = 5  # of a reading, when roots are compared
SURE = 3.0  # standard errors that routing must gain: there are many candidates
SLACK = 1e-6  # of a cost
WORTH = 0.03  # of the log loss that routing must gain


@dataclass(frozen=True)
class Ahead:
    """What lookahead found.

    losses : mean log loss after each sensor but the first
    costs : mean cost of what is bought until then
    """

    losses: tuple[float, ...]
    costs: tuple[float, ...]

    @property
    def loss(self) -> float:
        """Their mean."""
        return float(np.mean(self.losses))


@dataclass(frozen=True)
class Root(Ahead):
    """A first sensor with its cells, and what lookahead in each of them found.

    gain, gain_se : mean log loss that routing saves with as many sensors, and its standard error
    """

    cells: Cells
    gain: float
    gain_se: float

    @property
    def pays(self) -> bool:
        """Whether routing is surely worth it."""
        return self.gain > SURE * self.gain_se and self.gain > WORTH * self.loss


def find_roots(rows: RouteRows, max_cells: int) -> list[Root]:
    """The first sensors for which routing pays, the best first."""
    made = [cells for s in _candidates(rows) if (cells := _usual(rows, s, max_cells)) is not None]
    near = sorted((looked(rows, cells, 1) for cells in made), key=lambda root: -root.gain)[:SHORTLIST]
    far = [looked(rows, root.cells, DEPTH) for root in near if root.gain > root.gain_se]
    paying = sorted((root for root in far if root.pays), key=lambda root: root.loss)[:MOST_ROOTS]
    best = [_with_best_size(rows, root, max_cells) for root in paying]
    least = min((root.loss for root in best), default=0.0)
    return sorted((root for root in best if root.loss < NEAR * least), key=lambda root: root.loss)


def _candidates(rows: RouteRows) -> list[int]:
    problem = rows.problem
    return [s for s in problem.offered if any(problem.is_affordable((s, t)) for t in problem.offered if t != s)]


def _usual(rows: RouteRows, sensor: int, max_cells: int) -> Cells | None:
    """The usual number of cells of this sensor, fewer if there are not so many; None if there are no two."""
    sizes = range(min(USUAL_CELLS, max_cells), 1, -1)
    return next((cells for n in sizes if (cells := make_cells(rows, sensor, n)) is not None), None)


def _with_best_size(rows: RouteRows, root: Root, max_cells: int) -> Root:
    """The first sensor, with the number of cells of the least loss."""
    others = [make_cells(rows, root.cells.sensor, n) for n in range(2, max_cells + 1) if n != root.cells.n]
    found = (looked(rows, cells, DEPTH) for cells in others if cells is not None)
    return min((root, *(other for other in found if other.pays)), key=lambda r: r.loss)


def looked(rows: RouteRows, cells: Cells, depth: int) -> Root:
    """Lookahead over so many further sensors."""
    problem = rows.problem
    offered = problem.offered
    sample = _sample(rows)
    place = offered.index(cells.sensor)
    tables = [_Half(rows, Cell(rows, cells.of == m, offered), sample[cells.of[sample] == m]) for m in range(cells.n)]
    paths = [t.path(place, depth) for t in tables]
    own = np.concatenate([t.losses(path) for t, path in zip(tables, paths, strict=True)])
    common = np.concatenate([t.losses(path) for path in (_common(tables, place, depth),) for t in tables])
    gain = (common - own).mean(axis=1)
    se = float(gain.std() / np.sqrt(max(len(gain), 1)))
    spent = [np.cumsum(problem.sensor_costs()[[offered[k] for k in path]])[1:] for path in paths]
    costs = np.average(spent, axis=0, weights=[len(t.y) + 1 for t in tables])
    return Root(tuple(own.mean(axis=0).tolist()), tuple(costs.tolist()), cells, float(gain.mean()), se)


def _sample(rows: RouteRows) -> np.ndarray:
    """Numbers of the judged rows that lookahead sees."""
    problem, n_offered = rows.problem, len(rows.problem.offered)
    most = int(min(LOOKED_AT, max(100, MOST_NUMBERS // (n_offered * problem.n_classes * DEPTH * n_offered))))
    return np.random.default_rng(problem.seed).permutation(np.flatnonzero(rows.judged))[:most]


def without_root(rows: RouteRows) -> Ahead:
    """Lookahead from the sensor of the largest gain, where all rows are one cell."""
    problem = rows.problem
    if len(problem.offered) < 2:
        return Ahead((), ())
    half = _Half(rows, Cell(rows, np.ones(len(rows.y), dtype=bool), problem.offered), _sample(rows))
    path = half.path(int(half.gains([]).argmax()), DEPTH)
    costs = np.cumsum(problem.sensor_costs()[[problem.offered[k] for k in path]])[1:]
    return Ahead(tuple(half.losses(path).mean(axis=0).tolist()), tuple(costs.tolist()))


def lead(ahead: Ahead, search: SubsetSearch) -> float:
    """The share of lookahead's steps with less loss than the small classifiers of the greedy paths' sets, 0 to 1."""
    sets = {s for path in search.paths() for s in path}
    rivals = [(search.cost(s), loss) for s, loss in zip(sets, search.losses(sets), strict=True)]
    is_less = [
        loss < min((other for cost, other in rivals if cost <= spent + SLACK), default=np.inf)
        for loss, spent in zip(ahead.losses, ahead.costs, strict=True)
    ]
    return float(np.mean(is_less)) if is_less else 0.0


class _Half:
    """The sampled rows of a cell: those that choose sensors, and those on which these are compared."""

    def __init__(self, rows: RouteRows, cell: Cell, sample: np.ndarray) -> None:
        self.shares, self.table = cell.tables(sample)
        self.y, self.weight = rows.y[sample], rows.weight[sample]
        self.chooses = np.arange(len(sample)) % 2 == 0
        self.costs = np.maximum(rows.problem.sensor_costs()[list(cell.sensors)], 1e-9)

    def gains(self, path: list[int]) -> np.ndarray:
        """The log loss that each sensor would save, per cost, summed over the rows that choose; (n_sensors,)."""
        rows = self.chooses
        if not rows.any():
            return np.zeros(self.table.shape[1])
        before = self.shares[rows] + self.table[rows][:, path].sum(axis=1)
        after = _loss(before[:, None] + self.table[rows], self.y[rows][:, None])
        gain: np.ndarray = self.weight[rows] @ (_loss(before, self.y[rows])[:, None] - after) / self.costs
        gain[path] = -np.inf
        return gain

    def path(self, first: int, depth: int) -> list[int]:
        """The sensors of the largest gains, one after the other."""
        return _greedy(first, self.gains, depth)

    def losses(self, path: list[int]) -> np.ndarray:
        """Log loss of the other rows after each sensor of the path but the first, (n_rows, n_sensors)."""
        rows = ~self.chooses
        scores = self.shares[rows] + self.table[rows, path[0]]
        losses = []
        for s in path[1:]:
            scores = scores + self.table[rows, s]
            losses.append(self.weight[rows] * _loss(scores, self.y[rows]))
        return np.stack(losses, axis=1)


def _common(tables: list[_Half], first: int, depth: int) -> list[int]:
    return _greedy(first, lambda path: np.sum([t.gains(path) for t in tables], axis=0), depth)


def _greedy(first: int, gains: Callable[[list[int]], np.ndarray], depth: int) -> list[int]:
    """Sensors of the largest gains after ``first``, one after the other."""
    path = [first]
    for _ in range(depth):
        gain = gains(path)
        if len(path) == len(gain):
            break
        path.append(int(gain.argmax()))
    return path


def _loss(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log loss of class scores (..., n_classes), (...)."""
    top = scores.max(axis=-1)
    return np.asarray(
        np.log(np.exp(scores - top[..., None]).sum(axis=-1))
        + top
        - np.take_along_axis(scores, np.broadcast_to(y[..., None], (*scores.shape[:-1], 1)), -1)[..., 0]
    )
