# SPDX-License-Identifier: Apache-2.0
"""The picture of a large policy by its states: a box for each set of sensors that rows have bought, not for each node.

A pruned forest has hundreds of nodes, and what they decide together is which sensor a row buys next. A state is the set
of sensors bought so far, as in Wang, Trapeznikov and Saligrama (2015).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import Acquire, Program
from hardcase_edge.session.actions import CLOUD as TO_CLOUD
from hardcase_edge.session.actions import Decision

from ..measuring.measure import lost
from .page import amount, percent
from .policy_boxes import ANSWER, BUY, CLOUD, MORE, Arrow, Box, Flow, error_words

MAX_STATES = 18
WRAP = 34  # letters of a line of names
State = frozenset[int]


class Ends:
    """The rows that end in each state, and what their answers lose."""

    def __init__(self) -> None:
        self.rows: Counter[State] = Counter()
        self._lost: defaultdict[State, float] = defaultdict(float)

    def add(self, state: State, loss: float) -> None:
        """Count a row."""
        self.rows[state] += 1
        self._lost[state] += loss

    def total(self, states: Iterable[State]) -> tuple[int, float]:
        """The rows that end in these states, and the sum of what they lose."""
        chosen = list(states)
        return sum(self.rows[s] for s in chosen), sum(self._lost[s] for s in chosen)


def states_of(
    program: Program, manifest: Manifest, decisions: Sequence[Decision], y: Sequence[float], limit: int = MAX_STATES
) -> Flow:
    """The states of a program as boxes; rows that the cloud answers end in a box of their own.

    Parameters
    ----------
    decisions, y : on some rows, and the rows' class indices or values
    limit : largest number of states; those that most rows pass are shown, and one box stands for the others
    """
    passed: Counter[State] = Counter()
    ended, forwarded = Ends(), Ends()
    moves: Counter[tuple[State, State]] = Counter()
    for d, label in zip(decisions, y, strict=True):
        way = _way(program, d)
        passed.update(way)
        moves.update(pairwise(way))
        (forwarded if d.route == TO_CLOUD else ended).add(way[-1], lost(program, d.result, label))
    shown = _most_passed(passed, moves, limit)
    place = {state: k for k, state in enumerate(shown)}
    rest = len(shown)
    hidden = [state for state in passed if state not in place]
    boxes = [_box(program, manifest, state, passed, ended, len(decisions)) for state in shown]
    arrows: Counter[tuple[int, int]] = Counter()
    for (a, b), rows in moves.items():
        if a in place:
            arrows[place[a], place.get(b, rest)] += rows
    if hidden:
        (n_ended, lost_ended), (n_forwarded, lost_forwarded) = ended.total(hidden), forwarded.total(hidden)
        rows, loss = n_ended + n_forwarded, lost_ended + lost_forwarded
        lines = (f"{percent(rows / len(decisions))} of rows end there", error_words(loss, rows, manifest.value))
        boxes.append(Box(MORE, f"{len(hidden)} more sets of sensors", lines, rows))
    _ask(boxes, arrows, forwarded, place, len(decisions), manifest)
    return Flow(tuple(boxes), tuple(Arrow(a, b, r) for (a, b), r in arrows.items()), len(decisions), 0)


def _way(program: Program, d: Decision) -> list[State]:
    """The sets of sensors that a row has bought one after another, before a request buys the others."""
    way: list[State] = [frozenset()]
    for node in (program.nodes[k] for k in d.trace):
        now = way[-1] | (set(node.sensors) & set(d.sensors)) if isinstance(node, Acquire) else way[-1]
        if now != way[-1]:
            way.append(now)
    return way


def _most_passed(passed: Counter[State], moves: Counter[tuple[State, State]], limit: int) -> list[State]:
    """From no sensor on, always the state in reach that most rows pass; smaller sets first."""
    start: State = frozenset()
    shown, reach = [start], {b for a, b in moves if a == start}
    while reach and len(shown) < limit:
        best = min(reach, key=lambda s: (-passed[s], sorted(s)))
        shown.append(best)
        reach = (reach | {b for a, b in moves if a == best}) - set(shown)
    return sorted(shown, key=lambda s: (len(s), -passed[s], sorted(s)))


def _box(
    program: Program,
    manifest: Manifest,
    state: State,
    passed: Counter[State],
    ended: Ends,
    n: int,
) -> Box:
    low, high = (amount(to_unit(Meter(program, size).total(state, 0))) for size in (1, program.max_item_size))
    cost = low if low == high else f"{low} to {high}"
    names = [manifest.sensors[s] for s in sorted(state)]
    rows, loss = ended.total([state])
    lines = [*_wrapped(names), f"{percent(passed[state] / n)} of rows, {cost} {manifest.unit} so far"]
    if rows:
        lines += [f"{percent(rows / n)} answered here", error_words(loss, rows, manifest.value)]
    is_end = rows == passed[state]
    title = f"{len(names)} sensor{'s' * (len(names) > 1)}" if names else "no sensor yet"
    return Box(ANSWER if is_end else BUY, title, tuple(lines), passed[state], ", ".join(names))


def _wrapped(names: list[str]) -> list[str]:
    """The names on at most two lines; the second says how many are not named."""
    lines: list[str] = [""]
    for k, name in enumerate(names):
        longer = f"{lines[-1]}, {name}" if lines[-1] else name
        if len(longer) <= WRAP:
            lines[-1] = longer
        elif len(lines) == 1:
            lines.append(name)
        else:
            lines[-1] = f"{lines[-1][: WRAP - 10]} + {len(names) - k} more"
            break
    return [line for line in lines if line]


def _ask(
    boxes: list[Box],
    arrows: Counter[tuple[int, int]],
    asked: Ends,
    place: dict[State, int],
    n: int,
    manifest: Manifest,
) -> None:
    """Add the box of f0 and its arrows, if a row ends there."""
    total, loss = asked.total(place)
    if not total:
        return
    lines = (f"{percent(total / n)} of rows", error_words(loss, total, manifest.value))
    boxes.append(Box(CLOUD, "ask f0 in the cloud", lines, total))
    for state, rows in asked.rows.items():
        if state in place:
            arrows[place[state], len(boxes) - 1] += rows
