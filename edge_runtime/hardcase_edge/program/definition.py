# SPDX-License-Identifier: Apache-2.0
"""The program: the data that every policy compiles to and every evaluator executes.

A program is a graph of nodes, entered at node 0. ``Acquire`` buys sensors (feature acquisition), ``Branch`` and
``Select`` choose where to go, and the path ends at an ``Answer``, which is an early exit wherever sensors remain
unbought, or at a ``Forward``, which asks the high-cost model in the cloud. Every target of a node has a larger index
than the node, so every path ends.

Branches and answers read scorers; scorers read columns, which are readings turned into int16 codes. Numbers in scorers
are integers in a program that runs, and floats in a *draft*, which training writes and ``hardcase_export`` quantises.
Everything else is an integer in both. Costs are integers in millionths of the user's unit (``MICRO``), so that sums are
exact on every machine.

docs/SPEC-program-v1.md defines the semantics and the bytes; ``verifier.verify`` proves what must hold. A program that
buys a thermometer for 2 units and answers class 1 above 20 degrees:

>>> thermometer = Program(
...     features=(Feature("f32"),),
...     sensors=(Sensor(features=(0,), cost=(2 * MICRO,)),),
...     uplink=Uplink(),
...     columns=(Column(feature=0, rule=Rank(thresholds=(20.0,))),),
...     scorers=(
...         Trees(
...             columns=(0,),
...             base=(0,),
...             trees=(
...                 Tree(
...                     output=0,
...                     width=1,
...                     splits=(0,),
...                     thresholds=(-CODE_MAX,),  # the code of a reading with no threshold below it
...                     missing_left=(True,),
...                     children=(),
...                     leaves=(-5, 5),
...                 ),
...             ),
...         ),
...     ),
...     nodes=(Acquire(sensors=(0,), then=1, otherwise=1), Answer(Slice(scorer=0, start=0, stop=1))),
...     n_classes=2,
... )
>>> targets_of(thermometer.nodes[0])
(1, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ldexp, prod
from typing import Any, assert_never

from ..base.record import cached, field, record
from .kinds import CLASS

MICRO = 1_000_000  # cost integers per unit of cost
MISSING = -32768  # the code of a missing reading
CODE_MAX = 32767  # all other codes lie in [-CODE_MAX, CODE_MAX]

THRESHOLD, MARGIN, ARGMAX, TOURNAMENT = "threshold", "margin", "argmax", "tournament"
CONV, DEPTHWISE, AVERAGE, LARGEST = LAYERS = ("conv", "depthwise", "average", "max")

Number = int | float  # an int in a program, a float in a draft


@record(frozen=True, slots=True)
class Feature:
    """One number of a sensor's reading. ``nullable``: it may be missing although its sensor works."""

    dtype: str  # "i32", "f32" or "f64"
    nullable: bool = False


@record(frozen=True, slots=True)
class Sensor:
    """A source of features that are bought together, once per decision."""

    features: tuple[int, ...]
    cost: tuple[int, ...]  # micro-units: cost[0] + cost[1] s + cost[2] s^2 ... for items of size s, all >= 0


@record(frozen=True, slots=True)
class Costs:
    """What a decision costs beside its sensors, in micro-units, each at least 0; ``cost.Meter`` adds them up.

    The fields are in the order of the format, so a new one comes last.
    """

    per_request: int = 0  # radio, for each request
    per_byte: int = 0  # radio, for each byte of a request
    cloud_per_request: int = 0  # the HPC, for each request
    per_decision: int = 0  # waking up, for each decision before it buys anything; for an item of several parts once

    @property
    def terms(self) -> dict[str, int]:
        """Each cost by its name, in the order of the format."""
        return {name: getattr(self, name) for name in self.__match_args__}


FREE = Costs()


@record(frozen=True, slots=True)
class Uplink:
    """What a request to the HPC carries."""

    request_bytes: int = 0  # length of a request
    features: tuple[int, ...] = ()  # features that a request carries, in this order


# ---------------------------------------------------------------- columns: readings as int16 codes


@record(frozen=True, slots=True)
class Affine:
    """``code = clamp((fixed(x, frac) * mul + add) >> shift, low, high)`` in 64-bit integers."""

    frac: int
    mul: int
    add: int
    shift: int
    low: int = -CODE_MAX
    high: int = CODE_MAX


@record(frozen=True, slots=True)
class Rank:
    """``code = (number of thresholds below x) - CODE_MAX``; thresholds strictly increase."""

    thresholds: tuple[Number, ...]


@record(frozen=True, slots=True)
class Column:
    """A feature turned into codes by a rule. A feature may have several columns."""

    feature: int
    rule: Affine | Rank


# ---------------------------------------------------------------- scorers: codes to integer scores


@record(frozen=True, slots=True)
class Polynomial:
    """``score[o] = bias[o] + sum_t weights[o][t] * prod_j code[terms[t][j]]``; a linear scorer if the degree is 1.

    ``terms`` hold positions in ``columns``; position ``len(columns)`` is the constant column, whose code is
    ``constant``. ``substitutes[k]`` is the code of column k when its reading is missing; None means that it is never
    missing when this scorer is read, which the verifier proves.
    """

    columns: tuple[int, ...]
    substitutes: tuple[int | None, ...]
    constant: int
    terms: tuple[tuple[int, ...], ...]  # all terms have the same degree: 1, 2 or 3
    weights: tuple[tuple[Number, ...], ...]  # (n_outputs, n_terms)
    bias: tuple[Number, ...]  # (n_outputs,)
    weight_bits: int = 16  # bits of a stored weight: 8 or 16


@record(frozen=True, slots=True)
class Tree:
    """A tree with vector leaves: it adds ``width`` values to the scores from ``output`` on.

    At a node, a row goes left if its code is at most the threshold, or if the reading is missing and ``missing_left``
    is set. ``children`` is empty for a complete tree in heap order (the children of node i are 2i + 1 and 2i + 2).
    Otherwise it holds (left, right) per node: a larger node index, or -1 - k for leaf k. A tree without nodes consists
    of leaf 0.
    """

    output: int
    width: int
    splits: tuple[int, ...]  # positions in the scorer's columns
    thresholds: tuple[int, ...]  # codes
    missing_left: tuple[bool, ...]
    children: tuple[tuple[int, int], ...]
    leaves: tuple[Number, ...]  # (n_leaves * width,)


@record(frozen=True, slots=True)
class Trees:
    """An ensemble: ``score = base + sum of the trees' leaves`` (forests and boosted trees alike)."""

    columns: tuple[int, ...]
    base: tuple[Number, ...]  # (n_outputs,)
    trees: Sequence[Tree]  # a tuple, or a ``StoredTrees`` that reads them from a bundle one by one


@record(frozen=True, slots=True)
class Stack:
    """A linear scorer over the outputs of single trees, each of width 1, of the ensemble with number ``trees``."""

    trees: int
    members: tuple[int, ...]  # tree numbers in that scorer
    weights: tuple[tuple[Number, ...], ...]  # (n_outputs, n_members)
    bias: tuple[Number, ...]


@record(frozen=True, slots=True)
class Opaque:
    """A user's TFLite model over raw readings: its outputs are declared to lie in [low, high], but not proved to."""

    features: tuple[int, ...]
    blob: bytes = field(repr=False)
    low: tuple[int, ...]
    high: tuple[int, ...]


@record(frozen=True, slots=True)
class Layer:
    """A layer of a network: values are counted from windows of its input. Of a dense layer, one window covers it."""

    kind: str  # one of LAYERS
    window: tuple[int, int]  # height and width
    stride: tuple[int, int]  # of the windows
    padding: tuple[int, int]  # rows above and columns left of the input that the first window covers
    shape: tuple[int, int, int]  # of the output: height, width, channels
    zero_point: int  # the output that stands for 0
    low: int  # outputs are clamped to low to high
    high: int
    weights: tuple[int, ...] = ()  # int8: (channels, *window, channels of the input); depthwise: (*window, channels)
    bias: tuple[int, ...] = ()  # (channels,), as multipliers and shifts
    multipliers: tuple[int, ...] = ()  # a sum is multiplied by multiplier * 2^-shift
    shifts: tuple[int, ...] = ()


@record(frozen=True, slots=True)
class Network:
    """Layers of int8 numbers over codes; a score is an output of the last layer less its zero point."""

    columns: tuple[int, ...]
    substitutes: tuple[int | None, ...]  # as of a polynomial
    shape: tuple[int, int, int]  # of the codes: height, width, channels
    zero_point: int  # the code that stands for 0
    layers: tuple[Layer, ...]


OnColumns = Polynomial | Trees | Network  # scorers that read columns by their numbers
Scorer = OnColumns | Stack | Opaque


@record(frozen=True, slots=True)
class Slice:
    """Outputs ``start`` to ``stop`` - 1 of a scorer. Where classes are scored, one output s stands for (0, s)."""

    scorer: int
    start: int
    stop: int


# ---------------------------------------------------------------- nodes


@record(frozen=True, slots=True)
class Acquire:
    """Buy a set of sensors and go to ``then``; go to ``otherwise`` if one has failed or they exceed the budget."""

    sensors: tuple[int, ...]
    then: int
    otherwise: int


@record(frozen=True, slots=True)
class Branch:
    """Choose the next node by scores.

    - ``threshold``: targets[1] if score > threshold, else targets[0].
    - ``margin``: targets[1] if best score - second best >= threshold, else targets[0].
    - ``argmax``: the target with the best score.
    - ``tournament``: one score per match of ``bracket``. In a match (a, b), b wins if the score is above 0. Entrants
      0 to n - 1 are the targets; after them come the winners of the matches, in order.

    A target is unavailable if it is an Acquire with a failed sensor or over budget, or a Forward over budget. Then the
    next best target is taken; if all are unavailable, the rule's first choice.
    """

    scores: Slice
    rule: str
    targets: tuple[int, ...]
    threshold: Number = 0
    bracket: tuple[tuple[int, int], ...] = ()


@record(frozen=True, slots=True)
class Candidate:
    """A target for items of at most ``max_size`` whose ``cost``, a polynomial in the size, fits the budget left."""

    max_size: int
    cost: tuple[int, ...]
    target: int


@record(frozen=True, slots=True)
class Select:
    """Go to the first candidate that fits the item's size and the budget left; if none does, to ``otherwise``."""

    candidates: tuple[Candidate, ...]
    otherwise: int


@record(frozen=True, slots=True)
class Answer:
    """End with a local answer: the class with the best score (the first of equals), or the score as a value.

    A value is the score times 2^shift, rounded to the nearest integer, halves up: scorers have scales of their own, and
    shifts bring their answers to one scale. The answer's confidence is ``confidences[k]``, in basis points, if exactly
    k of ``margins`` are at most the margin (of a value: the score).
    """

    scores: Slice
    kind: str = CLASS.answer  # one of ``kinds.ANSWERS``
    margins: tuple[Number, ...] = ()  # strictly increasing
    confidences: tuple[int, ...] = (0,)
    shift: int = 0  # of a value


@record(frozen=True, slots=True)
class Forward:
    """Buy the HPC's missing sensors and ask it; go to ``fallback`` without cloud, over budget, or without a reply."""

    sensors: tuple[int, ...]
    fallback: int


Node = Acquire | Branch | Select | Answer | Forward


@record(frozen=True, slots=True)
class Program:
    """A policy as data; the module's docstring has an example. Elements refer to each other by index."""

    features: tuple[Feature, ...]
    sensors: tuple[Sensor, ...]
    uplink: Uplink
    columns: tuple[Column, ...]
    scorers: tuple[Scorer, ...]
    nodes: tuple[Node, ...]
    n_classes: int  # 0 in a program whose answers are values
    max_item_size: int = 1  # the largest item whose costs are defined
    costs: Costs = FREE

    @cached
    def sensor_of(self) -> tuple[int, ...]:
        """The sensor of each feature."""
        return sensors_of_features(self.sensors)


def sensors_of_features(sensors: Sequence[Sensor]) -> tuple[int, ...]:
    """The sensor of each feature, where every feature belongs to exactly one: (n_features,) numbers of sensors."""
    owner = {f: k for k, sensor in enumerate(sensors) for f in sensor.features}
    return tuple([owner[f] for f in range(len(owner))])


def shifted(score: int, shift: int) -> int:
    """The score times 2^shift, rounded to the nearest integer, halves up.

    >>> shifted(-5, 1), shifted(5, -1), shifted(-5, -1), shifted(6, -2)
    (-10, 3, -2, 2)
    """
    return score << shift if shift >= 0 else (score + (1 << -shift - 1)) >> -shift


def offsets_of(s: Scorer) -> tuple[Number, ...]:
    """What each output is counted from, (n_outputs,): its bias or base, of an opaque scorer its least value, or 0."""
    if isinstance(s, Network):
        return (0,) * prod(s.layers[-1].shape)
    return s.bias if isinstance(s, Polynomial | Stack) else s.base if isinstance(s, Trees) else s.low


def shifter_of(program: Program) -> Callable[[Any, int], Any]:
    """What a shift does to a program's score: as ``shifted``, and in a draft without rounding.

    A draft shifts the integers of an opaque scorer alone; a scorer of floats beside it shows that it is a draft.
    """
    return ldexp if any(isinstance(v, float) for s in program.scorers for v in offsets_of(s)) else shifted


def targets_of(node: Node) -> tuple[int, ...]:
    """The indices of all nodes that may follow this one."""
    if isinstance(node, Acquire):
        return (node.then, node.otherwise)
    if isinstance(node, Branch):
        return node.targets
    if isinstance(node, Select):
        return (*(c.target for c in node.candidates), node.otherwise)
    if isinstance(node, Forward):
        return (node.fallback,)
    if isinstance(node, Answer):
        return ()
    assert_never(node)
