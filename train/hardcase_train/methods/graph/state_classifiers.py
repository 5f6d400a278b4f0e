"""The classifier bank: what a DAG answers with when it stops in a state, and what each state's classifier says of rows
that it has not seen.

Four kinds. ``polynomial``: a multinomial logistic regression on the state's terms, begun where that of a smaller
state ended. ``trees``: boosted trees of the state's features. ``forest``: trees of splits drawn at random.
``shared``: one polynomial for all states, trained on rows of which some sensors have been hidden (the paper's
missing-feature classifier); a state has the part of it whose readings it has, because what runs reads nothing that
may not have been bought. Losses of stopping come from copies that have not seen the row: a policy that is trained on
a model's own rows believes that nothing is hard. docs/math.md (64).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from hardcase_edge.batch.choices import margins_of

from ...data.problem import N_FOLDS
from ...linear.logistic import Design, logistic
from ...policy.error_model import chance_wrong, cloud_chance, met_margins
from ...policy.losses import class_outputs
from ...policy.selection import Trained
from ...trees.boosting import ensemble_scores
from ...trees.subset_classifier import FOREST, TREES, Learner, make_learner
from .state_rows import DagRows

__all__ = ["KINDS", "Classifier", "cloud_losses", "make_bank", "stop_losses"]

KINDS = ("polynomial", TREES, FOREST, "shared")
SHARED_RIDGE = 3.0
N_HIDDEN = 4  # times that a row is shown to the shared classifier, each time as another state sees it


@dataclass(frozen=True)
class Classifier:
    """A state's classifier with its scores on judged rows; ``unseen`` (n_train, n_outputs), by copies."""

    trained: Trained
    unseen: np.ndarray

    @property
    def label(self) -> np.ndarray:
        """What it says of training rows that it has not seen, (n_train,) class index."""
        s = self.unseen
        return (s[:, 0] > 0).astype(np.int64) if s.shape[1] == 1 else s.argmax(axis=1)

    @property
    def margin(self) -> np.ndarray:
        """How clearly, (n_train,)."""
        return margins_of(self.unseen)


def make_bank(rows: DagRows, kind: str, n_jobs: int = 1) -> list[Classifier]:
    """A classifier per state of the graph."""
    if kind in (TREES, FOREST):
        learner, every = make_learner(rows.problem, kind), range(len(rows.graph.states))
        jobs = (delayed(_trees)(rows, s, learner) for s in reversed(every))
        return list(Parallel(n_jobs=n_jobs, prefer="threads")(jobs))[::-1]
    rows.prepare(needs_terms=True, needs_bins=False)
    return _shared(rows) if kind == "shared" else _polynomials(rows, n_jobs)


def stop_losses(rows: DagRows, bank: Sequence[Classifier], is_counted: bool = False) -> np.ndarray:
    """What it loses to stop in each state, (n_train, n_states): the chance that a row of such margins is wrong there.

    Margins are those of the state and of smaller ones (``chances.met_margins``). ``is_counted``: 1 where the answer is
    wrong, else 0, as in the paper's (5). The mean is the same; a row's own luck is not in the chance.
    """
    y = rows.problem.train.y
    out = np.empty((len(y), len(bank)))
    for s, one in enumerate(bank):
        right = one.label == y
        met = met_margins([bank[t].margin for t in rows.graph.below(s)], int((~right).sum()))
        out[:, s] = ~right if is_counted else chance_wrong(one.margin, met, right, rows.weight)
    return out


def cloud_losses(rows: DagRows, bank: Sequence[Classifier], is_counted: bool = False) -> np.ndarray:
    """The same of asking f0 from each state, (n_train, n_states)."""
    train = rows.problem.train
    wrong = train.hpc_label != train.y
    if is_counted:
        return np.repeat(wrong[:, None].astype(np.float64), len(bank), axis=1)
    known = [[t for t in (*rows.graph.below(s), s) if rows.graph.states[t]] for s in range(len(bank))]
    met = [met_margins([bank[t].margin for t in states], int(wrong.sum())) for states in known]
    return np.column_stack([cloud_chance(train.hpc, train.y, train.weight, m) for m in met])


# ---------------------------------------------------------------- polynomials


def _polynomials(rows: DagRows, n_jobs: int) -> list[Classifier]:
    """Small states first, each a start for those around it."""
    states = rows.graph.states
    ridge = _ridge(rows)
    coefs: dict[int, np.ndarray] = {}
    out: dict[int, Classifier] = {}
    sizes = sorted({len(s) for s in states})
    for size in sizes:
        now = [s for s in range(len(states)) if len(states[s]) == size]
        done = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(_polynomial)(rows, s, ridge, coefs) for s in now)
        for s, (coef, made) in zip(now, done, strict=True):
            coefs[s], out[s] = coef, made
    return [out[s] for s in range(len(states))]


def _polynomial(rows: DagRows, s: int, ridge: float, coefs: dict[int, np.ndarray]) -> tuple[np.ndarray, Classifier]:
    mine, y = rows.mine(s), rows.problem.train.y
    k = class_outputs(rows.problem.n_classes)
    start = np.zeros((len(rows.seen), k, len(mine)))
    below = [t for t in coefs if set(rows.graph.states[t]) < set(rows.graph.states[s])]
    if below:
        best = max(below, key=lambda t: coefs[t].shape[2])
        start[:, :, np.searchsorted(mine, rows.mine(best))] = coefs[best]
    label = np.broadcast_to(y, rows.seen.shape)
    design = rows.design.part(mine)
    coef = logistic(design, label, rows.seen * rows.weight, k, ridge, start)
    return coef, _judged(rows, mine, coef, design.values)


def _judged(rows: DagRows, mine: np.ndarray, coef: np.ndarray, values: np.ndarray) -> Classifier:
    unseen = rows.own(_scores(coef, values))
    valid = (coef[0] @ rows.valid_values[mine]).T
    return Classifier(rows.trained(rows.polynomial(mine, coef[0]), unseen, valid), unseen)


def _scores(coef: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n_models, n_outputs, n) float32."""
    return (coef.reshape(-1, coef.shape[2]).astype(np.float32) @ values).reshape(*coef.shape[:2], -1)


def _ridge(rows: DagRows) -> float:
    """By the log loss of the state that sees most, on rows that it has not seen."""
    y, last = rows.problem.train.y, len(rows.graph.states) - 1
    mine, k = rows.mine(last), class_outputs(rows.problem.n_classes)
    design = rows.design.part(mine)
    label = np.broadcast_to(y, rows.seen[1:].shape)
    losses = []
    ridges = rows.problem.effort.ridges  # the best for the last state serves all
    for ridge in ridges:
        coef = logistic(design, label, rows.seen[1:] * rows.weight, k, ridge / len(y))
        scores = rows.own(np.concatenate([np.zeros((1, k, len(y)), np.float32), _scores(coef, design.values)]))
        losses.append(np.average(_log_loss(scores, y), weights=rows.weight))
    return ridges[int(np.argmin(losses))] / len(y)


def _log_loss(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    s = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
    return np.asarray(np.logaddexp.reduce(s, axis=1) - s[np.arange(len(y)), y])


def _shared(rows: DagRows) -> list[Classifier]:
    """One polynomial; a state takes the part of it that its readings give, and missing readings count as the mean."""
    states, n = rows.graph.states, len(rows.problem.train.y)
    rng = np.random.default_rng(rows.problem.seed)
    has = np.zeros((len(states), len(rows.terms.factors)), dtype=bool)
    for s in range(len(states)):
        has[s, rows.mine(s)] = True
    shown = rng.integers(len(states), size=(N_HIDDEN, n))
    values = np.hstack([rows.design.values * has[state].T for state in shown])
    weight = np.tile(rows.seen * rows.weight, N_HIDDEN)
    design = Design(values, values @ values.T / values.shape[1])
    label = np.broadcast_to(np.tile(rows.problem.train.y, N_HIDDEN), weight.shape)
    coef = logistic(design, label, weight, class_outputs(rows.problem.n_classes), SHARED_RIDGE / n)
    parts: list[Any] = [np.flatnonzero(here) for here in has]
    return [_judged(rows, mine, coef[:, :, mine], rows.design.values[mine]) for mine in parts]


# ---------------------------------------------------------------- trees


def _trees(rows: DagRows, s: int, learner: Learner) -> Classifier:
    p, state, codes = rows.problem, rows.graph.states[s], learner.codes
    whole = learner.fit(state, np.arange(len(p.train.y)))
    unseen = np.empty((len(p.train.y), class_outputs(p.n_classes)))
    for k in range(N_FOLDS):
        out = rows.fold == k
        copy = learner.fit(state, np.flatnonzero(~out))
        unseen[out] = ensemble_scores(copy, codes[copy.features][:, out])
    return Classifier(rows.trained(whole, unseen, ensemble_scores(whole, learner.valid[whole.features])), unseen)
