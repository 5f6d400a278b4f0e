# SPDX-License-Identifier: Apache-2.0
"""The method ``lp-tree``: acquisition orders of at most four sensors, decided by one linear program.

Classifiers and the losses of stopping are those of the classifier bank, as for ``dag``; decisions are polynomials of
the readings bought so far. A linear program of all rows would take hours, so it uses a sample, smaller with more terms.
The policy never forwards, as in the paper. docs/math.md (45) to (50).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hardcase_edge.program.definition import THRESHOLD, Acquire, Branch, Node, Slice

from ...data.problem import Problem
from ...estimator import MethodClassifier
from ...method import Method, Params
from ...policy.answers import bare_answer, with_confidences
from ...policy.compile import compile_program
from ...policy.front import Point, best_points
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...policy_estimator import Limits
from ...stages.subset_search import SubsetSearch
from ...successors.reduce import all_subsets
from .lp_surrogate import FullTree, Solved, full_tree, solve
from .state_classifiers import KINDS, make_bank, stop_losses
from .state_rows import DagRows

LEAST_PRICE, MOST_PRICE = 0.01, 1.0  # errors per cost unit
MAX_CELLS = 60_000  # of the linear program: rows times terms of all decisions
BARRED = 10.0  # times the largest loss, of stopping in a state that the budget does not allow
L1 = 1e-3  # errors per unit of weight, for terms of mean square 1


@dataclass(eq=False, repr=False)
class LpTree(MethodClassifier):
    """A policy over every acquisition order of at most four sensors, by the linear-programming surrogate.

    Parameters
    ----------
    classifier : kind of the states' classifiers, one of ``state_classifiers.KINDS``
    degree : degree of the polynomials, 1 to 3
    others : those of ``PolicyClassifier``, by keyword

    Examples
    --------
    >>> LpTree(classifier="trees", degree=2).get_params()["degree"]
    2
    """

    classifier: str = "polynomial"
    degree: int = 1
    method: ClassVar[Method] = Method(
        name="lp-tree", maturity="research", against="at most four sensors and 400 rows; it forwards no case to f0",
        turn=10, colour="#5d6d7e", takes_values=True,
    )  # fmt: skip
    _limits: ClassVar[Limits] = {"degree": (1, 3)}

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting: all prices share the states' classifiers."""
        full_tree(len(search.problem.sensors))
        return [{"classifier": "polynomial", "degree": 1}]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points over prices that are best on the judged rows."""
        tree = full_tree(len(search.problem.sensors))
        rows = DagRows(search.judge, all_subsets(len(search.problem.sensors)), params["degree"])
        lp = _Tree(tree, rows, params["classifier"])
        grid = prices(search.problem, search.problem.effort.n_lp_prices, LEAST_PRICE, MOST_PRICE)
        return best_points([lp.point(price, params) for price in grid])

    def points(self, judge: Judge) -> list[Point]:
        """Points over prices."""
        if self.classifier not in KINDS:
            raise ValueError(f"classifier of LpTree is {self.classifier!r}; expected one of {KINDS}")
        return super().points(judge)

    def _settings(self, search: SubsetSearch) -> list[Params]:
        return [{"classifier": self.classifier, "degree": self.degree}]


class _Tree:
    """The classifier bank, and the policy learned from it for any price."""

    def __init__(self, tree: FullTree, rows: DagRows, bank: str) -> None:
        self.tree, self.rows, self.problem = tree, rows, rows.problem
        classifiers = make_bank(rows, bank)
        self.bank = [classifier.trained for classifier in classifiers]
        self.errors = stop_losses(rows, classifiers)
        self.costs = self.problem.row_costs(tree.states, self.problem.train.sizes)
        barred = np.array([not self.problem.is_affordable(state) for state in tree.states])
        self.errors = self.errors + barred * BARRED * self.errors.max(initial=0.0)
        self.mine = [rows.mine(s) for s in range(len(tree.states))]

    @cached_property
    def samples(self) -> list[np.ndarray]:
        """Rows of the linear programs: of the model's, then, if rows are judged by copies, of each copy's."""
        n_terms = sum(len(self.mine[d.state]) for d in self.tree.decisions)
        n_rows = min(self.problem.effort.lp_rows, max(1, MAX_CELLS // max(n_terms, 1)))
        order = np.random.default_rng(self.problem.seed).permutation(self.rows.seen.shape[1])
        models = self.rows.seen if self.rows.judge.is_crossed else self.rows.seen[:1]
        return [order[seen[order] > 0][:n_rows] for seen in models]

    def point(self, price: float, params: dict[str, Any]) -> Point:
        """The policy for a price, with its program and its figures on the judged rows."""
        losses = self.errors + price * self.costs
        solved = [self._solve(sample, losses) for sample in self.samples]
        decisions = {s: self._decisions(s, solved) for s in sorted({d.state for d in self.tree.decisions})}
        scores = np.hstack([np.empty((len(self.errors), 0)), *(unseen for _, unseen in decisions.values())])
        taken = _taken(self.tree, scores)
        marks = _marks(self.tree, taken)
        answering, deciding = ([m.state for m in marks if m.kind == kind] for kind in (ANSWER, BRANCH))
        deciding = sorted(set(deciding))
        trained = [*(self.bank[s] for s in answering), *(decisions[s][0] for s in deciding)]
        nodes = _nodes(self.tree, taken, marks, self.problem, answering, deciding)
        judge, parts = self.rows.judge, [t.part for t in trained]
        outcome = judge.run(compile_program(self.problem, parts, nodes), trained)
        program = compile_program(self.problem, parts, with_confidences(judge, nodes, outcome))
        reported = {**params, "price": price, "rows": len(self.samples[0])}
        return Point("lp-tree", reported, judge.summary(outcome), None, program)

    def _solve(self, sample: np.ndarray, losses: np.ndarray) -> Solved:
        values = self.rows.design.values
        terms = [values[np.ix_(columns[1:], sample)].T.astype(np.float64) for columns in self.mine]
        return solve(self.tree, terms, losses[sample], self.problem.train.weight[sample], L1)

    def _decisions(self, s: int, solved: Sequence[Solved]) -> tuple[Trained, np.ndarray]:
        """A state's decisions as one part, and their out-of-fold scores of training rows, (n_train, n_decisions)."""
        numbers, columns = [k for k, d in enumerate(self.tree.decisions) if d.state == s], self.mine[s]
        coef = np.array([[[one.bias[k], *one.weights[k]] for k in numbers] for one in solved])
        coef[:, :, 0] *= self.rows.terms.scale[0]  # term 0 is the constant, 1 before it is scaled
        unseen = self.rows.own(np.einsum("mdt,tn->mdn", coef, self.rows.design.values[columns]))
        valid = (coef[0] @ self.rows.valid_values[columns]).T
        return self.rows.trained(self.rows.polynomial(columns, coef[0]), unseen, valid), unseen


# ---------------------------------------------------------------- the program

BRANCH, ACQUIRE, ANSWER = range(3)


class _Mark(NamedTuple):
    """A planned node: a Branch on decision ``number``, an Acquire that leads to state ``number``, or an Answer."""

    is_last: bool  # answers come after all other nodes
    state: int
    kind: int
    number: int = 0


def _taken(tree: FullTree, scores: np.ndarray) -> list[tuple[int, ...]]:
    """The children of each decision that some row takes; ``scores`` (n, n_decisions)."""
    reached = {tree.first[0]: np.ones(len(scores), dtype=bool)}
    children = []
    for k, d in enumerate(tree.decisions):
        at_decision = reached.get(k, np.zeros(len(scores), dtype=bool))
        right = scores[:, k] > 0
        ways = [(d.left, at_decision & ~right), (d.right, at_decision & right)]
        for child, rows in ways:
            reached[child] = reached.get(child, False) | rows
        children.append(tuple(child for child, rows in ways if rows.any()))
    return children


def _marks(tree: FullTree, taken: list[tuple[int, ...]]) -> list[_Mark]:
    """The nodes that rows reach, and the answers for failed purchases, in order."""
    marks: set[_Mark] = set()
    open_ = [_way(tree, taken, 0, tree.first[0])]
    while open_:
        mark = open_.pop()
        if mark in marks:
            continue
        marks.add(mark)
        open_ += _after(tree, taken, mark)
    return sorted(marks)


def _way(tree: FullTree, taken: list[tuple[int, ...]], s: int, child: int) -> _Mark:
    """The node that a child of a decision in state s leads to; a decision with a single outcome is skipped."""
    while child >= 0 and tree.decisions[child].state == s and len(taken[child]) == 1:
        (child,) = taken[child]
    after = tree.decisions[child].state if child >= 0 else -1 - child
    if after != s:
        return _Mark(False, s, ACQUIRE, after)
    return _Mark(False, s, BRANCH, child) if child >= 0 else _Mark(True, s, ANSWER)


def _after(tree: FullTree, taken: list[tuple[int, ...]], mark: _Mark) -> list[_Mark]:
    """The targets of a Branch; or of an Acquire, first for success, then for failure."""
    if mark.kind == BRANCH:
        d = tree.decisions[mark.number]
        return [_way(tree, taken, mark.state, child) for child in (d.left, d.right)]
    if mark.kind == ACQUIRE:
        return [_way(tree, taken, mark.number, tree.first[mark.number]), _Mark(True, mark.state, ANSWER)]
    return []


def _nodes(
    tree: FullTree,
    taken: list[tuple[int, ...]],
    marks: list[_Mark],
    problem: Problem,
    answering: list[int],
    deciding: list[int],
) -> list[Node]:
    """The planned nodes; scorers are those of the answering states, then those of the deciding states."""
    place = {mark: k for k, mark in enumerate(marks)}
    nodes: list[Node] = []
    for mark in marks:
        targets = [place[m] for m in _after(tree, taken, mark)]
        if mark.kind == BRANCH:
            k = mark.number - tree.first[mark.state]
            scorer = len(answering) + deciding.index(mark.state)
            nodes.append(Branch(Slice(scorer, k, k + 1), THRESHOLD, tuple(targets), 0.0))
        elif mark.kind == ACQUIRE:
            new = tuple(sorted({*tree.states[mark.number]} - {*tree.states[mark.state]}))
            nodes.append(Acquire(new, *targets))
        else:
            nodes.append(bare_answer(problem, answering.index(mark.state)))
    return nodes
