# SPDX-License-Identifier: Apache-2.0
"""A chain in integers: a part program with a barrier, and the record ``Joint`` beside it.

All scores have one scale, G integers to one unit of the model. Column t has codes of its own scale c[t], so that a
weight of b bits uses all of them: code = round(c[t] x), weight = round(G w / c[t]). G is the largest scale at which no
code leaves 16 bits on the given rows; larger readings are cut off there.

    0 buy the first sensor      -> 1, or the answer without any
    1 the barrier               -> 2
    2 does the policy buy?      -> 3, or the answer of the first level
    3 buy the second sensor     -> 4, or the answer of the first level
    4 is it still doubtful?     -> 5, or the answer of the second level     these two only where parts are forwarded
    5 ask                       -> the answer of the second level, if no reply comes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import ANYTIME, COUNTS, FEATURES, MAX_GAP, Chain, Joint, Wait
from hardcase_edge.program.cost import start_of, to_micro, with_start
from hardcase_edge.program.definition import (
    CODE_MAX,
    FREE,
    MARGIN,
    THRESHOLD,
    Acquire,
    Affine,
    Answer,
    Branch,
    Column,
    Costs,
    Feature,
    Forward,
    Node,
    Polynomial,
    Program,
    Sensor,
    Slice,
    Uplink,
)
from hardcase_edge.program.readings import request_bytes

from .model import ChainModel

GRID = 8  # scales of columns to a doubling: columns share few rules, and lose at most 9 % of a weight's range
MOST_SCALE = 2.0**24  # a gap of 100 units of the model then stays below 2^31
LEAST_REACH = 1e-9  # of a column, beside the one that reaches furthest: columns without weights have a scale, too
READING_BITS = 28  # readings up to eight times as large as the largest given ones fit 32 bits
LEAST_BITS, MOST_FRAC = 12, 64
PLAIN = {"first", "last", "parts", "place"}  # features that are not in the scale of scores


@dataclass(frozen=True)
class Asking:
    """Parts that are doubtful with both sensors go to the cloud: their margin is below ``margin``, in model units."""

    margin: float
    order: tuple[int, ...] = ()  # of the columns in a request; empty: as they are


@dataclass(frozen=True)
class Integers:
    """A joint program, and how many integers one unit of the model's scores is."""

    part: Program
    joint: Joint
    scale: float


def quantise_chain(
    model: ChainModel, rows: np.ndarray, features: np.ndarray, *, max_parts: int, weight_bits: int = 8,
    asking: Asking | None = None, costs: Costs = FREE,
) -> Integers:  # fmt: skip
    """The integers of a chain.

    Parameters
    ----------
    rows : (n, columns) readings that the model meets, of training items
    features : (m, len(FEATURES)) what its inner sensor gives on them, in model units
    max_parts : the most parts of an item
    weight_bits : 8 or 16
    asking : None: nothing is forwarded
    costs : those beside the sensors'; without ``asking`` nothing is charged for requests

    Raises
    ------
    InputError
        Readings of a column are too large or too small for its codes.
    """
    a, b = len(model.cheap.features), len(model.dear.features)
    k = len(model.labels)
    largest = np.abs(rows).max(axis=0)
    largest[largest == 0] = 1.0
    weights = np.abs(model.dear_weights[:-1]).max(axis=1)
    weights[:a] = np.maximum(weights[:a], np.abs(model.cheap_weights[:-1]).max(axis=1))
    reach = largest * weights  # of a column, in the model's scores
    reach = np.maximum(reach, max(LEAST_REACH * float(reach.max()), LEAST_REACH))
    top = 2 ** (weight_bits - 1) - 1
    scale = min(CODE_MAX * top / float(reach.max()) / 2 ** (1 / GRID), MOST_SCALE)
    by_column = 2.0 ** (np.ceil(GRID * np.log2(reach / largest * scale / top)) / GRID)
    types = [*model.cheap.types, *model.dear.types]
    _check_readings((*model.cheap.features, *model.dear.features), types, largest)
    columns = [Column(t, _rule(*rule)) for t, rule in enumerate(zip(by_column, types, largest, strict=True))]
    scorers = [
        _linear(range(a), model.cheap_weights, by_column[:a], scale, weight_bits),
        _linear(range(a + b), model.dear_weights, by_column, scale, weight_bits),
        Polynomial((), (), 1, (), ((),) * k, (0,) * k, weight_bits),
    ]
    most = np.maximum(np.abs(features).max(axis=0), 1e-9)
    policy, policy_columns, threshold = _policy(model, most, scale, first=a + b)
    scorers.append(policy)
    n_inner = COUNTS[len(model.later) > 0]
    nodes, wait = _nodes(model, k, threshold, asking, scale)
    fields = [Feature(t) for t in types] + [Feature("i32")] * n_inner
    sensors = (
        Sensor(tuple(range(a)), (to_micro(model.cheap.cost),)),
        Sensor(tuple(range(a, a + b)), (to_micro(model.dear.cost),)),
        Sensor(tuple(range(a + b, a + b + n_inner)), (0,)),
    )
    part = Program(
        tuple(fields), sensors, _uplink(asking, types), (*columns, *policy_columns), tuple(scorers), nodes, k,
        costs=with_start(FREE, start_of(costs)) if asking is None else costs,
    )  # fmt: skip
    chain = Chain(
        k,
        *(
            tuple(np.rint(w * scale).astype(np.int64).ravel().tolist())
            for w in (model.transitions, model.start, model.stop)
        ),
    )
    joint = Joint(chain, (wait,), model.release, max_parts, threshold if model.release == ANYTIME else 0)
    return Integers(part, joint, scale)


def _check_readings(names: Sequence[str], types: Sequence[str], largest: np.ndarray) -> None:
    for name, dtype, most in zip(names, types, largest.tolist(), strict=True):
        if not LEAST_BITS <= _frac(dtype, most) + math.frexp(most)[1] <= 31 and dtype != "i32":
            raise InputError(f"readings of {name!r} go up to {most:g}, which codes cannot hold; give another unit")


def _frac(dtype: str, largest: float) -> int:
    """The binary places of a reading: floats have 28 bits up to the largest."""
    return 0 if dtype == "i32" else max(-MOST_FRAC, min(MOST_FRAC, READING_BITS - math.frexp(largest)[1]))


def _rule(c: float, dtype: str, largest: float) -> Affine:
    """code = round(c x); the multiplier uses as many bits as fit."""
    frac = _frac(dtype, largest)
    shift = min(62, max(1, frac + 30 - math.ceil(math.log2(c))))
    return Affine(frac, round(c * 2.0 ** (shift - frac)), 1 << shift - 1, shift)


def _linear(columns: Sequence[int], weights: np.ndarray, by_column: np.ndarray, scale: float, bits: int) -> Polynomial:
    whole = np.rint(weights[:-1] * scale / by_column[:, None]).astype(np.int64)
    bias = np.rint(weights[-1] * scale).astype(np.int64)
    return Polynomial(
        tuple(columns), (None,) * len(columns), 1, tuple((t,) for t in range(len(columns))),
        tuple(tuple(row) for row in whole.T.tolist()), tuple(bias.tolist()), bits,
    )  # fmt: skip


def _policy(
    model: ChainModel, most: np.ndarray, scale: float, first: int
) -> tuple[Polynomial, list[Column], int]:  # fmt: skip
    """The policy over the features that it uses, their columns, and its threshold in integers.

    A round's policy is the one before it and what is different: for each round after the first a column of codes 0 and
    1 switches the difference of the weights on, and one of codes 0 and CODE_MAX that of the bias. ``most``:
    (len(FEATURES),) the largest value of each feature.
    """
    steps = np.diff(model.rounds, axis=0, prepend=0)  # (rounds, features and bias)
    weights = steps[:, :-1]
    reach = max(float((most * np.abs(weights)).max()), *np.abs(steps[1:, -1]).tolist(), 1e-9)
    unit = CODE_MAX * CODE_MAX / reach
    used = np.flatnonzero(np.any(weights, axis=0)).tolist()
    largest = np.abs(weights).max(axis=0) * unit / CODE_MAX  # codes to one unit of a feature
    columns = []
    for j in used:
        by = largest[j] if FEATURES[j] in PLAIN else largest[j] / scale
        high = min(CODE_MAX, max(1, round(float(most[j] * largest[j]))))
        rule = _rule(float(by), "i32", MAX_GAP)
        columns.append(Column(first + j, Affine(rule.frac, rule.mul, rule.add, rule.shift, -high, high)))
    whole = [[round(float(row[j]) * unit / largest[j]) for j in used] for row in weights]
    n, later = len(used), range(1, len(steps))
    terms: list[tuple[int, ...]] = [(t,) for t in range(n)]
    values = whole[0]
    if later:
        columns += [Column(first + len(FEATURES), _step(k, high)) for high in (1, CODE_MAX) for k in later]
        always = len(columns)  # the constant column, whose code is 1
        terms = [(t, always) for t in range(n)]
    for k in later:
        terms += [*((t, n + k - 1) for t in range(n)), (n + len(later) + k - 1, always)]
        values = [*values, *whole[k], round(float(steps[k, -1]) * unit / CODE_MAX)]
    numbers = tuple(range(first, first + len(columns)))
    polynomial = Polynomial(
        numbers, (None,) * len(columns), 1, tuple(terms), (tuple(values),), (round(float(steps[0, -1]) * unit),)
    )
    return polynomial, columns, math.floor(model.threshold * unit)


def _step(k: int, high: int) -> Affine:
    """Code 0 before round k, and ``high`` from it on."""
    return Affine(0, high, high * (1 - k), 0, 0, high)


def _nodes(
    model: ChainModel, k: int, threshold: int, asking: Asking | None, scale: float
) -> tuple[tuple[Node, ...], Wait]:
    cheap, dear, none, policy = Slice(0, 0, k), Slice(1, 0, k), Slice(2, 0, k), Slice(3, 0, 1)
    wait = Wait(1, cheap, policy if model.release == ANYTIME else None)
    answers: list[Node] = [Answer(dear), Answer(cheap), Answer(none)]
    middle: list[Node] = []
    if asking is not None:
        middle = [Branch(dear, MARGIN, (5, 6), round(asking.margin * scale)), Forward((), 6)]
    at = 4 + len(middle)
    nodes: list[Node] = [
        Acquire((0,), 1, at + 2), Acquire((2,), 2, at + 1), Branch(policy, THRESHOLD, (at + 1, 3), threshold),
        Acquire((1,), 4, at + 1), *middle, *answers,
    ]  # fmt: skip
    return tuple(nodes), wait


def _uplink(asking: Asking | None, types: Sequence[str]) -> Uplink:
    if asking is None:
        return Uplink()
    return Uplink(request_bytes(types), asking.order or tuple(range(len(types))))


assert MAX_GAP > MOST_SCALE * 100
