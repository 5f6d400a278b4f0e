"""The program: what every policy compiles to and every target executes. Data only, no behaviour.

A program is a graph of nodes. A node's targets always have a larger index than the node, so every program ends.
Node 0 is the entry. Numbers in scorers are integers in a program that runs, floats in a *draft* (what training
writes and ``hardcase_export`` quantises); everything else is integer in both. docs/SPEC-program-v1.md defines
the semantics and the bytes; ``verifier`` says what must hold.

Costs are integers in millionths of the user's unit (``MICRO``), so that sums are exact on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.record import cached, field, record

__all__ = [
    "ARGMAX",
    "CODE_MAX",
    "MARGIN",
    "MICRO",
    "MISSING",
    "THRESHOLD",
    "TOURNAMENT",
    "Acquire",
    "Affine",
    "Answer",
    "Branch",
    "Candidate",
    "Column",
    "Feature",
    "Forward",
    "Node",
    "Number",
    "Opaque",
    "Polynomial",
    "Program",
    "Rank",
    "Scorer",
    "Select",
    "Sensor",
    "Slice",
    "Stack",
    "Tree",
    "Trees",
    "Uplink",
    "sensors_of_features",
    "targets_of",
]

MICRO = 1_000_000  # cost integers per unit of cost
MISSING = -32768  # the code kept for "no reading"
CODE_MAX = 32767  # codes lie in [-CODE_MAX, CODE_MAX]

THRESHOLD, MARGIN, ARGMAX, TOURNAMENT = "threshold", "margin", "argmax", "tournament"

Number = int | float  # int in a program, float in a draft


# ---------------------------------------------------------------- what can be bought


@record(frozen=True, slots=True)
class Feature:
    """One number a sensor gives. ``nullable``: it may be missing although its sensor works."""

    dtype: str  # "i32", "f32" or "f64"
    nullable: bool = False


@record(frozen=True, slots=True)
class Sensor:
    """A source of features bought together. ``cost``: coefficients of an integer polynomial in the item's size."""

    features: tuple[int, ...]
    cost: tuple[int, ...]  # micro-units; cost(s) = cost[0] + cost[1] s + cost[2] s^2 ..., all >= 0


@record(frozen=True, slots=True)
class Uplink:
    """What one request to the HPC costs, in micro-units, and how long it is."""

    per_request: int = 0
    per_byte: int = 0
    cloud_per_request: int = 0
    request_bytes: int = 0
    features: tuple[int, ...] = ()  # what a request carries, in this order


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
    """A feature seen through a rule. A feature may have several columns."""

    feature: int
    rule: Affine | Rank


# ---------------------------------------------------------------- scorers: codes to integer scores


@record(frozen=True, slots=True)
class Polynomial:
    """``score[o] = bias[o] + sum_t weights[o][t] * prod_j code[terms[t][j]]``; degree 1 is a linear scorer.

    ``terms`` hold positions in ``columns``; position ``len(columns)`` is the constant column, whose code is
    ``constant``. ``substitutes[k]`` is used where column k is missing; None says that it never may be.
    """

    columns: tuple[int, ...]
    substitutes: tuple[int | None, ...]
    constant: int
    terms: tuple[tuple[int, ...], ...]  # one degree for all terms: 1, 2 or 3
    weights: tuple[tuple[Number, ...], ...]  # (n_outputs, n_terms)
    bias: tuple[Number, ...]  # (n_outputs,)
    weight_bits: int = 16  # 8 or 16: how weights are stored


@record(frozen=True, slots=True)
class Tree:
    """A tree with vector leaves: adds ``width`` values to the scores from ``output`` on.

    A node goes left if its code is at most its threshold, or is missing and ``missing_left`` is set.
    ``children`` is empty for a complete tree in heap order (children of i: 2i+1, 2i+2). Otherwise it holds (left,
    right) per node: a larger node index, or -1-k for leaf k. A tree without nodes is leaf 0.
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
    trees: Sequence[Tree]  # a tuple, or those of a bundle, made as they are looked at: ``stored``


@record(frozen=True, slots=True)
class Stack:
    """Linear over the outputs of single trees of the scorer ``trees``, each of width 1, computed once a session."""

    trees: int
    members: tuple[int, ...]  # tree numbers in that scorer
    weights: tuple[tuple[Number, ...], ...]  # (n_outputs, n_members)
    bias: tuple[Number, ...]


@record(frozen=True, slots=True)
class Opaque:
    """A user's TFLite model over raw readings: unproved, declared outputs in [low, high], Python only."""

    features: tuple[int, ...]
    blob: bytes = field(repr=False)
    low: tuple[int, ...]
    high: tuple[int, ...]


Scorer = Polynomial | Trees | Stack | Opaque


@record(frozen=True, slots=True)
class Slice:
    """Outputs ``start`` to ``stop`` of a scorer. A slice of width one, s, is read as the pair (0, s)."""

    scorer: int
    start: int
    stop: int


# ---------------------------------------------------------------- nodes


@record(frozen=True, slots=True)
class Acquire:
    """Buy a set of sensors; ``otherwise`` when one fails or has failed, or the cost would break the budget."""

    sensors: tuple[int, ...]
    then: int
    otherwise: int


@record(frozen=True, slots=True)
class Branch:
    """Score what is bought and go on.

    ``threshold``: targets[1] if score > threshold else targets[0]. ``margin``: targets[1] if best - second >=
    threshold else targets[0]. ``argmax``: the target with the best score. ``tournament``: one score per match of
    ``bracket``, a match (a, b) is won by b if its score > 0; entrants are targets, then the winners of matches.
    A target that cannot be had (an Acquire with a failed sensor or over budget, a Forward over budget) is
    passed over for the next best; if none can be had, the rule's own choice is taken.
    """

    scores: Slice
    rule: str
    targets: tuple[int, ...]
    threshold: Number = 0
    bracket: tuple[tuple[int, int], ...] = ()


@record(frozen=True, slots=True)
class Candidate:
    """One model of an index: for items of at most ``max_size``, if ``cost`` (a polynomial) fits the budget left."""

    max_size: int
    cost: tuple[int, ...]
    target: int


@record(frozen=True, slots=True)
class Select:
    """The first candidate, best first, that fits the item's size and the budget left; else ``otherwise``."""

    candidates: tuple[Candidate, ...]
    otherwise: int


@record(frozen=True, slots=True)
class Answer:
    """End here. Kind "class": the best score's class, first wins ties; kind "value": the score itself.

    ``confidences[k]`` (basis points) is said when exactly k of ``margins`` are at most the margin.
    """

    scores: Slice
    kind: str = "class"
    margins: tuple[Number, ...] = ()
    confidences: tuple[int, ...] = (0,)


@record(frozen=True, slots=True)
class Forward:
    """Ask the HPC: buy what it still needs, send raw readings. ``fallback`` where budget or cloud say no."""

    sensors: tuple[int, ...]
    fallback: int


Node = Acquire | Branch | Select | Answer | Forward


@record(frozen=True, slots=True)
class Program:
    """A policy as data. See the module's docstring."""

    features: tuple[Feature, ...]
    sensors: tuple[Sensor, ...]
    uplink: Uplink
    columns: tuple[Column, ...]
    scorers: tuple[Scorer, ...]
    nodes: tuple[Node, ...]
    n_classes: int
    max_item_size: int = 1

    @cached
    def sensor_of(self) -> tuple[int, ...]:
        """The sensor of each feature."""
        return sensors_of_features(self.sensors)


def sensors_of_features(sensors: Sequence[Sensor]) -> tuple[int, ...]:
    """The sensor of each feature, where every feature belongs to exactly one: (n_features,) numbers of sensors."""
    owner = {f: k for k, sensor in enumerate(sensors) for f in sensor.features}
    return tuple([owner[f] for f in range(len(owner))])


def targets_of(node: Node) -> tuple[int, ...]:
    """Every node this one may lead to."""
    if isinstance(node, Acquire):
        return (node.then, node.otherwise)
    if isinstance(node, Branch):
        return node.targets
    if isinstance(node, Select):
        return (*(c.target for c in node.candidates), node.otherwise)
    if isinstance(node, Forward):
        return (node.fallback,)
    return ()
