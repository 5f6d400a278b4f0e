# SPDX-License-Identifier: Apache-2.0
"""Scalers and imputers before a model: its thresholds and weights are restated for raw readings.

Each step changes one reading by one rounded operation that never reverses an order, or fills it where it is missing. So
"step of x is at most c" holds up to one raw reading, or from one on; a bisection over all numbers of the reading's type
finds that reading, with every step computed in the source's own type. Linear models and networks take steps as lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError

from .source import LinearModel, Network, Source, SourceTree, Split

FILL, CAST = "fill", "cast"
OPERATIONS: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "at least": np.maximum,
    "at most": np.minimum,
}  # fmt: skip
SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "SimpleImputer")
TYPES: dict[str, tuple[Any, Any, Any]] = {
    "f32": (np.float32, np.int32, np.int64(2**31 - 1)),
    "f64": (np.float64, np.int64, np.int64(2**63 - 1)),
}  # a type, integers of its length, and the mask of all bits but the sign

Column = NDArray[np.floating[Any]]


class Step(NamedTuple):
    """An operation on every reading, with one operand per feature: ``OPERATIONS``, FILL where missing, or CAST.

    ``numbers``: (n_features,) operands; ``dtype``: "f32" or "f64", in which the source computes the step.
    """

    kind: str
    numbers: NDArray[np.float64]
    dtype: str


def steps_of(scaler: Any) -> list[Step]:
    """The steps of a fitted scaler or imputer of scikit-learn, which computes in float64.

    Raises
    ------
    InputError
        It fills other values than NaN, adds or drops columns, or is of a kind that is not in ``SCALERS``.
    """
    kind = type(scaler).__name__
    n = int(scaler.n_features_in_)

    def step(operation: str, numbers: Any) -> list[Step]:
        absent = numbers is None
        return [] if absent else [Step(operation, np.array(np.broadcast_to(numbers, n), dtype=np.float64), "f64")]

    if kind == "SimpleImputer":
        fills = np.asarray(scaler.statistics_, dtype=np.float64)
        if scaler.missing_values == scaler.missing_values or scaler.add_indicator or np.isnan(fills).any():
            raise InputError(
                "the SimpleImputer replaces other values than NaN, or adds or drops columns; fit it with "
                "missing_values=nan, keep_empty_features=True and without add_indicator"
            )
        return step(FILL, fills)
    if kind == "StandardScaler":
        return step("subtract", scaler.mean_ if scaler.with_mean else None) + step("divide", scaler.scale_)
    if kind == "RobustScaler":
        return step("subtract", scaler.center_) + step("divide", scaler.scale_)
    if kind == "MaxAbsScaler":
        ends = [Step(k, np.full(n, v), "f64") for k, v in (("at least", -1.0), ("at most", 1.0))]
        return step("divide", scaler.scale_) + (ends if getattr(scaler, "clip", False) else [])
    if kind == "MinMaxScaler":
        low, high = scaler.feature_range if scaler.clip else (None, None)
        return (
            step("multiply", scaler.scale_) + step("add", scaler.min_) + step("at least", low) + step("at most", high)
        )
    raise InputError(f"a {kind} cannot be imported before a model; use one of {', '.join(SCALERS)}, or leave it out")


def behind(source: Source, steps: Sequence[Step], dtype: str) -> Source:
    """The model that takes raw readings of type ``dtype``, takes these steps, and then is ``source``.

    Raises
    ------
    InputError
        A step has an operand that is not finite or a factor of 0, or clips readings before a linear model or a network.
    """
    n = len(source.features)
    for step in steps:
        is_factor = step.kind in ("multiply", "divide")
        if len(step.numbers) != n or not np.isfinite(step.numbers).all() or (is_factor and (step.numbers == 0).any()):
            raise InputError(
                f"a step before the {source.name} ({step.kind}) has {len(step.numbers)} numbers for {n} features, or "
                "one that is not finite or is a factor of 0; fit it again"
            )
    if not steps:
        return source
    is_nullable = source.is_nullable or any(step.kind == FILL for step in steps)
    if source.linear is not None:
        return replace(source, dtype=dtype, is_nullable=is_nullable, linear=_linear(source, source.linear, steps))
    if source.network is not None:
        return replace(source, network=_network(source, source.network, steps))
    trees = _Raw(source, steps, dtype).trees()
    return replace(source, dtype=dtype, is_nullable=is_nullable, trees=trees)


# ---------------------------------------------------------------- trees


class _Raw:
    """Splits restated for raw readings; each pair of a feature and a threshold is searched for once."""

    def __init__(self, source: Source, steps: Sequence[Step], dtype: str) -> None:
        self._source, self._steps, self._dtype = source, steps, dtype
        cuts: dict[int, set[float]] = {}
        for tree in source.trees:
            for split in tree.splits:
                cuts.setdefault(split.feature, set()).update(split.cuts)
        self._falls = {f: self._is_falling(f) for f in cuts}
        self._cuts = {
            f: dict(zip(c, self._search(f, np.array(list(c))).tolist(), strict=True)) for f, c in cuts.items()
        }

    def trees(self) -> tuple[SourceTree, ...]:
        split_of: dict[Split, Split] = {}
        out = []
        for tree in self._source.trees:
            splits = []
            for split in tree.splits:
                if split not in split_of:
                    split_of[split] = self._split(split)
                splits.append(split_of[split])
            out.append(replace(tree, splits=splits))
        return tuple(out)

    def _split(self, split: Split) -> Split:
        """A split as one of raw readings; where the steps fall, its intervals come in the opposite order."""
        f = split.feature
        cuts, sides = [self._cuts[f][c] for c in split.cuts], list(split.sides)
        if self._falls[f]:
            cuts, sides = cuts[::-1], sides[::-1]
        joined: dict[float, bool] = {}
        for cut, side in zip(cuts, sides, strict=False):
            joined.setdefault(cut, side)  # between equal cuts lies no reading
        missing = self._after(f, np.array([np.nan]))
        missing_left = split.missing_left
        if not np.isnan(missing[0]):
            missing_left = split.sides[int(np.searchsorted(split.cuts, float(missing[0]), side="left"))]
        return Split(f, tuple(joined), (*joined.values(), sides[-1]), missing_left)

    def _after(self, f: int, x: Column) -> NDArray[np.float64]:
        """Readings of a feature as the model compares them."""
        with np.errstate(all="ignore"):
            for step in self._steps:
                x = x.astype(TYPES[step.dtype][0])
                number = x.dtype.type(step.numbers[f])
                if step.kind == FILL:
                    x = np.where(np.isnan(x), number, x)
                elif step.kind != CAST:
                    x = OPERATIONS[step.kind](x, number)
            return x.astype(TYPES[self._source.dtype][0]).astype(np.float64)

    def _is_falling(self, f: int) -> bool:
        factors = [s.numbers[f] < 0 for s in self._steps if s.kind in ("multiply", "divide")]
        return bool(sum(factors) % 2)

    def _search(self, f: int, cuts: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each cut, the last raw reading that is not above it; where the steps fall, the last that is above it."""
        falls = self._falls[f]
        return _last(lambda x: (self._after(f, x) <= cuts) != falls, self._dtype, len(cuts))


def _last(holds: Callable[[Column], NDArray[np.bool_]], dtype: str, n: int) -> NDArray[np.float64]:
    """The largest number of a type for which each of n conditions holds, which hold up to some number; else -inf.

    Infinite if a condition holds for every number.
    """
    kind, integers, mask = TYPES[dtype]

    def number(key: NDArray[np.int64]) -> Column:
        return np.asarray((key ^ ((key >> 63) & mask)).astype(integers).view(kind))

    def key(x: float) -> np.int64:
        bits = np.array(x, dtype=kind).view(integers).astype(np.int64)
        return np.int64(bits ^ ((bits >> 63) & mask))

    top = float(np.finfo(kind).max)
    low, high = np.full(n, key(-top)), np.full(n, key(top))
    never, always = ~holds(number(low)), holds(number(high))
    while (low + 1 < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        is_held = holds(number(middle))
        low, high = np.where(is_held, middle, low), np.where(is_held, high, middle)
    out = number(low).astype(np.float64) + 0.0
    return np.where(never, -np.inf, np.where(always, np.inf, out))


# ---------------------------------------------------------------- linear models and networks


def _linear(source: Source, linear: LinearModel, steps: Sequence[Step]) -> LinearModel:
    """Weights, bias and the reading that stands for a missing one, all of raw readings."""
    a, b, fill = _line(source, steps, linear.fill)
    return LinearModel(linear.weights * a, linear.bias + linear.weights @ b, fill)


def _network(source: Source, network: Network, steps: Sequence[Step]) -> Network:
    a, b, fill = _line(source, steps, network.fill)
    return replace(network, centre=(network.centre - b) / a, factor=network.factor * a, fill=fill)


def _line(
    source: Source, steps: Sequence[Step], inner: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    """The steps as ``a x + b``, and the raw reading that stands for a missing one; ``inner``: that behind the steps."""
    n = len(source.features)
    a, b = np.ones(n), np.zeros(n)
    fill = None
    for step in steps:
        if step.kind == FILL:
            fill = (step.numbers - b) / a if fill is None else fill
        elif step.kind in ("add", "subtract"):
            b = OPERATIONS[step.kind](b, step.numbers)
        elif step.kind in ("multiply", "divide"):
            a, b = (OPERATIONS[step.kind](v, step.numbers) for v in (a, b))
        elif step.kind != CAST:
            raise InputError(f"the {source.name} reads clipped readings; fit it behind a scaler with clip=False")
    return a, b, (inner - b) / a if fill is None and inner is not None else fill
