"""A graph's policies as a program: states that rows come to, and the ways that are left when a sensor fails.

A state is a Branch on its classifier's margin (where it has a cut), a Branch by tournament, an Acquire per edge, an
Answer and, where rows are forwarded, a Forward. An Acquire that fails leads to a second tournament of the same state,
which passes over what needs the dead sensor. Kept are the states and actions that training rows take, with all sensors
working or with any one of them dead; to stop is always kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardcase_edge.batch.choices import Bracket
from hardcase_edge.program.definition import MARGIN, TOURNAMENT, Acquire, Answer, Branch, Forward, Node, Slice

from ...linear.polynomial import PolynomialPart
from ...policy.answers import NEVER, answer_node
from ...policy.compile import compile_program
from ...policy.front import Point
from ...policy.losses import class_outputs
from ...policy.selection import Trained
from .filter_tree import without
from .state_classifiers import Classifier
from .state_policy import StatePolicy
from .state_rows import DagRows

__all__ = ["Actions", "dag_point", "taken"]

FAILURE_ROWS = 1000  # at most, on which dead sensors are tried
FAILURE_SHARE = 0.01  # of them; what fewer do when a sensor is dead has no node of its own

Actions = dict[int, list[int]]  # by state that is kept, the actions that are, by number, to stop (0) the first


def taken(rows: DagRows, bank: Sequence[Classifier], policies: Sequence[StatePolicy | None]) -> Actions:
    """What training rows do, all sensors working, or one of those that are bought dead."""
    n = len(rows.fold)
    used = _walk(rows, bank, policies, np.arange(n), None, 0)
    some = np.random.default_rng(rows.problem.seed).permutation(n)[:FAILURE_ROWS]
    for dead in sorted({k for s in used for k in rows.graph.states[s]}):
        for s, actions in _walk(rows, bank, policies, some, dead, FAILURE_SHARE * len(some)).items():
            used.setdefault(s, set()).update(actions)
    return {s: sorted(used[s] | {0}) for s in sorted(used)}


def _walk(
    rows: DagRows,
    bank: Sequence[Classifier],
    policies: Sequence[StatePolicy | None],
    some: np.ndarray,
    dead: int | None,
    least: float,
) -> dict[int, set[int]]:
    """States that rows come to, and the actions that at least so many of them take there."""
    graph = rows.graph
    here: dict[int, list[np.ndarray]] = {0: [some]}
    out: dict[int, set[int]] = {}
    for s in range(len(graph.states)):
        mine = np.concatenate(here.get(s, [some[:0]]))
        policy = policies[s]
        if not len(mine):
            continue
        out[s] = set()
        if policy is None:
            continue
        has = np.ones(policy.n_actions, dtype=bool)
        for k, t in enumerate(graph.edges[s]):
            has[1 + k] = dead not in graph.states[t]
        choice = policy.choose(mine, bank[s].margin[mine], has)
        for action in np.flatnonzero(np.bincount(choice, minlength=policy.n_actions) >= max(least, 1)):
            out[s].add(int(action))
            if 1 <= action <= len(graph.edges[s]):
                here.setdefault(graph.edges[s][action - 1], []).append(mine[choice == action])
    return out


def dag_point(
    rows: DagRows,
    bank: Sequence[Classifier],
    policies: Sequence[StatePolicy | None],
    params: dict[str, Any],
) -> Point:
    """A graph's policy with its program and its figures on the judged rows."""
    judge, problem = rows.judge, rows.problem
    kept = taken(rows, bank, policies)
    trained, wants = _scorers(rows, kept, bank, policies)
    nodes = _nodes(rows, kept, wants)
    outcome = judge.run(compile_program(problem, [t.part for t in trained], nodes), trained)
    for k, node in enumerate(nodes):
        here = outcome.node == k
        if isinstance(node, Answer):
            right = outcome.label[here] == judge.y[here]
            nodes[k] = answer_node(node, outcome.margin[here], right, judge.weight[here])
    program = compile_program(problem, [t.part for t in trained], nodes)
    return Point("dag", {**params, "states": len(kept)}, judge.summary(outcome), {}, program)


# ---------------------------------------------------------------- scorers


@dataclass(frozen=True)
class _Wants:
    """What a state's nodes read: its answer's scores, its matches' (None: it only answers), and who plays whom."""

    answer: Slice
    matches: Slice | None
    bracket: Bracket
    cut: float


def _scorers(
    rows: DagRows,
    kept: Actions,
    bank: Sequence[Classifier],
    policies: Sequence[StatePolicy | None],
) -> tuple[list[Trained], dict[int, _Wants]]:
    """Scorers of the kept states. Classes and matches that are polynomials of the same terms become one scorer."""
    width = class_outputs(rows.problem.n_classes)
    out: list[Trained] = []
    wants: dict[int, _Wants] = {}
    for s, actions in kept.items():
        answer, policy = Slice(len(out), 0, width), policies[s]
        out.append(bank[s].trained)
        if policy is None or len(actions) == 1:
            wants[s] = _Wants(answer, None, (), NEVER)
            continue
        bracket, left = without(policy.bracket, policy.n_actions, actions)
        matches = Trained(policy.matches.only(left), policy.trained.scores[:, left])
        both = _beside(out[-1], matches)
        if both is not None:
            out[-1] = both
            wants[s] = _Wants(answer, Slice(answer.scorer, width, width + len(left)), bracket, policy.cut)
            continue
        wants[s] = _Wants(answer, Slice(len(out), 0, len(left)), bracket, policy.cut)
        out.append(matches)
    return out, wants


def _beside(classes: Trained, matches: Trained) -> Trained | None:
    """Both as one scorer, if they are polynomials of the same terms."""
    one, other = classes.part, matches.part
    if not (isinstance(one, PolynomialPart) and isinstance(other, PolynomialPart)):
        return None
    if not np.array_equal(one.factors, other.factors):
        return None
    return Trained(one.beside(other), np.hstack([classes.scores, matches.scores]))


# ---------------------------------------------------------------- nodes


def _nodes(rows: DagRows, kept: Actions, wants: dict[int, _Wants]) -> list[Node]:
    """All states' nodes, small states first: what an Acquire leads to lies ahead of it."""
    begin, at = {}, 0
    for s, actions in kept.items():
        begin[s] = at
        at += _size(rows, s, actions, wants[s])
    nodes: list[Node] = []
    for s, actions in kept.items():
        nodes += _state(rows, s, actions, wants[s], begin)
    return nodes


def _edges(rows: DagRows, s: int, actions: list[int]) -> list[int]:
    """The states that the kept actions buy their way to."""
    return [rows.graph.edges[s][a - 1] for a in actions if 1 <= a <= len(rows.graph.edges[s])]


def _size(rows: DagRows, s: int, actions: list[int], wants: _Wants) -> int:
    if wants.matches is None:
        return 1
    n_edges = len(_edges(rows, s, actions))
    return (wants.cut < NEVER) + (2 * (1 + n_edges) if n_edges else 1) + len(actions) - n_edges


def _state(rows: DagRows, s: int, actions: list[int], wants: _Wants, begin: dict[int, int]) -> list[Node]:
    """Cut; tournament and what it buys; the same once more, for when that fails; forward; answer."""
    if wants.matches is None:
        return [Answer(wants.answer)]
    targets, size = _edges(rows, s, actions), _size(rows, s, actions, wants)
    answer = begin[s] + size - 1
    is_forwarding = len(actions) > 1 + len(targets)
    nodes: list[Node] = []
    if wants.cut < NEVER:
        nodes.append(Branch(wants.answer, MARGIN, (begin[s] + 1, answer), wants.cut))
    for turn in range(2 if targets else 1):
        at = begin[s] + len(nodes)
        after = at + 1 + len(targets) if turn == 0 else answer  # where to go when a purchase fails
        others = [answer - 1] if is_forwarding else []
        ways = (answer, *range(at + 1, at + 1 + len(targets)), *others)
        nodes.append(Branch(wants.matches, TOURNAMENT, ways, bracket=wants.bracket))
        nodes += [Acquire(rows.graph.states[t], begin[t], after) for t in targets]
    if is_forwarding:
        nodes.append(Forward(rows.problem.hpc_sensors, answer))
    return [*nodes, Answer(wants.answer)]
