# SPDX-License-Identifier: Apache-2.0
"""The classifier bank of a graph: a classifier per state, with out-of-fold scores of the training rows.

There are four kinds. ``polynomial``: a multinomial logistic regression on the state's terms, warm-started from that of
a smaller state; of values, a ridge regression. ``trees``: boosted trees on the state's features. ``forest``: trees with
randomised splits. ``shared``: one polynomial for all states, trained on rows with some sensors hidden (the paper's
missing-feature classifier); a state uses the part of it whose readings it has, because a program may not read what was
not bought. Losses of stopping come from copies that were not trained on the row: judged by a model on its own training
rows, no row would look hard. docs/math.md (64).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from ...linear.logistic import Design, logistic, ridge_regression
from ...policy.kinds import Learned, answer_loss, learned
from ...policy.losses import SquaredLoss
from ...policy.selection import Trained
from ...trees.boosting import ensemble_scores
from ...trees.subset_classifier import EBM, FOREST, TREES, Learner, cross_fitted, is_trees, make_learner
from .state_rows import DagRows

KINDS = ("polynomial", TREES, FOREST, EBM, "shared")
SHARED_RIDGE = 3.0
N_HIDDEN = 4  # copies of each row for the shared classifier, each with the readings of a random state


@dataclass(frozen=True)
class Classifier:
    """A state's classifier and its scores on judged rows; ``unseen``: (n_train, n_outputs), out-of-fold scores."""

    trained: Trained
    unseen: np.ndarray
    kind: Learned

    @property
    def answers(self) -> np.ndarray:
        """Out-of-fold answers to the training rows, (n_train,)."""
        return self.kind.results(self.unseen)

    @property
    def margin(self) -> np.ndarray:
        """Out-of-fold margins of the training rows, (n_train,)."""
        return self.kind.margins(self.unseen)


def make_bank(rows: DagRows, kind: str, n_jobs: int = 1) -> list[Classifier]:
    """A classifier per state of the graph."""
    if is_trees(kind):
        learner, every = make_learner(rows.problem, kind), range(len(rows.graph.states))
        jobs = (delayed(_trees)(rows, s, learner) for s in reversed(every))
        return list(Parallel(n_jobs=n_jobs, prefer="threads")(jobs))[::-1]
    rows.prepare(needs_terms=True, needs_bins=False)
    return _shared(rows) if kind == "shared" else _polynomials(rows, n_jobs)


def stop_losses(rows: DagRows, bank: Sequence[Classifier], is_counted: bool = False) -> np.ndarray:
    """Loss of stopping in each state, (n_train, n_states): the expected loss of its answer, given the margins.

    Margins are those of the state and of smaller ones (``error_model.met_margins``). ``is_counted``: instead the
    loss itself, 1 for a wrong answer, else 0, as in the paper's (5). The mean is the same, the expectation varies less.
    Values have no margins, so their squared errors are counted.
    """
    y, kind = rows.problem.train.y, learned(rows.problem)
    out = np.empty((len(y), len(bank)))
    for s, one in enumerate(bank):
        if is_counted or not kind.has_margins:
            out[:, s] = kind.row_losses(one.answers, y)
        else:
            met = [bank[t].margin for t in rows.graph.below(s)]
            out[:, s] = kind.expected(one.margin, None, met, one.answers, y, rows.weight)
    return out


def cloud_losses(rows: DagRows, bank: Sequence[Classifier], is_counted: bool = False) -> np.ndarray:
    """Loss of forwarding from each state, (n_train, n_states), estimated as in ``stop_losses``."""
    train, kind = rows.problem.train, learned(rows.problem)
    if is_counted or not kind.has_margins:
        return np.repeat(kind.row_losses(train.hpc_label, train.y)[:, None], len(bank), axis=1)
    visited = [[t for t in (*rows.graph.below(s), s) if rows.graph.states[t]] for s in range(len(bank))]
    met = [[bank[t].margin for t in states] for states in visited]
    return np.column_stack([kind.cloud(train.stakes, m, train.y, train.weight) for m in met])


# ---------------------------------------------------------------- polynomials


def _polynomials(rows: DagRows, n_jobs: int) -> list[Classifier]:
    """Train from small to large states; smaller states are warm starts of larger ones."""
    states = rows.graph.states
    ridge = _ridge(rows)
    coefs: dict[int, np.ndarray] = {}
    classifiers: dict[int, Classifier] = {}
    sizes = sorted({len(s) for s in states})
    for size in sizes:
        of_size = [s for s in range(len(states)) if len(states[s]) == size]
        jobs = (delayed(_polynomial)(rows, s, ridge, coefs) for s in of_size)
        for s, (coef, classifier) in zip(of_size, Parallel(n_jobs=n_jobs, prefer="threads")(jobs), strict=True):
            coefs[s], classifiers[s] = coef, classifier
    return [classifiers[s] for s in range(len(states))]


def _polynomial(rows: DagRows, s: int, ridge: float, coefs: dict[int, np.ndarray]) -> tuple[np.ndarray, Classifier]:
    columns = rows.mine(s)
    start = np.zeros((len(rows.seen), rows.problem.n_outputs, len(columns)))
    below = [t for t in coefs if set(rows.graph.states[t]) < set(rows.graph.states[s])]
    if below:
        best = max(below, key=lambda t: coefs[t].shape[2])
        start[:, :, np.searchsorted(columns, rows.mine(best))] = coefs[best]
    design = rows.design.part(columns)
    coef = _fitted(rows, design, rows.problem.train.y, rows.seen * rows.weight, ridge, start)
    return coef, _judged(rows, columns, coef, design.values)


def _fitted(
    rows: DagRows, design: Design, y: np.ndarray, weight: np.ndarray, ridge: float, start: np.ndarray | None = None
) -> np.ndarray:
    """Coefficients of the models of these rows, (n_models, n_outputs, n_terms); ``weight`` (n_models, n)."""
    p = rows.problem
    if isinstance(answer_loss(p), SquaredLoss):
        return ridge_regression(design.values, y, weight, ridge)[:, None]
    label = np.broadcast_to(y, weight.shape)
    return logistic(design, label, weight, p.n_outputs, ridge, start, targets=p.targets)


def _judged(rows: DagRows, columns: np.ndarray, coef: np.ndarray, values: np.ndarray) -> Classifier:
    unseen = rows.own(_scores(coef, values))
    valid = (coef[0] @ rows.valid_values[columns]).T
    return Classifier(rows.trained(rows.polynomial(columns, coef[0]), unseen, valid), unseen, learned(rows.problem))


def _scores(coef: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n_models, n_outputs, n) float32."""
    scores: np.ndarray = coef.reshape(-1, coef.shape[2]).astype(np.float32) @ values
    return scores.reshape(*coef.shape[:2], -1)


def _ridge(rows: DagRows) -> float:
    """The ridge penalty with the least out-of-fold loss in the state of all sensors."""
    y, last = rows.problem.train.y, len(rows.graph.states) - 1
    design = rows.design.part(rows.mine(last))
    losses = []
    ridges = rows.problem.effort.ridges  # the best for the last state serves all
    for ridge in ridges:
        coef = _fitted(rows, design, y, rows.seen[1:] * rows.weight, ridge / len(y))
        nobody = np.zeros((1, rows.problem.n_outputs, len(y)), np.float32)
        scores = rows.own(np.concatenate([nobody, _scores(coef, design.values)]))
        losses.append(np.average(answer_loss(rows.problem).row_loss(scores), weights=rows.weight))
    return ridges[int(np.argmin(losses))] / len(y)


def _shared(rows: DagRows) -> list[Classifier]:
    """One polynomial; a state uses the terms of its own readings, and other readings count as the mean."""
    states, n = rows.graph.states, len(rows.problem.train.y)
    rng = np.random.default_rng(rows.problem.seed)
    has = np.zeros((len(states), len(rows.terms.factors)), dtype=bool)
    for s in range(len(states)):
        has[s, rows.mine(s)] = True
    shown = rng.integers(len(states), size=(N_HIDDEN, n))
    values = np.hstack([rows.design.values * has[state].T for state in shown])
    weight = np.tile(rows.seen * rows.weight, N_HIDDEN)
    design = Design(values, values @ values.T / values.shape[1])
    coef = _fitted(rows, design, np.tile(rows.problem.train.y, N_HIDDEN), weight, SHARED_RIDGE / n)
    parts: list[Any] = [np.flatnonzero(terms) for terms in has]
    return [_judged(rows, columns, coef[:, :, columns], rows.design.values[columns]) for columns in parts]


# ---------------------------------------------------------------- trees


def _trees(rows: DagRows, s: int, learner: Learner) -> Classifier:
    p, state = rows.problem, rows.graph.states[s]
    whole = learner.fit(state, np.arange(len(p.train.y)))
    unseen, copies = cross_fitted(learner, state, rows.fold)
    trained = rows.trained(whole, unseen, ensemble_scores(whole, learner.valid[whole.features]))
    if rows.judge.is_crossed:
        trained = rows.judge.as_sure(trained, copies)
        unseen = trained.scores[: len(unseen)]
    return Classifier(trained, unseen, learned(p))
