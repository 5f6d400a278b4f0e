# SPDX-License-Identifier: Apache-2.0
"""Compile the policies of a graph's states into a program, with fallbacks for sensors that fail.

A state is a Branch on its classifier's margin (where it has a cut), a Branch by tournament, an Acquire per edge, an
Answer and, if rows are forwarded, a Forward. An Acquire that fails leads to a second tournament of the same state,
which skips actions that need the failed sensor. The program contains the states and actions that training rows take,
with all sensors working or with any one of them dead; stopping is always among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardcase_edge.more.batch.choices import Bracket
from hardcase_edge.program.definition import MARGIN, TOURNAMENT, Acquire, Branch, Forward, Node, Slice

from ...linear.terms import PolynomialPart
from ...policy.answers import bare_answer, with_confidences
from ...policy.compile import compile_program
from ...policy.confidences import NEVER
from ...policy.front import Point
from ...policy.selection import Trained
from .filter_tree import without
from .state_classifiers import Classifier
from .state_policy import StatePolicy
from .state_rows import DagRows

FAILURE_ROWS = 1000  # largest number of rows on which dead sensors are simulated
FAILURE_SHARE = 0.01  # least share of them that must take an action with a dead sensor for it to get a node

Actions = dict[int, list[int]]  # for each state of the program, its actions by number; the first is to stop (0)


def taken(rows: DagRows, bank: Sequence[Classifier], policies: Sequence[StatePolicy | None]) -> Actions:
    """The states and actions that training rows take, with all sensors working or one of the bought sensors dead."""
    n = len(rows.fold)
    used = _walk(rows, bank, policies, np.arange(n), None, 0)
    sample = np.random.default_rng(rows.problem.seed).permutation(n)[:FAILURE_ROWS]
    for dead in sorted({k for s in used for k in rows.graph.states[s]}):
        for s, actions in _walk(rows, bank, policies, sample, dead, FAILURE_SHARE * len(sample)).items():
            used.setdefault(s, set()).update(actions)
    return {s: sorted(used[s] | {0}) for s in sorted(used)}


def _walk(
    rows: DagRows,
    bank: Sequence[Classifier],
    policies: Sequence[StatePolicy | None],
    sample: np.ndarray,
    dead: int | None,
    least: float,
) -> dict[int, set[int]]:
    """The states that rows reach, and the actions that at least ``least`` of them take there."""
    graph = rows.graph
    reached: dict[int, list[np.ndarray]] = {0: [sample]}
    actions: dict[int, set[int]] = {}
    for s in range(len(graph.states)):
        at_state = np.concatenate(reached.get(s, [sample[:0]]))
        policy = policies[s]
        if not len(at_state):
            continue
        actions[s] = set()
        if policy is None:
            continue
        has = np.ones(policy.n_actions, dtype=bool)
        for k, t in enumerate(graph.edges[s]):
            has[1 + k] = dead not in graph.states[t]
        choice = policy.choose(at_state, bank[s].margin[at_state], has)
        for action in np.flatnonzero(np.bincount(choice, minlength=policy.n_actions) >= max(least, 1)):
            actions[s].add(int(action))
            if 1 <= action <= len(graph.edges[s]):
                reached.setdefault(graph.edges[s][action - 1], []).append(at_state[choice == action])
    return actions


def dag_point(
    rows: DagRows,
    bank: Sequence[Classifier],
    policies: Sequence[StatePolicy | None],
    params: dict[str, Any],
) -> Point:
    """The policies of a graph as a point: their program, and its figures on the judged rows."""
    judge, problem = rows.judge, rows.problem
    actions = taken(rows, bank, policies)
    trained, wants = _scorers(rows, actions, bank, policies)
    nodes = _nodes(rows, actions, wants)
    outcome = judge.run(compile_program(problem, [t.part for t in trained], nodes), trained)
    program = compile_program(problem, [t.part for t in trained], with_confidences(judge, nodes, outcome))
    return Point("dag", {**params, "states": len(actions)}, judge.summary(outcome), None, program)


# ---------------------------------------------------------------- scorers


@dataclass(frozen=True)
class _Wants:
    """What a state's nodes read: the scores of its answer and of its matches (None: it only answers), its bracket."""

    answer: Slice
    matches: Slice | None
    bracket: Bracket
    cut: float


def _scorers(
    rows: DagRows,
    actions_of: Actions,
    bank: Sequence[Classifier],
    policies: Sequence[StatePolicy | None],
) -> tuple[list[Trained], dict[int, _Wants]]:
    """The scorers of the states; classes and matches that are polynomials of the same terms share a scorer."""
    width = rows.problem.n_outputs
    scorers: list[Trained] = []
    wants: dict[int, _Wants] = {}
    for s, actions in actions_of.items():
        answer, policy = Slice(len(scorers), 0, width), policies[s]
        scorers.append(bank[s].trained)
        if policy is None or len(actions) == 1:
            wants[s] = _Wants(answer, None, (), NEVER)
            continue
        bracket, left = without(policy.bracket, policy.n_actions, actions)
        matches = Trained(policy.matches.only(left), policy.trained.scores[:, left])
        both = _beside(scorers[-1], matches)
        if both is not None:
            scorers[-1] = both
            wants[s] = _Wants(answer, Slice(answer.scorer, width, width + len(left)), bracket, policy.cut)
            continue
        wants[s] = _Wants(answer, Slice(len(scorers), 0, len(left)), bracket, policy.cut)
        scorers.append(matches)
    return scorers, wants


def _beside(classes: Trained, matches: Trained) -> Trained | None:
    """Both as one scorer, if they are polynomials of the same terms."""
    one, other = classes.part, matches.part
    if not (isinstance(one, PolynomialPart) and isinstance(other, PolynomialPart)):
        return None
    if not np.array_equal(one.factors, other.factors):
        return None
    return Trained(one.with_outputs_of(other), np.hstack([classes.scores, matches.scores]))


# ---------------------------------------------------------------- nodes


def _nodes(rows: DagRows, actions_of: Actions, wants: dict[int, _Wants]) -> list[Node]:
    """The nodes of all states, small states first, so that an Acquire leads to a later node."""
    begin, at = {}, 0
    for s, actions in actions_of.items():
        begin[s] = at
        at += _size(rows, s, actions, wants[s])
    nodes: list[Node] = []
    for s, actions in actions_of.items():
        nodes += _state(rows, s, actions, wants[s], begin)
    return nodes


def _edges(rows: DagRows, s: int, actions: list[int]) -> list[int]:
    """The states that these actions lead to by a purchase."""
    return [rows.graph.edges[s][a - 1] for a in actions if 1 <= a <= len(rows.graph.edges[s])]


def _size(rows: DagRows, s: int, actions: list[int], wants: _Wants) -> int:
    if wants.matches is None:
        return 1
    n_edges = len(_edges(rows, s, actions))
    return (wants.cut < NEVER) + (_turns(rows) * (1 + n_edges) if n_edges else 1) + len(actions) - n_edges


def _turns(rows: DagRows) -> int:
    """Whether a row whose purchase failed may buy again (2), or is answered because a budget may not last (1)."""
    return 2 if rows.problem.is_affordable(rows.problem.offered, 1) else 1


def _state(rows: DagRows, s: int, actions: list[int], wants: _Wants, begin: dict[int, int]) -> list[Node]:
    """The nodes of a state: cut; tournament and purchases; both again, for failed purchases; forward; answer."""
    if wants.matches is None:
        return [bare_answer(rows.problem, wants.answer.scorer)]
    targets, size = _edges(rows, s, actions), _size(rows, s, actions, wants)
    answer = begin[s] + size - 1
    is_forwarding = len(actions) > 1 + len(targets)
    nodes: list[Node] = []
    if wants.cut < NEVER:
        nodes.append(Branch(wants.answer, MARGIN, (begin[s] + 1, answer), wants.cut))
    turns = _turns(rows) if targets else 1
    for turn in range(turns):
        at = begin[s] + len(nodes)
        after = at + 1 + len(targets) if turn + 1 < turns else answer  # target of a failed purchase
        others = [answer - 1] if is_forwarding else []
        ways = (answer, *range(at + 1, at + 1 + len(targets)), *others)
        nodes.append(Branch(wants.matches, TOURNAMENT, ways, bracket=wants.bracket))
        nodes += [Acquire(rows.graph.states[t], begin[t], after) for t in targets]
    if is_forwarding:
        nodes.append(Forward(rows.problem.hpc_sensors, answer))
    return [*nodes, bare_answer(rows.problem, wants.answer.scorer)]
