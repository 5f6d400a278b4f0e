# SPDX-License-Identifier: Apache-2.0
"""What was measured for a bundle and a device needs: confidences without some sensors, and ranges of readings.

Both are optional keys of the manifest; docs/SPEC-bundle-v1.md section 3 defines them. A device reports a decision that
wanted a sensor in vain as degraded, with the confidence that was measured without it, or none if nobody measured it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from ..errors import BundleError
from ..program.definition import Answer, Program
from ..session.session import CLOUD, DEGRADED, Decision

__all__ = ["Ranges", "Without", "ranges_of", "reported", "without_of", "without_to_json"]

Confidences = tuple[int | None, int | None]  # basis points: route local, and degraded for want of the cloud
Without = Mapping[tuple[int, ...], Mapping[int, Confidences]]  # by the decision's failed sensors and its Answer node
Ranges = tuple[tuple[float, float] | None, ...]  # lowest and highest reading by feature; None: unknown
MAX_SETS = 4096


def reported(decision: Decision, without: Without) -> tuple[str, int | None]:
    """The route and the confidence (basis points) that a device reports; None: nobody measured the confidence.

    >>> decision = Decision(1, 9_900, "local", 0, (), (0, 7), failed=(2,))
    >>> reported(decision, {(2,): {7: (6_200, None)}}), reported(decision, {})
    (('degraded', 6200), ('degraded', None))
    """
    if not decision.failed or decision.route == CLOUD:
        return decision.route, decision.confidence
    confidences = without.get(decision.failed, {}).get(decision.trace[-1], (None, None))
    return DEGRADED, confidences[decision.route == DEGRADED]


def without_to_json(without: Without) -> list[list[object]]:
    """The value of the key ``without``, in the one order that ``without_of`` accepts."""
    return [
        [list(failed), *([node, *pair] for node, pair in sorted(nodes.items()))]
        for failed, nodes in sorted(without.items())
    ]


def without_of(value: object, program: Program) -> Without:
    """The confidences in the key ``without``.

    Raises
    ------
    BundleError
        The value has another form, is not in order, or names what the program does not have.
    """
    entries = value if isinstance(value, list) and len(value) <= MAX_SETS else []
    sets = dict([_set_of(entry, program) for entry in entries])
    if not sets or without_to_json(sets) != value:  # the form is right, the order is not, or something stands twice
        raise _no_evidence()
    return sets


def _set_of(entry: object, program: Program) -> tuple[tuple[int, ...], dict[int, Confidences]]:
    """The failed sensors of an entry, and the confidences by node."""
    if not isinstance(entry, list) or len(entry) < 2 or not isinstance(entry[0], list) or not entry[0]:
        raise _no_evidence()
    failed: list[object] = entry[0]
    if not all(type(s) is int and 0 <= s < len(program.sensors) for s in failed) or failed != sorted(set(entry[0])):
        raise _no_evidence()
    return tuple(entry[0]), dict([_row_of(row, program) for row in entry[1:]])


def _row_of(row: object, program: Program) -> tuple[int, Confidences]:
    """An Answer node and its two confidences, of which one at least was measured."""
    if not isinstance(row, list) or len(row) != 3 or row[1:] == [None, None]:
        raise _no_evidence()
    node, local, degraded = row
    if type(node) is not int or not 0 <= node < len(program.nodes) or not isinstance(program.nodes[node], Answer):
        raise _no_evidence()
    if not all(c is None or (type(c) is int and 0 <= c <= 10_000) for c in (local, degraded)):
        raise _no_evidence()
    return node, (local, degraded)


def _no_evidence() -> BundleError:
    return BundleError(
        "the manifest's without does not list sets of sensors with Answer nodes and their confidences, in order; "
        "export the bundle again"
    )


def ranges_of(value: object, program: Program) -> Ranges:
    """The ranges in the key ``ranges``.

    Raises
    ------
    BundleError
        The value has another form, or another length than the program has features.
    """
    if not isinstance(value, list) or len(value) != len(program.features):
        raise BundleError(f"the manifest's ranges are not a list of {len(program.features)} pairs; export it again")
    return tuple([None if pair is None else _range(pair) for pair in value])


def _range(pair: object) -> tuple[float, float]:
    if isinstance(pair, list) and len(pair) == 2 and all(type(x) in (int, float) and -inf < x < inf for x in pair):
        low, high = pair
        if low <= high:
            return low, high
    raise BundleError("a range in the manifest is not a lowest and a highest reading; export the bundle again")
