"""The method ``lp-tree``: the DAG's peer for a few sensors, every decision found by one linear program.

Classifiers and the losses of stopping are the bank's, as for ``dag``; decisions are polynomials of what is at hand.
A linear program of all rows would take hours, so it sees a sample of them: fewer the more terms there are. It never
forwards, as in the paper. docs/math.md (45) to (50).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import THRESHOLD, Acquire, Answer, Branch, Node, Slice

from ...estimator import Limits, MethodClassifier
from ...method import Method, Params
from ...policy.answers import answer_node
from ...policy.compile import compile_program
from ...policy.front import Point, best_points
from ...policy.losses import class_outputs
from ...policy.prices import prices
from ...policy.selection import Judge, Trained
from ...stages.subset_search import SubsetSearch
from .lp_surrogate import FullTree, Solved, full_tree, solve
from .reduce import all_subsets
from .state_classifiers import KINDS, make_bank, stop_losses
from .state_rows import DagRows

__all__ = ["LpTree"]

LEAST_PRICE, MOST_PRICE = 0.01, 1.0  # errors for the cost unit
MAX_CELLS = 60_000  # of the program: rows times the decisions' terms
L1 = 1e-3  # error for a unit of weight, terms of mean square 1


@dataclass(eq=False, repr=False)
class LpTree(MethodClassifier):
    """Decisions over every order of at most four sensors, by the linear-programming surrogate.

    Parameters
    ----------
    classifier : kind of the states' classifiers, one of ``state_classifiers.KINDS``
    degree : of the polynomials, 1 to 3
    others : those of ``PolicyClassifier``, by name
    """

    classifier: str = "polynomial"
    degree: int = 1
    method: ClassVar[Method] = Method(name="lp-tree", work=20, colour="#5d6d7e")
    _limits: ClassVar[Limits] = {"degree": (1, 3)}

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        """One setting: all prices share the states' classifiers."""
        full_tree(len(search.problem.sensors))
        return [{"classifier": "polynomial", "degree": 1}]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        """The points that the judged rows keep over prices."""
        tree = full_tree(len(search.problem.sensors))
        rows = DagRows(search.judge, all_subsets(len(search.problem.sensors)), params["degree"])
        lp = _Tree(tree, rows, params["classifier"])
        tried = prices(search.problem, search.problem.effort.n_lp_prices, LEAST_PRICE, MOST_PRICE)
        return best_points([lp.point(price, params) for price in tried])

    def points(self, judge: Judge) -> list[Point]:
        """Policies over prices of cost."""
        if self.classifier not in KINDS:
            raise ValueError(f"classifier of LpTree is {self.classifier!r}, one of {KINDS} is expected")
        return super().points(judge)

    def _settings(self, search: SubsetSearch) -> list[Params]:
        return [{"classifier": self.classifier, "degree": self.degree}]


class _Tree:
    """A bank, and what becomes of its rows for any price."""

    def __init__(self, tree: FullTree, rows: DagRows, bank: str) -> None:
        self.tree, self.rows, self.problem = tree, rows, rows.problem
        made = make_bank(rows, bank)
        self.bank = [one.trained for one in made]
        self.errors = stop_losses(rows, made)
        meter = Meter(self.problem)
        self.costs = np.array([to_unit(meter.total(s, 0)) for s in tree.states])
        self.mine = [rows.mine(s) for s in range(len(tree.states))]

    @cached_property
    def samples(self) -> list[np.ndarray]:
        """Rows of the program: of the model, then where rows are judged by copies, of each copy."""
        n_terms = sum(len(self.mine[d.state]) for d in self.tree.decisions)
        most = min(self.problem.effort.lp_rows, max(1, MAX_CELLS // max(n_terms, 1)))
        order = np.random.default_rng(self.problem.seed).permutation(self.rows.seen.shape[1])
        models = self.rows.seen if self.rows.judge.is_crossed else self.rows.seen[:1]
        return [order[seen[order] > 0][:most] for seen in models]

    def point(self, price: float, params: dict[str, Any]) -> Point:
        """The program that a price leads to, with its figures on the judged rows."""
        losses = self.errors + price * self.costs
        solved = [self._solve(sample, losses) for sample in self.samples]
        found = {s: self._decisions(s, solved) for s in sorted({d.state for d in self.tree.decisions})}
        scores = np.hstack([np.empty((len(self.errors), 0)), *(unseen for _, unseen in found.values())])
        taken = _taken(self.tree, scores)
        marks = _marks(self.tree, taken)
        answering, deciding = ([m.state for m in marks if m.kind == kind] for kind in (ANSWER, BRANCH))
        deciding = sorted(set(deciding))
        trained = [*(self.bank[s] for s in answering), *(found[s][0] for s in deciding)]
        nodes = _nodes(self.tree, taken, marks, class_outputs(self.problem.n_classes), answering, deciding)
        judge, parts = self.rows.judge, [t.part for t in trained]
        outcome = judge.run(compile_program(self.problem, parts, nodes), trained)
        for k, node in enumerate(nodes):
            here = outcome.node == k
            if isinstance(node, Answer):
                right = outcome.label[here] == judge.y[here]
                nodes[k] = answer_node(node, outcome.margin[here], right, judge.weight[here])
        program = compile_program(self.problem, parts, nodes)
        said = {**params, "price": price, "rows": len(self.samples[0])}
        return Point("lp-tree", said, judge.summary(outcome), {}, program)

    def _solve(self, sample: np.ndarray, losses: np.ndarray) -> Solved:
        values = self.rows.design.values
        terms = [values[np.ix_(mine[1:], sample)].T.astype(np.float64) for mine in self.mine]
        return solve(self.tree, terms, losses[sample], self.problem.train.weight[sample], L1)

    def _decisions(self, s: int, solved: Sequence[Solved]) -> tuple[Trained, np.ndarray]:
        """A state's decisions as one part, and their scores of training rows by copies, (n_train, n_decisions)."""
        numbers, mine = [k for k, d in enumerate(self.tree.decisions) if d.state == s], self.mine[s]
        coef = np.array([[[one.bias[k], *one.weights[k]] for k in numbers] for one in solved])
        coef[:, :, 0] *= self.rows.terms.scale[0]  # term 0 is the constant, 1 before it is scaled
        unseen = self.rows.own(np.einsum("mdt,tn->mdn", coef, self.rows.design.values[mine]))
        valid = (coef[0] @ self.rows.valid_values[mine]).T
        return self.rows.trained(self.rows.polynomial(mine, coef[0]), unseen, valid), unseen


# ---------------------------------------------------------------- the program

BRANCH, ACQUIRE, ANSWER = range(3)


class _Mark(NamedTuple):
    """A node to be: a Branch on decision ``number``, an Acquire that leads to the state ``number``, or an Answer."""

    is_last: bool  # answers stand behind all else
    state: int
    kind: int
    number: int = 0


def _taken(tree: FullTree, scores: np.ndarray) -> list[tuple[int, ...]]:
    """The ways of each decision that rows take, none where no row comes; ``scores`` (n, n_decisions)."""
    here = {tree.first[0]: np.ones(len(scores), dtype=bool)}
    out = []
    for k, d in enumerate(tree.decisions):
        mine = here.get(k, np.zeros(len(scores), dtype=bool))
        right = scores[:, k] > 0
        ways = [(d.left, mine & ~right), (d.right, mine & right)]
        for child, rows in ways:
            here[child] = here.get(child, False) | rows
        out.append(tuple(child for child, rows in ways if rows.any()))
    return out


def _marks(tree: FullTree, taken: list[tuple[int, ...]]) -> list[_Mark]:
    """The nodes that rows come to, and the answers that purchases fall back on, in their order."""
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
    """Where a way out of a decision in state s leads: a decision that sends all rows one way is no node."""
    while child >= 0 and tree.decisions[child].state == s and len(taken[child]) == 1:
        (child,) = taken[child]
    after = tree.decisions[child].state if child >= 0 else -1 - child
    if after != s:
        return _Mark(False, s, ACQUIRE, after)
    return _Mark(False, s, BRANCH, child) if child >= 0 else _Mark(True, s, ANSWER)


def _after(tree: FullTree, taken: list[tuple[int, ...]], mark: _Mark) -> list[_Mark]:
    """A Branch's targets; an Acquire's, the one after a purchase first."""
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
    width: int,
    answering: list[int],
    deciding: list[int],
) -> list[Node]:
    """The marks as nodes; scorers are those of the answering states, then those of the deciding ones."""
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
            nodes.append(Answer(Slice(answering.index(mark.state), 0, width)))
    return nodes
