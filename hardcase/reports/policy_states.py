# SPDX-License-Identifier: Apache-2.0
"""The picture of a large policy by its states: a box for each set of sensors that rows have bought, not for each node.

A pruned forest has hundreds of nodes, and what they decide together is which sensor a row buys next. A state is the set
of sensors bought so far, as in Wang, Trapeznikov and Saligrama (2015).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from .markup import amount, percent
from .policy_boxes import ANSWER, BUY, CLOUD, MORE, Arrow, Box, Flow, error_words

if TYPE_CHECKING:
    from hardcase_edge.bundle.manifest import Manifest
    from hardcase_edge.program.definition import Program
    from hardcase_edge.session.session import Decision

__all__ = ["states_of"]

MAX_STATES = 18
WRAP = 34  # letters of a line of names
State = frozenset[int]


def states_of(
    program: Program, manifest: Manifest, decisions: Sequence[Decision], y: Sequence[int], limit: int = MAX_STATES
) -> Flow:
    """The states of a program as boxes; rows that the cloud answers end in a box of their own.

    Parameters
    ----------
    decisions, y : on some rows, and the rows' class indices
    limit : largest number of states; those that most rows pass are shown, and one box stands for the others
    """
    from hardcase_edge.session.session import CLOUD as TO_CLOUD

    passed: Counter[State] = Counter()
    ended: Counter[tuple[State, bool]] = Counter()
    asked: Counter[tuple[State, bool]] = Counter()
    moves: Counter[tuple[State, State]] = Counter()
    for d, label in zip(decisions, y, strict=True):
        way = _way(program, d)
        passed.update(way)
        moves.update(pairwise(way))
        (asked if d.route == TO_CLOUD else ended)[way[-1], d.result == label] += 1
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
        right, wrong = (sum(ended[s, is_right] + asked[s, is_right] for s in hidden) for is_right in (True, False))
        lines = (f"{percent((right + wrong) / len(decisions))} of rows end there", error_words(wrong, right + wrong))
        boxes.append(Box(MORE, f"{len(hidden)} more sets of sensors", lines, right + wrong))
    _ask(boxes, arrows, asked, place, len(decisions))
    return Flow(tuple(boxes), tuple(Arrow(a, b, r) for (a, b), r in arrows.items()), len(decisions), 0)


def _way(program: Program, d: Decision) -> list[State]:
    """The sets of sensors that a row has bought one after another, before a request buys the others."""
    from hardcase_edge.program.definition import Acquire

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
    ended: Counter[tuple[State, bool]],
    n: int,
) -> Box:
    from hardcase_edge.program.cost import Meter, to_unit

    cost = to_unit(Meter(program).buy(state))
    names = [manifest.sensors[s] for s in sorted(state)]
    right, wrong = ended[state, True], ended[state, False]
    lines = [*_wrapped(names), f"{percent(passed[state] / n)} of rows, {amount(cost)} {manifest.unit} so far"]
    if right + wrong:
        lines += [f"{percent((right + wrong) / n)} answered here", error_words(wrong, right + wrong)]
    is_end = right + wrong == passed[state]
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
    asked: Counter[tuple[State, bool]],
    place: dict[State, int],
    n: int,
) -> None:
    """Add the box of f0 and its arrows, if a row ends there."""
    from_shown = {key: rows for key, rows in asked.items() if key[0] in place}
    total = sum(from_shown.values())
    if not total:
        return
    wrong = sum(rows for (_, is_right), rows in from_shown.items() if not is_right)
    lines = (f"{percent(total / n)} of rows", error_words(wrong, total))
    boxes.append(Box(CLOUD, "ask f0 in the cloud", lines, total))
    for (state, _), rows in from_shown.items():
        arrows[place[state], len(boxes) - 1] += rows
