# SPDX-License-Identifier: Apache-2.0
"""A learning problem: rows, labels, sensors with costs and f0's probabilities, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import ACCURACY, Quality
from hardcase_edge.program.cost import Meter, start_of, to_unit
from hardcase_edge.program.definition import FREE, MICRO, Costs, Feature, Program, Sensor, Uplink, sensors_of_features
from hardcase_edge.program.inner import MEMORY
from hardcase_edge.program.kinds import RANK, Kind, kind_of
from hardcase_edge.stream.layout import HELD, Layout, change_of, since_of

from ..settings.config import NO_LIMITS, IndexSettings, PolicyLimits
from ..settings.effort import NORMAL, Effort
from .error_costs import error_losses, targets_of

MAX_CLASSES = 200
MAX_VALUE = 1e12  # magnitude: beyond, squares and 32-bit results lose what models tell apart
MIN_ROWS = 10
PARTS = ("train", "valid", "test", "calibration")

Subset = tuple[int, ...]

N_FOLDS = 4  # the same for f0 and for low-cost models, so that both train on the same share of the rows


def answers_of(hpc: np.ndarray) -> np.ndarray:
    """f0's answers, (n,): class indices for (n, n_classes) probabilities, values for (n, 1) values."""
    return hpc[:, 0] if hpc.shape[1] == 1 else np.asarray(hpc.argmax(axis=1))


def value_unit(y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of values (n,).

    Raises
    ------
    InputError
        All values are the same.
    """
    mean = float(np.average(y, weights=weight))
    deviation = float(np.sqrt(np.average(np.square(y - mean), weights=weight)))
    if deviation <= 1e-12 * max(abs(mean), 1e-300):
        raise InputError(f"the target has the same value {mean:g} in all training rows; there is nothing to learn")
    return mean, deviation


def scaled(weight: np.ndarray) -> np.ndarray:
    """Scale weights (n,), at least 0 and not all 0, to a mean of 1 over those above 0.

    >>> scaled(np.array([0.0, 2.0, 6.0]))
    array([0. , 0.5, 1.5])
    """
    relative = weight / weight.max()  # before a sum is taken, which could overflow
    return np.asarray(relative / relative[relative > 0].mean())


@dataclass(frozen=True)
class Rows:
    """Rows of one split.

    Of a problem of values, y and hpc are in standard units: 0 and 1 are mean and deviation of the training rows.

    X : (n, n_features) float64, NaN for missing, values as the declared types hold them
    y : (n,) class index, or value
    hpc : (n, n_classes) f0's probabilities, or (n, 1) its values; out-of-fold on training rows
    index : (n,) row numbers in the source
    weight : (n,) row weights as ``scaled`` makes them; ones unless given
    group : (n,) number of the group that the row belongs to; None if each row stands for itself
    targets : (n_classes, n_classes) f0's answer is the class with the most of ``hpc @ targets``; None: of ``hpc``
    sizes : (n,) item size of each row, from 1, in which sensor costs are polynomials; None: all are 1
    sequence : (n,) number of the stream that each row belongs to, whose rows are in the order of their time; None: rows
        have no order

    >>> rows = Rows(np.zeros((2, 3)), np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]), np.arange(2))
    >>> rows.hpc_label, rows.weight
    (array([0, 0]), array([1., 1.]))
    """

    X: np.ndarray
    y: np.ndarray
    hpc: np.ndarray
    index: np.ndarray
    weight: np.ndarray = None  # type: ignore[assignment]  # always an array after __init__
    group: np.ndarray | None = None
    targets: np.ndarray | None = None
    sizes: np.ndarray | None = None
    sequence: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.weight is None:
            object.__setattr__(self, "weight", np.ones(len(self.y)))

    def take(self, rows: np.ndarray) -> Rows:
        """Some of the rows, by number or by mask."""
        group = None if self.group is None else self.group[rows]
        X, y, hpc, index, weight = (values[rows] for values in (self.X, self.y, self.hpc, self.index, self.weight))
        sizes, sequence = (None if values is None else values[rows] for values in (self.sizes, self.sequence))
        return Rows(X, y, hpc, index, weight, group, self.targets, sizes, sequence)

    @property
    def hpc_label(self) -> np.ndarray:
        """(n,) class index, or value, of f0's answer."""
        return answers_of(self.stakes)

    @property
    def hpc_confidence(self) -> np.ndarray:
        """(n,) probability that f0 gives to its answer, a class, in whole basis points as its replies carry it."""
        return np.asarray(np.round(self.hpc[np.arange(len(self.y)), self.hpc_label] * 10_000) / 10_000)

    @property
    def stakes(self) -> np.ndarray:
        """(n, n_classes) f0's probabilities, weighted by what the answers are worth; not normalised."""
        return self.hpc if self.targets is None else self.hpc @ self.targets


@dataclass(frozen=True)
class Problem:
    """A learning problem with costs. Costs are in micro-units, as in a program.

    calibration : rows for ``hardcase export --risk`` (Learn-then-Test); neither training nor model selection sees them
    quality : the measure of answers by which policies are chosen
    n_classes : 0 if values are predicted
    value_unit : of a problem of values, what 0 and a step of 1 are in the target's unit
    kept : the sensors that policies may read before they forward (``sweep.train``); None: all
    index : settings of methods that index sensor sets by size and budget
    max_item_size : the largest item whose costs are defined; 1 if items have no sizes
    costs : those beside the sensors'
    limits : what every policy keeps; methods ask ``is_affordable`` about its budget
    errors : (n_classes, n_classes) loss of answer a to a case of class y, as learners and cuts see it
        (``error_costs``); None: each error counts 1

    >>> sensors = Sensor((0, 1), (2_000_000,)), Sensor((2,), (3_000_000,))
    >>> rows = Rows(np.zeros((2, 3)), np.array([0, 1]), np.full((2, 2), 0.5), np.arange(2))
    >>> uplink, costs = Uplink(features=(0, 1)), Costs(per_request=10_000_000)
    >>> problem = Problem((Feature("f32"),) * 3, sensors, uplink, 2, rows, rows, rows, costs=costs)
    >>> problem.sensor_costs().tolist(), problem.forward_cost
    ([2.0, 3.0], 12.0)
    """

    features: tuple[Feature, ...]
    sensors: tuple[Sensor, ...]
    uplink: Uplink
    n_classes: int
    train: Rows
    valid: Rows
    test: Rows
    seed: int = 0
    calibration: Rows | None = None
    size_name: str = "auto"  # size of low-cost models, one of ``config.SIZES``
    effort: Effort = NORMAL
    quality: Quality = ACCURACY
    errors: np.ndarray | None = None
    value_unit: tuple[float, float] = (0.0, 1.0)
    kept: Subset | None = None
    max_item_size: int = 1
    index: IndexSettings = field(default_factory=IndexSettings)
    limits: PolicyLimits = NO_LIMITS
    costs: Costs = FREE

    def __post_init__(self) -> None:
        budget = self.limits.micro_budget
        if budget is not None and budget < start_of(self.costs):
            raise InputError(
                f"[policy] budget is {self.limits.budget:g}, but each decision costs {self.start_cost:g} before it "
                "reads anything ([cost] per_decision); raise it"
            )

    @property
    def start_cost(self) -> float:
        """What each case costs before it buys anything, in the user's unit."""
        return to_unit(start_of(self.costs))

    @property
    def is_ordered(self) -> bool:
        """Whether rows are windows of streams, in the order of their time."""
        return self.train.sequence is not None

    @property
    def majority(self) -> int:
        """The class of the most weight among the training rows."""
        return int(np.bincount(self.train.y, self.train.weight, self.n_classes).argmax())

    @property
    def kind(self) -> Kind:
        """What is predicted."""
        return kind_of(self.n_classes, self.quality.kind == RANK.default_measure)

    def in_unit(self, answers: np.ndarray) -> np.ndarray:
        """Values (n,) in the target's unit; classes stay as they are."""
        mean, step = self.value_unit
        return answers if (mean, step) == (0.0, 1.0) else mean + step * answers

    @property
    def n_outputs(self) -> int:
        """The number of scores that answer: 1 for two classes or a value, otherwise one for each class."""
        return self.n_classes if self.n_classes > 2 else 1

    def with_quality(self, quality: Quality, answers_are_fixed: bool = False) -> Problem:
        """The problem measured so; call it when f0's probabilities on training rows are known.

        Parameters
        ----------
        answers_are_fixed : f0's answers stay those of its highest probability, as of a legacy system
        """
        if not self.kind.has_classes:
            return replace(self, quality=quality)
        train = self.train
        errors = error_losses(quality, train.y, train.weight, train.hpc)
        problem = replace(self, quality=quality, errors=errors)
        if errors is None or answers_are_fixed:
            return problem
        parts = {name: getattr(self, name) for name in PARTS}
        rows = {name: replace(part, targets=problem.targets) for name, part in parts.items() if part is not None}
        return replace(problem, **rows)

    @property
    def targets(self) -> np.ndarray | None:
        """What each answer is worth to learners, (n_classes, n_classes); None: 1 for the true class, else 0."""
        return None if self.errors is None else targets_of(self.errors, self.train.y, self.train.weight)

    @property
    def exchange(self) -> float | None:
        """The loss of quality that a unit of cost is worth, if errors have costs in that unit."""
        return 1 / self.quality.scale if self.quality.kind == "errors" else None

    def with_hpc(self, proba: np.ndarray) -> Problem:
        """The problem with f0's probabilities ``proba``, (n, n_classes), indexed by row number in the source."""
        parts = {name: getattr(self, name) for name in PARTS}
        rows = {name: replace(part, hpc=proba[part.index]) for name, part in parts.items() if part is not None}
        return replace(self, **rows)

    @property
    def sensor_of(self) -> np.ndarray:
        """(n_features,) the sensor of each feature."""
        return np.array(sensors_of_features(self.sensors), dtype=np.int64)

    @property
    def offered(self) -> Subset:
        """The sensors that policies may read before they forward, without those that alone are over the budget."""
        kept = range(len(self.sensors)) if self.kept is None else self.kept
        return tuple(s for s in kept if self.is_affordable((s,)))

    def is_affordable(self, sensors: Iterable[int], requests: int = 0) -> bool:
        """Whether these sensors and requests keep the budget of ``limits``, for the largest item.

        A request also needs the sensors whose readings it carries; name them too, or ask ``may_forward``.
        """
        budget = self.limits.micro_budget
        return budget is None or self._largest.total(sensors, requests) <= budget

    def affordable(self, features: Iterable[int]) -> Subset:
        """The sensors of these features that keep the budget together, those of the first features first."""
        kept: list[int] = []
        for s in dict.fromkeys(self.sensor_of[list(features)].tolist()):
            if self.is_affordable((*kept, s)):
                kept.append(s)
        return tuple(sorted(kept))

    def may_forward(self, sensors: Iterable[int] = ()) -> bool:
        """Whether a row that has bought these sensors can still be forwarded within the budget."""
        return self.limits.max_forward != 0 and self.is_affordable({*sensors, *self.hpc_sensors}, 1)

    @cached_property
    def _largest(self) -> Meter:
        return Meter(self, self.max_item_size)

    @property
    def offered_of(self) -> np.ndarray:
        """(n_features,) the sensor of each feature that policies may read before they forward, -1 for the others."""
        owner = self.sensor_of
        return np.where(np.isin(owner, self.offered), owner, -1)

    @property
    def single_sensors(self) -> list[Subset]:
        """Each sensor alone."""
        return [(s,) for s in range(len(self.sensors))]

    @property
    def hpc_sensors(self) -> tuple[int, ...]:
        """The sensors whose readings a request carries; forwarding acquires them."""
        return tuple(sorted({int(s) for s in self.sensor_of[list(self.uplink.features)]}))

    @cached_property
    def meter(self) -> Meter:
        """The costs by which learners weigh sensors: of an item of size 1, or the mean over the training rows' sizes.

        Outcomes of policies are priced row by row instead (``policy.batch.Batch``), and so is each row that a learner
        weighs alone (``row_costs``).
        """
        meter, sizes = Meter(self), self.train.sizes
        if sizes is not None:
            distinct, row = np.unique(sizes, return_inverse=True)
            weight = np.bincount(row, weights=self.train.weight)
            costs = np.array([Meter(self, size).sensor_costs for size in distinct.tolist()], dtype=np.float64)
            meter.sensor_costs = [round(cost) for cost in np.average(costs, axis=0, weights=weight).tolist()]
        return meter

    def sensor_costs(self, size: int | None = None) -> np.ndarray:
        """(n_sensors,) cost of each sensor in the user's unit: for an item of this size, or as in ``meter``."""
        meter = self.meter if size is None else Meter(self, size)
        return np.array([to_unit(cost) for cost in meter.sensor_costs])

    def row_costs(self, sets: Sequence[Subset], sizes: np.ndarray | None, requests: int = 0) -> np.ndarray:
        """Cost of a case that buys these sets, by rows of sizes, (n, n_sets) in the user's unit; (1, n_sets) if all 1.

        Parameters
        ----------
        sizes : (n,) item size of each row, from 1; None: all are 1
        requests : number of requests that each row sends
        """
        distinct, row = np.unique(np.ones(1, dtype=np.int64) if sizes is None else sizes, return_inverse=True)
        meters = [Meter(self, size) for size in distinct.tolist()]
        is_in = np.zeros((len(self.sensors), len(sets)), dtype=np.int64)
        for k, s in enumerate(sets):
            is_in[list(s), k] = 1
        bought = np.array([meter.sensor_costs for meter in meters], dtype=np.int64) @ is_in
        whole = bought + np.array([[meter.total((), requests)] for meter in meters], dtype=np.int64)
        return np.asarray(whole[row] / MICRO)

    @property
    def forward_cost(self) -> float:
        """Cost of a forwarded case, in the user's unit: its start, its sensors, the uplink and the cloud."""
        return to_unit(self.meter.total(self.hpc_sensors, 1))

    @property
    def cost_unit(self) -> float:
        """What the most expensive case buys, in the user's unit, or the budget allows; 1 if everything is free."""
        costs, start = self.sensor_costs(), self.start_cost
        budget = None if self.limits.budget is None else self.limits.budget - start
        most = max(self.forward_cost - start, float(costs.sum()))
        buys = budget is not None and bool(((costs > 0) & (costs <= budget)).any())
        return (min(most, budget) if budget is not None and buys else most) or 1.0

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Declared type of each feature."""
        return tuple(f.dtype for f in self.features)


# ---------------------------------------------------------------- with a memory
# A problem with a memory: the inner sensor beyond its own, its names, and rows with empty columns for it.


def with_memory(problem: Problem, bought: Subset, watched: Sequence[int]) -> tuple[Program, Layout]:
    """The problem as a program without nodes, with a memory, and the memory's layout.

    Parameters
    ----------
    bought : sensors since whose last reading windows are counted
    watched : features whose changes since then are known
    """
    n, memory = len(problem.features), len(problem.sensors)
    since = tuple((n + 1 + k, s) for k, s in enumerate(bought))
    change = tuple((n + 1 + len(since) + k, f) for k, f in enumerate(watched))
    layout = Layout(memory, (n,), since, change)
    counts = [Feature("i32", nullable=True)] * (1 + len(since))
    own = (*counts, *(Feature(problem.features[f].dtype, nullable=True) for f in watched))
    sensor = Sensor(tuple(range(n, n + len(own))), (0,))
    program = Program(
        (*problem.features, *own), (*problem.sensors, sensor), problem.uplink, (), (), (), problem.n_classes,
        problem.max_item_size, problem.costs,
    )  # fmt: skip
    return program, layout


def memory_names(
    layout: Layout | None, features: Sequence[str], sensors: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of features and sensors, followed by those of the memory, if there is one."""
    if layout is None:
        return tuple(features), tuple(sensors)
    own = [HELD, *(since_of(sensors[s]) for _, s in layout.since), *(change_of(features[f]) for _, f in layout.change)]
    return (*features, *own), (*sensors, MEMORY)


def widened(X: np.ndarray, program: Program) -> np.ndarray:
    """Rows (n, n_features of the problem) with empty columns for the memory's features."""
    return np.hstack([X, np.full((len(X), len(program.features) - X.shape[1]), np.nan)])
