# SPDX-License-Identifier: Apache-2.0
"""What was measured for a bundle and a device needs: confidences without some sensors, ranges, atypical cases.

All are optional keys of the manifest; docs/SPEC-bundle-v1.md section 3 defines them. A device reports a decision that
wanted a sensor in vain as degraded, with the confidence that was measured without it, or none if nobody measured it.
An answer of the cloud to a request that lacked such a sensor has no confidence: nobody measured f0 without it.

A sensor that the budget did not allow counts alike where the Answer's own scores read it, as those of a fixed set do,
and where a Branch sorts cases into the Answer: those that it sorts there are the easy ones. Any other Answer is given
for what the budget allowed, and the cases that its confidence was measured on came there whatever they read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from ..errors import BundleError
from ..program.definition import THRESHOLD, Acquire, Answer, Branch, Forward, Program, Select, Trees
from ..program.reads import indices_of, read_by_scorers
from ..session.actions import CLOUD, DEGRADED, Decision

if TYPE_CHECKING:
    from ..session.session import Session

Confidences = tuple[int | None, int | None]  # basis points: route local, and degraded for want of the cloud
Without = Mapping[tuple[int, ...], Mapping[int, Confidences]]  # by the decision's failed sensors and its Answer node
Counting = Mapping[int, frozenset[int]]  # sensors by Answer node, as ``unpaid_that_count`` gives them
Ranges = tuple[tuple[float, float] | None, ...]  # lowest and highest reading by feature; None: unknown
MAX_SETS = 4096
MAX_BRANCHES = 4096
_NOTHING: frozenset[int] = frozenset()


def reported(decision: Decision, without: Without, counting: Counting, sent: Collection[int]) -> tuple[str, int | None]:
    """The route and the confidence (basis points) that a device reports; None: nobody measured the confidence.

    ``counting`` and ``sent``: the program's ``unpaid_that_count`` and ``sensors_sent``.

    >>> decision = Decision(1, 9_900, "local", 0, (), (0, 7), failed=(2,))
    >>> reported(decision, {(2,): {7: (6_200, None)}}, {}, ()), reported(decision, {}, {}, ())
    (('degraded', 6200), ('degraded', None))
    >>> asked = Decision(1, 9_900, "cloud", 0, (), (0, 3), failed=(2,))
    >>> reported(asked, {}, {}, (0, 1)), reported(asked, {}, {}, (0, 2))
    (('cloud', 9900), ('cloud', None))
    """
    if decision.route == CLOUD:
        is_whole = all(s not in sent for s in (*decision.failed, *decision.unpaid))
        return CLOUD, decision.confidence if is_whole else None
    lacked = wanted_in_vain(decision, counting)
    if not lacked:
        return decision.route, decision.confidence
    confidences = without.get(lacked, {}).get(decision.trace[-1], (None, None))
    return DEGRADED, confidences[decision.route == DEGRADED]


def wanted_in_vain(decision: Decision, counting: Counting) -> tuple[int, ...]:
    """The sensors without which an answer on the device is not what was measured, in order; none of the cloud's answer.

    >>> decision = Decision(1, 9_900, "local", 0, (), (0, 7), unpaid=(2,))
    >>> wanted_in_vain(decision, {7: {1, 2}}), wanted_in_vain(decision, {7: {1}})
    ((2,), ())
    """
    if decision.route == CLOUD:
        return ()
    if not decision.unpaid or counting.get(decision.trace[-1], _NOTHING).isdisjoint(decision.unpaid):
        return decision.failed
    return tuple(sorted({*decision.failed, *decision.unpaid}))


def sensors_sent(program: Program) -> frozenset[int]:
    """The sensors of which a request to the cloud carries a reading."""
    carried = set(program.uplink.features)
    return frozenset([s for s, sensor in enumerate(program.sensors) if not carried.isdisjoint(sensor.features)])


def unpaid_that_count(program: Program, atypical: Collection[int] = ()) -> Counting:
    """By Answer node, the sensors without which its own confidences do not hold, should the budget not allow them.

    They are all sensors where a Branch leads to the node while the budget allows each purchase, and otherwise those
    that its scores read. A Branch of ``atypical`` sorts nothing that was not sorted before it.
    """
    reads, is_sorted = read_by_scorers(program), _sorted_answers(program, atypical)
    every = frozenset(range(len(program.sensors)))
    by_scorer: dict[int, frozenset[int]] = {}
    counting = {}
    for k, node in enumerate(program.nodes):
        if isinstance(node, Answer):
            scorer = node.scores.scorer
            if scorer not in by_scorer:
                by_scorer[scorer] = frozenset(indices_of(reads[scorer]))
            counting[k] = every if k in is_sorted else by_scorer[scorer]
    return counting


def _sorted_answers(program: Program, atypical: Collection[int]) -> frozenset[int]:
    """The Answer nodes to which a Branch leads while the budget allows each purchase."""
    nodes, reached = program.nodes, set[int]()
    for k, node in enumerate(nodes):  # targets lie ahead of their nodes
        if isinstance(node, Branch) and (k in reached or k not in atypical):
            reached.update(node.targets)
        elif k not in reached:
            continue
        elif isinstance(node, Acquire):
            reached.add(node.then)
        elif isinstance(node, Select):
            reached.update([node.otherwise, *[c.target for c in node.candidates]])
        elif isinstance(node, Forward):
            reached.add(node.fallback)
    return frozenset([k for k in reached if isinstance(nodes[k], Answer)])


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


def branches_of(value: object, program: Program) -> tuple[int, ...]:
    """The nodes in the key ``atypical``: each compares one output of trees with a threshold.

    Raises
    ------
    BundleError
        The value has another form, is not in order, or names another node.
    """
    listed = value if isinstance(value, list) and 0 < len(value) <= MAX_BRANCHES else []
    branches = [k for k in listed if type(k) is int and 0 <= k < len(program.nodes) and _is_of_trees(program, k)]
    if not listed or branches != listed or branches != sorted(set(branches)):
        raise BundleError("the manifest's atypical does not list nodes that compare a score of trees; export it again")
    return tuple(branches)


def _is_of_trees(program: Program, k: int) -> bool:
    node = program.nodes[k]
    if not isinstance(node, Branch) or node.rule != THRESHOLD:
        return False
    return isinstance(program.scorers[node.scores.scorer], Trees)


def atypical_in(decision: Decision, session: Session, program: Program, branches: Collection[int]) -> int | None:
    """The score of a decision's last node of ``branches``, above its threshold; None: it has passed none.

    The case is atypical if this is above 0.
    """
    for k in reversed(decision.trace):
        if k in branches:
            node = program.nodes[k]
            assert isinstance(node, Branch)
            part = node.scores
            return int(session.scores(part.scorer, part.start, part.stop)[0] - node.threshold)
    return None


def is_above(trace: Sequence[int], program: Program, branches: Collection[int]) -> bool | None:
    """Whether a decision on this way was above the threshold at its last node of ``branches``; None: it passed none."""
    for k, after in zip(trace[-2::-1], trace[:0:-1], strict=True):
        if k in branches:
            node = program.nodes[k]
            assert isinstance(node, Branch)
            return after != node.targets[0]
    return None
