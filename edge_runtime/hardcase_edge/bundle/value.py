# SPDX-License-Identifier: Apache-2.0
"""The scale of a program of values: what a result is in the target's unit, and the interval that holds the truth.

The manifest's key ``value`` holds it; docs/SPEC-bundle-v1.md section 3 defines it. One scale serves every Answer of the
program and every reply of f0: a result is the value times 2^steps, rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, frexp, isfinite, ldexp, log10

from ..base.record import field, record
from ..errors import BundleError
from ..program.definition import Answer, Forward, Program
from ..session.actions import DEGRADED, Decision
from .evidence import Counting, wanted_in_vain

Offsets = tuple[float, float]  # to be added to a value: truth lies between the two sums with a probability of 90 %
Intervals = Mapping[int, tuple[Offsets | None, Offsets | None]]  # by node: route local or cloud, and degraded
MAX_STEPS = 256  # of the exponent, to either side
MAX_RESULT = 2**31 - 1  # of a reply, which is clipped to it
MAX_UNIT = 200
MAX_OFFSET = 1e300  # any value plus an offset is a finite number
HEADROOM = 4  # times the largest value of training that a reply can still be


@record(frozen=True, slots=True)
class Value:
    """The scale of a program's results.

    Parameters
    ----------
    unit : of the target, such as "kWh"; empty if nobody named it
    steps : a result is the value times 2^steps; negative for large values
    interval : offsets measured on rows that no choice has seen, by Answer and Forward node; a node may be absent

    >>> value = Value("kWh", 4, {1: ((-0.5, 1.0), None)})
    >>> decision = Decision(333, 0, "local", 0, (), (0, 1))
    >>> value.of(decision.result), value.interval_of(decision)
    (20.812, (20.312, 21.812))
    """

    unit: str = ""
    steps: int = 0
    interval: Intervals = field(default_factory=dict)

    def of(self, result: float) -> float:
        """The value of a result, to a tenth of a step at least."""
        return self._rounded(ldexp(result, -self.steps))

    def interval_of(self, decision: Decision, counting: Counting | None = None) -> Offsets | None:
        """Where the truth lies with a probability of 90 %; None if nobody measured it for such a decision.

        ``counting``: the program's ``evidence.unpaid_that_count``.
        """
        if wanted_in_vain(decision, counting or {}):
            return None
        offsets = self.interval.get(decision.trace[-1], (None, None))[decision.route == DEGRADED]
        if offsets is None:
            return None
        value = ldexp(decision.result, -self.steps)
        return self._rounded(value + offsets[0]), self._rounded(value + offsets[1])

    def to_json(self) -> dict[str, object]:
        """The value of the manifest's key, in the one order that ``value_of`` accepts."""
        entries = [[node, *map(_listed, pair)] for node, pair in sorted(self.interval.items())]
        return {"unit": self.unit, "steps": self.steps, "interval": entries}

    def _rounded(self, value: float) -> float:
        return round(value, max(0, ceil(self.steps * log10(2)) + 1))


def _listed(pair: Offsets | None) -> list[float] | None:
    return None if pair is None else list(pair)


def steps_for(largest: float) -> int:
    """The finest scale on which values of four times this magnitude fit a reply.

    >>> steps_for(21.5), steps_for(1e12)
    (24, -11)
    """
    exponent = frexp(HEADROOM * largest)[1]  # the magnitude is below 2^exponent
    return max(-MAX_STEPS, min(MAX_STEPS, 31 - exponent if largest > 0 else 0))


def to_result(value: float, steps: int) -> int:
    """The result of a value: times 2^steps, rounded to the nearest integer, halves to even, clipped to 32 bits.

    >>> to_result(20.8125, 4), to_result(-1e300, 4)
    (333, -2147483647)

    Raises
    ------
    ValueError
        The value is not a finite number.
    """
    if not isfinite(value):
        raise ValueError(f"{value} is not a number")
    limit = ldexp(MAX_RESULT, -steps)
    return MAX_RESULT if value >= limit else -MAX_RESULT if value <= -limit else round(ldexp(value, steps))


def value_of(data: object, program: Program) -> Value:
    """The scale in the key ``value``.

    Raises
    ------
    BundleError
        The value has another form, is not in order, or names what the program does not have.
    """
    if program.n_classes:
        raise BundleError("the manifest states a scale of values, but the program answers classes; export it again")
    if not isinstance(data, dict) or set(data) != {"unit", "steps", "interval"}:
        raise BundleError("the manifest's value has not exactly the keys unit, steps and interval; export it again")
    unit, steps, entries = data["unit"], data["steps"], data["interval"]
    if not isinstance(unit, str) or len(unit) > MAX_UNIT:
        raise BundleError(f"the unit of the manifest's value is not a string of at most {MAX_UNIT} characters")
    if type(steps) is not int or not -MAX_STEPS <= steps <= MAX_STEPS:
        raise BundleError(f"the steps of the manifest's value are not an integer in +-{MAX_STEPS}; export it again")
    if not isinstance(entries, list) or len(entries) > len(program.nodes):
        raise _no_intervals()
    value = Value(unit, steps, dict([_interval(entry, program) for entry in entries]))
    if value.to_json() != data:  # out of order, or a node stands twice
        raise _no_intervals()
    return value


def _interval(entry: object, program: Program) -> tuple[int, tuple[Offsets | None, Offsets | None]]:
    """A node and its two pairs of offsets, of which one at least was measured; a Forward is never degraded."""
    if not isinstance(entry, list) or len(entry) != 3 or entry[1:] == [None, None]:
        raise _no_intervals()
    node, local, degraded = entry
    if type(node) is not int or not 0 <= node < len(program.nodes):
        raise _no_intervals()
    kind = type(program.nodes[node])
    if kind not in (Answer, Forward) or (kind is Forward and degraded is not None):
        raise _no_intervals()
    return node, (_offsets(local), _offsets(degraded))


def _offsets(pair: object) -> Offsets | None:
    if pair is None:
        return None
    if (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(x) in (int, float) and abs(x) <= MAX_OFFSET for x in pair)
    ):
        low, high = pair
        if low <= high:
            return low, high
    raise _no_intervals()


def _no_intervals() -> BundleError:
    return BundleError(
        "the interval of the manifest's value does not list Answer and Forward nodes with their offsets, in order; "
        "export the bundle again"
    )
