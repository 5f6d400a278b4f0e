# SPDX-License-Identifier: Apache-2.0
"""The proof that a joint program is safe: its part program by the rules of version 1, and what the barriers add.

The part program is proved with a Branch in front of each barrier that reads what the barrier reads, and one behind it
that reads the policy. So the rules of version 1 show that these scores may be read there, that no sum overflows, and
how much work they take. docs/SPEC-joint-v1.md section 5 has the rules J1 to J9.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..base.record import record
from ..program.cost import start_of
from ..program.definition import (
    MARGIN,
    THRESHOLD,
    Acquire,
    Answer,
    Branch,
    Candidate,
    Feature,
    Forward,
    Node,
    Program,
    Select,
    Slice,
    targets_of,
)
from ..program.limits import MAX_OPERATIONS, SAFE
from ..program.reads import shared_trees
from ..verifier.require import in_range, integers, need
from ..verifier.scorers import Proved
from ..verifier.verify import Report, verify
from ..verifier.work import reading_operations
from .definition import ANYTIME, COUNTS, MAX_GAP, MAX_PARTS, RELEASES, Joint

DECODE = 4  # operations of the chain for each pair of labels at each part
LABEL = 16  # and for each label
LABEL_BYTES, PART_BYTES = 16, 28  # that each part keeps for the chain, beside its session
MAX_ITEM_BYTES = 33_554_432
# What Python keeps beside them, which walks over the parts: of an item, of each part, and of each of its labels.
WALK_BYTES, WALK_PART_BYTES, WALK_LABEL_BYTES = 2_000, 1_000, 100
MAX_ITEM_COLUMNS = 2_097_152  # of all parts: Python keeps two codes of each column, whether a scorer reads it or not


@record(frozen=True, slots=True)
class JointReport:
    """What was proved of an item; costs in micro-units."""

    part: Report  # of the part program alone
    worst_cost: int
    rounds: int  # the most releases of one item
    operations: int  # the most of any item
    steps: int  # the most that Python takes over its parts: one for each part at each release, and one more
    memory: int  # bytes that an item of the most parts takes in the kernel
    held: int  # bytes that it takes with what Python keeps of it


def verify_joint(part: Program, joint: Joint) -> JointReport:
    """Prove that a joint program is safe.

    Raises
    ------
    ProgramError
        The message names the first rule that cannot be proved.
    """
    proofs: list[Proved] = []
    report = verify(part, proofs)
    _check_record(part, joint)
    _check_inner(part, joint)
    with_reads = verify(with_branches(part, joint), proofs)
    _check_sums(part, joint, proofs)
    levels = _most_waits(part, joint)
    parts, rounds = joint.max_parts, levels * (joint.max_parts if joint.release == ANYTIME else 1)
    k = joint.chain.labels
    operations = parts * with_reads.operations + rounds * parts * _trial(part, joint, proofs)
    operations += (rounds + 1) * parts * (DECODE * k * k + LABEL * k)
    need(
        operations <= MAX_OPERATIONS,
        f"an item of {parts} parts may take {operations} operations, at most {MAX_OPERATIONS}; allow fewer parts",
    )
    start = start_of(part.costs)  # once for all parts
    worst = start + parts * (report.worst_cost - start)
    need(worst < SAFE, f"an item of {parts} parts may cost {worst}, too much to add safely")
    memory = _memory(part, joint, report.session_bytes)
    held = memory + WALK_BYTES + parts * (WALK_PART_BYTES + WALK_LABEL_BYTES * k)
    return JointReport(report, worst, rounds, operations, (rounds + 1) * parts, memory, held)


# ---------------------------------------------------------------- J1, J2: the record


def _check_record(part: Program, joint: Joint) -> None:
    chain, k = joint.chain, joint.chain.labels
    need(k == part.n_classes and k >= 2, f"the chain has {k} labels, the part program {part.n_classes} classes")
    lengths = len(chain.transitions), len(chain.start), len(chain.stop)
    need(lengths == (k * k, k, k), f"the chain of {k} labels has {lengths} transitions, starts and stops")
    for weights, what in ((chain.transitions, "transition"), (chain.start, "start"), (chain.stop, "stop")):
        integers(weights, f"the chain: a {what}")
    need(1 <= joint.max_parts <= MAX_PARTS, f"an item may have {joint.max_parts} parts, 1 to {MAX_PARTS} are allowed")
    need(joint.release in RELEASES, f"the release is {joint.release!r}, not {' or '.join(RELEASES)}")
    integers([joint.threshold], "the threshold of the policy")
    _check_table(joint.margins, joint.confidences, "parts")
    _check_table(joint.item_margins, joint.item_confidences, "items")


def _check_table(margins: Sequence[int], confidences: Sequence[int], what: str) -> None:
    rising = all(a < b for a, b in itertools.pairwise(margins))
    need(rising and all(0 <= m <= MAX_GAP for m in margins), f"the margins of {what} do not rise from 0 to {MAX_GAP}")
    ok = len(confidences) == len(margins) + 1 and all(0 <= c <= 10_000 for c in confidences)
    need(ok, f"the confidences of {what} are not {len(margins) + 1} numbers from 0 to 10000")


# ---------------------------------------------------------------- J3 to J5: inner sensors and barriers


def _check_inner(part: Program, joint: Joint) -> None:
    nodes = [w.node for w in joint.waits]
    in_range(nodes, len(part.nodes), "a barrier: node")
    need(len(set(nodes)) == len(nodes), "two barriers stand at one node")
    for w in joint.waits:
        node = part.nodes[w.node]
        ok = isinstance(node, Acquire) and len(node.sensors) == 1
        need(ok, f"barrier node {w.node} is not an Acquire of one sensor")
        _check_slices(joint, w.node, w.scores, w.policy)
    inner = joint.inner(part)
    for s in inner:
        sensor = part.sensors[s]
        types = [part.features[f] for f in sensor.features]
        ok = len(types) in COUNTS and set(types) == {Feature("i32")} and not any(sensor.cost)
        counts = " or ".join(map(str, COUNTS))
        need(ok, f"inner sensor {s} is not free, or does not give {counts} i32 that are never missing")
        need(not set(sensor.features) & set(part.uplink.features), f"a request carries features of inner sensor {s}")
    for k, part_node in enumerate(part.nodes):
        if isinstance(part_node, Acquire | Forward) and k not in nodes:
            need(inner.isdisjoint(part_node.sensors), f"node {k} names an inner sensor, but it is not a barrier")


def _check_slices(joint: Joint, node: int, scores: Slice, policy: Slice | None) -> None:
    width = scores.stop - scores.start
    ok = width == joint.chain.labels or (width == 1 and joint.chain.labels == 2)
    need(ok, f"barrier node {node} gives {width} scores to a chain of {joint.chain.labels} labels")
    is_due = joint.release == ANYTIME
    need((policy is not None) == is_due, f"barrier node {node} has a policy in a {joint.release} release, or lacks one")
    need(policy is None or policy.stop - policy.start == 1, f"the policy of barrier node {node} is not one score")


def with_branches(part: Program, joint: Joint) -> Program:
    """The part program with a Branch for every read of a barrier, in front of its node and behind it."""
    waits = {w.node: w for w in joint.waits}
    first: list[int] = []  # number of what stands for each node
    count = 0
    for k in range(len(part.nodes)):
        first.append(count)
        count += 1 if k not in waits else 2 if waits[k].policy is None else 3
    nodes: list[Node] = []
    for k, node in enumerate(part.nodes):
        moved = _moved(node, first)
        wait = waits.get(k)
        if wait is None or not isinstance(moved, Acquire):
            nodes.append(moved)
            continue
        at = len(nodes) + 1
        rule = MARGIN if wait.scores.stop - wait.scores.start > 1 else THRESHOLD
        nodes.append(Branch(wait.scores, rule, (at, at)))
        if wait.policy is None:
            nodes.append(moved)
        else:
            nodes.append(Acquire(moved.sensors, at + 1, moved.otherwise))
            nodes.append(Branch(wait.policy, THRESHOLD, (moved.then, moved.then)))
    return Program(
        part.features, part.sensors, part.uplink, part.columns, part.scorers, tuple(nodes), part.n_classes,
        part.max_item_size, part.costs,
    )  # fmt: skip


def _moved(node: Node, to: Sequence[int]) -> Node:
    if isinstance(node, Acquire):
        return Acquire(node.sensors, to[node.then], to[node.otherwise])
    if isinstance(node, Branch):
        return Branch(node.scores, node.rule, tuple([to[t] for t in node.targets]), node.threshold, node.bracket)
    if isinstance(node, Select):
        candidates = tuple([Candidate(c.max_size, c.cost, to[c.target]) for c in node.candidates])
        return Select(candidates, to[node.otherwise])
    if isinstance(node, Forward):
        return Forward(node.sensors, to[node.fallback])
    return node


# ---------------------------------------------------------------- J6 to J9: sums, rounds, memory


def _check_sums(part: Program, joint: Joint, proofs: Sequence[Proved]) -> None:
    """J6: the score of any labels of the longest item stays below 2^62, and so does every partial sum."""
    slices = [w.scores for w in joint.waits] + [n.scores for n in part.nodes if isinstance(n, Answer)]
    scores = max([b for s in slices for b in proofs[s.scorer].outputs[s.start : s.stop]], default=0)
    c = joint.chain
    steps = max(map(abs, c.transitions))
    total = max(map(abs, c.start)) + max(map(abs, c.stop)) + joint.max_parts * (scores + steps)
    need(total < SAFE, f"the scores of {joint.max_parts} parts may come to {total}, which may overflow")


def _most_waits(part: Program, joint: Joint) -> int:
    """J7: the most barriers at which one part may stand: by the path, and once for each inner sensor."""
    waits = {w.node for w in joint.waits}
    most = [0] * len(part.nodes)
    for k in range(len(part.nodes) - 1, -1, -1):
        most[k] = (k in waits) + max([most[t] for t in targets_of(part.nodes[k])], default=0)
    return min(most[0], len(joint.inner(part)))


def _memory(part: Program, joint: Joint, session_bytes: int) -> int:
    """J9: a session for each part and one to try out, with what the chain needs."""
    n, n_columns = joint.max_parts, joint.max_parts * len(part.columns)
    total = (n + 1) * (session_bytes + LABEL_BYTES * joint.chain.labels + PART_BYTES)
    need(
        total <= MAX_ITEM_BYTES,
        f"an item of {n} parts takes {total} bytes, at most {MAX_ITEM_BYTES} are allowed; allow fewer parts",
    )
    need(
        n_columns <= MAX_ITEM_COLUMNS,
        f"an item of {n} parts has {n_columns} columns, at most {MAX_ITEM_COLUMNS} are allowed; allow fewer parts",
    )
    return total


def _trial(part: Program, joint: Joint, proofs: Sequence[Proved]) -> int:
    """J8: the operations of trying out what the policy says of one part: a copy, the inner sensor and a score."""
    readings = reading_operations(part)
    policies = [w.policy for w in joint.waits if w.policy is not None]
    copy = len(part.features) + len(part.columns) + len(part.scorers) + len(part.sensors)
    copy += sum([len(trees) for trees in shared_trees(part).values()])
    most = max([proofs[s.scorer].operations for s in policies], default=0)
    return copy + most + max([readings[s] for s in joint.inner(part)], default=0) if policies else 0
