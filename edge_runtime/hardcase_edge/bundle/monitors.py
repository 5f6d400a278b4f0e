# SPDX-License-Identifier: Apache-2.0
"""What a device compares its readings with: histograms of training, predictions of sensors by others, both bounded.

The optional key ``monitors`` of the manifest holds them; docs/SPEC-bundle-v1.md section 3 defines it. Only sensors that
the program may buy are in it, and what is known of them is of the rows on which the program buys them.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..base.record import record
from ..errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..program.definition import Program

MAX_FEATURES = 64  # with a histogram
MAX_SENSORS = 64  # with a residual
MAX_BINS = 8
MAX_PREDICTIONS = 4  # of one sensor
MAX_TERMS = 4  # of one prediction
MAX_PAIRS = 64
MAX_COUNT = 1_000_000_000
MAX_WEIGHT = 2**52
MAX_WHOLE = 2**53  # up to which each whole number is a float64
MAX_SHIFT = 60
PER_MILLE = 1_000
MOVED = 0.5  # of a limit: a prediction that changes by more must change the reading, too


@record(frozen=True, slots=True)
class Histogram:
    """Counts of values between edges: value x is in bin k if k of the edges are at most x."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]  # one more than edges, each at least 1


@record(frozen=True, slots=True)
class Prediction:
    """A feature's reading is (bias + the sum of weight times reading) / 2^shift, give or take limit / 2^shift."""

    feature: int
    shift: int
    bias: int
    limit: int
    terms: tuple[tuple[int, int], ...]  # features of other sensors, and their weights


@record(frozen=True, slots=True)
class Residual:
    """What one sensor's readings are compared with."""

    sensor: int
    beyond: int  # share of the rows, in per mille, on which some prediction misses by more than its limit
    same: int  # share of pairs of rows, in per mille, whose readings are equal although a prediction moves clearly
    predictions: tuple[Prediction, ...]


@record(frozen=True, slots=True)
class Monitors:
    """The key ``monitors``."""

    features: tuple[tuple[int, Histogram], ...]
    confidence: Histogram | None  # of local answers, in basis points
    forwarded: tuple[int, int]  # rows, and those of them that the program forwards
    residuals: tuple[Residual, ...]
    pairs: tuple[Prediction, ...]  # of a sensor with a residual, from one other: they tell which of the two has failed
    treat_as_dead: tuple[int, ...]  # sensors without which the program does better than with one that fails slowly

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, in the one order that ``monitors_of`` accepts."""
        features = [[f, list(h.edges), list(h.counts)] for f, h in self.features]
        confidence = self.confidence and [list(self.confidence.edges), list(self.confidence.counts)]
        residuals = [[r.sensor, r.beyond, r.same, [_plain(p) for p in r.predictions]] for r in self.residuals]
        return {
            "features": features, "confidence": confidence, "forwarded": list(self.forwarded), "residuals": residuals,
            "pairs": [_plain(p) for p in self.pairs], "treat_as_dead": list(self.treat_as_dead),
        }  # fmt: skip


def _plain(p: Prediction) -> list[Any]:
    return [p.feature, p.shift, p.bias, p.limit, [list(term) for term in p.terms]]


def monitors_of(value: object, program: Program) -> Monitors:
    """The key ``monitors`` of a manifest.

    Raises
    ------
    BundleError
        The value has another form, is not in order, is too long, or names what the program does not have.
    """
    keys = {"features", "confidence", "forwarded", "residuals", "pairs", "treat_as_dead"}
    if not isinstance(value, dict) or set(value) != keys:
        raise _refusal("has missing or unknown keys")
    features = [_feature(x, program) for x in _list(value["features"], MAX_FEATURES)]
    confidence = None if value["confidence"] is None else _histogram(value["confidence"])
    forwarded = _counts(value["forwarded"], 2, MAX_COUNT)
    residuals = [_residual(x, program) for x in _list(value["residuals"], MAX_SENSORS)]
    watched = {r.sensor for r in residuals}
    pairs = [_pair(x, program, watched) for x in _list(value["pairs"], MAX_PAIRS)]
    dead = _counts(value["treat_as_dead"], None, len(program.sensors) - 1)
    if forwarded[1] > forwarded[0]:
        raise _refusal("forwards more rows than there are")
    for order in ([f for f, _ in features], [r.sensor for r in residuals], dead):
        if list(order) != sorted(set(order)):
            raise _refusal("is not in order, or names something twice")
    if not set(dead) <= watched:
        raise _refusal("treats a sensor as dead that nothing suspects")
    return Monitors(
        tuple(features), confidence, (forwarded[0], forwarded[1]), tuple(residuals),
        tuple(pairs), tuple(dead),
    )  # fmt: skip


def _feature(value: object, program: Program) -> tuple[int, Histogram]:
    parts = _list(value, 3, 3)
    return _index(parts[0], len(program.features)), _histogram(parts[1:])


def _histogram(value: object) -> Histogram:
    edges, counts = _list(value, 2, 2)
    listed = _list(edges, MAX_BINS - 1, 1)
    if not all(type(x) in (int, float) and -inf < x < inf for x in listed):
        raise _refusal("has an edge that is not a number")
    if any(type(x) is int and abs(x) > MAX_WHOLE for x in listed):
        raise _refusal("has a whole edge beyond 2^53, which a device cannot hold")
    steps = [float(x) for x in listed]
    if steps != sorted(set(steps)):
        raise _refusal("has edges that do not rise")
    numbers = _counts(counts, len(steps) + 1, MAX_COUNT)
    if min(numbers) < 1:
        raise _refusal("has an empty bin")
    return Histogram(tuple(steps), numbers)


def _residual(value: object, program: Program) -> Residual:
    parts = _list(value, 4, 4)
    sensor = _index(parts[0], len(program.sensors))
    beyond, same = _counts(parts[1:3], 2, PER_MILLE)
    own = set(program.sensors[sensor].features)
    predictions = [_prediction(x, program, own) for x in _list(parts[3], MAX_PREDICTIONS, 1)]
    return Residual(sensor, beyond, same, tuple(predictions))


def _prediction(value: object, program: Program, own: set[int]) -> Prediction:
    feature, shift, bias, limit, terms = _list(value, 5, 5)
    pairs = [_list(x, 2, 2) for x in _list(terms, MAX_TERMS, 1)]
    others = [_index(f, len(program.features)) for f, _ in pairs]
    if _index(feature, len(program.features)) not in own or set(others) & own or len(set(others)) < len(others):
        raise _refusal("predicts a sensor by itself, or another sensor than it says")
    numbers = [bias, limit, *(weight for _, weight in pairs)]
    if not all(type(x) is int and abs(x) <= MAX_WEIGHT for x in numbers) or limit < 0:
        raise _refusal("has a weight that is not a whole number within 2^52")
    if type(shift) is not int or not 0 <= shift <= MAX_SHIFT:
        raise _refusal(f"has a shift outside 0 to {MAX_SHIFT}")
    return Prediction(feature, shift, bias, limit, tuple(zip(others, [w for _, w in pairs], strict=True)))


def _pair(value: object, program: Program, watched: set[int]) -> Prediction:
    parts = _list(value, 5, 5)
    target = program.sensor_of[_index(parts[0], len(program.features))]
    prediction = _prediction(value, program, set(program.sensors[target].features))
    sources = {program.sensor_of[f] for f, _ in prediction.terms}
    if len(sources) > 1 or not {target, *sources} <= watched:
        raise _refusal("has a pair that is not of two watched sensors")
    return prediction


def _list(value: object, most: int, least: int = 0) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise _refusal(f"has something else in the place of a list of {least} to {most} entries")
    return value


def _counts(value: object, length: int | None, most: int) -> tuple[int, ...]:
    numbers: Sequence[Any] = _list(value, MAX_SENSORS if length is None else length, length or 0)
    if not all(type(x) is int and 0 <= x <= most for x in numbers):
        raise _refusal(f"has a count that is not a whole number from 0 to {most}")
    return tuple(numbers)


def _index(value: object, n: int) -> int:
    if type(value) is not int or not 0 <= value < n:
        raise _refusal("names a feature or a sensor that the program does not have")
    return value


def _refusal(what: str) -> BundleError:
    return BundleError(f"the manifest's monitors {what}; export the bundle again")
