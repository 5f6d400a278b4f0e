# SPDX-License-Identifier: Apache-2.0
"""What a person writes in an hour: a fixed set, a cascade by importances, a router that is told how, staged EBMs."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.budgeted.problem import HARD, Problem, Session, Wish

N_FOLDS = 4
N_TREES = 100
GROWTH = 1.45  # of the sizes of nested sets
N_CUTS = 16  # confidences that are tried as an exit


def forest(seed: int, times: int = 1) -> ExtraTreesClassifier:
    """What the peers learn with; ``times`` as many trees as usual."""
    return ExtraTreesClassifier(times * N_TREES, min_samples_leaf=2, random_state=seed, n_jobs=1)


def filled(X: np.ndarray) -> np.ndarray:
    """Missing readings far below all others."""
    return np.where(np.isnan(X), -1e6, X)


def folds(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Numbers of rows to learn from and to judge."""
    is_small = np.bincount(y).min() < N_FOLDS
    kind = KFold if is_small else StratifiedKFold
    return list(kind(N_FOLDS, shuffle=True, random_state=seed).split(y, y))


def out_of_fold(make: Callable[[], Any], X: np.ndarray, y: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """Chances (n, n_classes) that models which have not seen a row give its classes."""
    out = np.zeros((len(y), n_classes))
    for learn, judge in folds(y, seed):
        model = make().fit(X[learn], y[learn])
        out[np.ix_(judge, model.classes_)] = model.predict_proba(X[judge])
    return out


def chances(model: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """Of all classes, also of those that a model has not seen."""
    out = np.zeros((len(X), n_classes))
    out[:, model.classes_] = model.predict_proba(X)
    return out


def nested(problem: Problem) -> list[list[int]]:
    """Sets of sensors that grow: the next best ones by a forest's importance for their cost."""
    model = forest(problem.seed, 2).fit(filled(problem.X), problem.y)
    worth = [model.feature_importances_[list(s.columns)].sum() / max(s.cost, 1e-9) for s in problem.sensors]
    order = np.argsort(worth)[::-1].tolist()
    sizes, size = list[int](), 1.0
    while round(size) < len(order):
        sizes.append(round(size))
        size = max(size * GROWTH, size + 1)
    return [order[:k] for k in [*sizes, len(order)]]


@dataclass
class _Stages:
    """Models of nested sets: their sensors, costs, and chances out of fold."""

    sets: list[list[int]]
    costs: np.ndarray
    judged: list[np.ndarray]
    models: list[Any]


def stages_of(problem: Problem, learner: Callable[[int], Any]) -> _Stages:
    """A model for each nested set."""
    sets = nested(problem)
    costs = np.array([problem.costs[s].sum() for s in sets])
    judged, models = [], []
    for s in sets:
        X = filled(problem.X[:, problem.columns(s)])
        judged.append(out_of_fold(lambda: learner(problem.seed), X, problem.y, problem.n_classes, problem.seed))
        models.append(learner(problem.seed).fit(X, problem.y))
    return _Stages(sets, costs, judged, models)


class CascadeByHand:
    """One to three nested sets; a row leaves where the largest chance reaches the stage's cut.

    All pairs and triples of sets are tried, with cuts at quantiles; what is most often right out of fold within the
    budget is kept. A hard budget takes the best single set that it pays, because a row may not go on beyond it.
    """

    @staticmethod
    def learner(seed: int) -> Any:
        """A forest."""
        return forest(seed)

    def fit(self, problem: Problem) -> None:
        """Models, then a plan for each wish."""
        self.stages = stages_of(problem, self.learner)
        self.plans = {wish: self._plan(problem, wish) for wish in problem.wishes}

    def _plan(self, problem: Problem, wish: Wish) -> tuple[list[int], list[float]]:
        """Numbers of the stages, and the cut of each but the last."""
        judged, costs = self.stages.judged, self.stages.costs
        right = [(p.argmax(axis=1) == problem.y).astype(float) for p in judged]
        sure = [p.max(axis=1) for p in judged]
        best = (-1.0, 0.0, [int(np.argmin(costs))], list[float]())
        for k, c in enumerate(costs):
            if c <= wish.budget + 1e-9:
                best = max(best, (right[k].mean(), -c, [k], []), key=lambda b: b[:2])
        if wish.kind == HARD:
            return best[2], best[3]
        cuts = [np.unique(np.quantile(s, np.linspace(0, 1, N_CUTS + 1)[1:])) for s in sure]
        for a, b in combinations(range(len(costs)), 2):
            if costs[a] > wish.budget:
                break
            for t in cuts[a]:
                on = sure[a] < t
                cost, quality = costs[a] + on.mean() * (costs[b] - costs[a]), np.where(on, right[b], right[a]).mean()
                if cost <= wish.budget:
                    best = max(best, (quality, -cost, [a, b], [t]), key=lambda x: x[:2])
                for c in (
                    range(b + 1, len(costs)) if costs[a] + on.mean() * (costs[b] - costs[a]) <= wish.budget else ()
                ):
                    for u in cuts[b][::2]:
                        further = on & (sure[b] < u)
                        whole = cost + further.mean() * (costs[c] - costs[b])
                        if whole <= wish.budget:
                            gained = quality + (further * (right[c] - right[b])).mean()
                            best = max(best, (gained, -whole, [a, b, c], [t, u]), key=lambda x: x[:2])
        return best[2], best[3]

    def decide(self, session: Session) -> np.ndarray:
        """Stage by stage."""
        numbers, cuts = self.plans[session.wish]
        answer, at = np.zeros(session.n, dtype=np.int64), np.arange(session.n)
        for k, cut in zip(numbers, [*cuts, -np.inf], strict=True):
            X = filled(np.hstack([session.read(s, at) for s in self.stages.sets[k]]))
            p = chances(self.stages.models[k], X, session.problem.n_classes)
            answer[at] = p.argmax(axis=1)
            at = at[p.max(axis=1) < cut]
            if not len(at):
                break
        return answer


class StaticSet(CascadeByHand):
    """The best of the nested sets that the budget pays for every row."""

    def _plan(self, problem: Problem, wish: Wish) -> tuple[list[int], list[float]]:
        return super()._plan(problem, Wish(wish.budget, HARD))


class Votes:
    """Three models of different kinds, each with one vote; a class's chance is its share of them, or almost.

    Ties are broken by the mean of the models' own chances.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> Votes:
        """Extra trees, nearest neighbours and a logistic regression."""
        self.classes_ = np.unique(y)
        scaled = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        near = make_pipeline(StandardScaler(), KNeighborsClassifier(15))
        kinds = (forest(self.seed), near, scaled) if len(self.classes_) > 1 else (forest(self.seed),)
        self.models = [kind.fit(np.maximum(X, -10) if k else X, y) for k, kind in enumerate(kinds)]
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """(n, n_classes)."""
        each = np.stack([m.predict_proba(np.maximum(X, -10) if k else X) for k, m in enumerate(self.models)])
        votes = (each.argmax(axis=2)[..., None] == np.arange(each.shape[2])).mean(axis=0)
        return np.asarray(0.9 * votes + 0.1 * each.mean(axis=0))


class Agreement(CascadeByHand):
    """Agreement-based cascading: a row leaves a stage where its models agree; written anew from the paper's abstract.

    Stages are the nested sets of the cascade by hand, and cuts are tried as there.
    """

    @staticmethod
    def learner(seed: int) -> Any:
        """A committee."""
        return Votes(seed)


class AllSensors:
    """A forest on every sensor, whatever that costs; its accuracy is what losses are counted from."""

    def fit(self, problem: Problem) -> None:
        """One forest."""
        self.model = forest(problem.seed, 3).fit(filled(problem.X), problem.y)

    def decide(self, session: Session) -> np.ndarray:
        """Buys all."""
        X = np.empty((session.n, self.model.n_features_in_))
        for s, sensor in enumerate(session.problem.sensors):
            X[:, list(sensor.columns)] = session.read(s)
        return np.asarray(self.model.predict(filled(X)))


def ebm(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """The package interpret's own explainable boosting machine, of single columns, on one thread."""
    from interpret.glassbox import ExplainableBoostingClassifier

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Missing values detected")
        return ExplainableBoostingClassifier(interactions=0, n_jobs=1, random_state=seed).fit(X, y)


class Ebm:
    """An explainable boosting machine on every sensor, without interactions, which take it minutes for many classes."""

    def fit(self, problem: Problem) -> None:
        """One machine."""
        self.model = ebm(problem.X, problem.y, problem.seed)

    def decide(self, session: Session) -> np.ndarray:
        """Buys all."""
        X = np.empty((session.n, self.model.n_features_in_))
        for s, sensor in enumerate(session.problem.sensors):
            X[:, list(sensor.columns)] = session.read(s)
        return np.asarray(self.model.predict(X))


class StagedEbm:
    """A machine whose terms are bought sensor by sensor, the weightiest for their cost first.

    A term that was not bought counts 0, the mean of every term. A row leaves where the two largest sums of its terms
    are a cut apart, or after the most sensors of the wish; both are what is most often right within the budget on a
    fourth of the rows, which the machine has not learned from. A hard budget has no cut.
    """

    def fit(self, problem: Problem) -> None:
        """A machine of three quarters of the rows, and plans on the others; one of all rows has other sums."""
        learn, judge = folds(problem.y, problem.seed)[0]
        self.model = ebm(problem.X[learn], problem.y[learn], problem.seed)
        own = [f for (f,) in self.model.term_features_]
        self.mine = [np.isin(own, s.columns) for s in problem.sensors]
        weights, costs = np.asarray(self.model.term_importances()), np.maximum(problem.costs, 1e-9)
        self.order = np.argsort([-weights[m].sum() / c for m, c in zip(self.mine, costs, strict=True)]).tolist()
        sums = np.cumsum([self._terms(s, problem.X[judge]) for s in self.order], axis=0) + _base(self.model)
        right, sure = self.model.classes_[sums.argmax(axis=2)] == problem.y[judge], _lead(sums)
        self.plans = {wish: self._plan(problem, wish, right, sure) for wish in problem.wishes}

    def _terms(self, sensor: int, X: np.ndarray) -> np.ndarray:
        """(n, n_classes), what the sensor's terms add; other columns of X are not used."""
        return _wide(self.model.eval_terms(X)[:, self.mine[sensor]].sum(axis=1))

    def _plan(self, problem: Problem, wish: Wish, right: np.ndarray, sure: np.ndarray) -> tuple[int, float]:
        """The number of stages and the cut; ``right`` and ``sure`` are (n_stages, n)."""
        costs, best = np.cumsum(problem.costs[self.order]), (-1.0, 0.0, 1, -np.inf)
        for most in range(1, len(costs) + 1):
            cuts = (
                np.quantile(sure[: most - 1], np.linspace(0, 1, 4 * N_CUTS)) if most > 1 and wish.kind != HARD else ()
            )
            for cut in (*cuts, np.inf):
                is_out = np.vstack([sure[: most - 1] >= cut, np.ones((1, sure.shape[1]), dtype=bool)]).argmax(axis=0)
                cost, quality = costs[is_out].mean(), right[is_out, np.arange(len(is_out))].mean()
                if cost <= wish.budget + 1e-9:
                    best = max(best, (quality, -cost, most, cut))
        return best[2], best[3]

    def decide(self, session: Session) -> np.ndarray:
        """Sensor by sensor."""
        (most, cut), problem, at = self.plans[session.wish], session.problem, np.arange(session.n)
        X = np.full((session.n, self.model.n_features_in_), np.nan)
        sums = np.tile(_base(self.model), (session.n, 1))
        for sensor in self.order[:most]:
            X[np.ix_(at, problem.sensors[sensor].columns)] = session.read(sensor, at)
            sums[at] += self._terms(sensor, X[at])
            at = at[_lead(sums[at]) < cut]
            if not len(at):
                break
        return np.asarray(self.model.classes_[sums.argmax(axis=1)])


def _wide(scores: np.ndarray) -> np.ndarray:
    """Of two classes, whose machine has one sum, that of the first class is 0."""
    return np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores


def _base(model: Any) -> np.ndarray:
    return _wide(np.asarray(model.intercept_) if len(model.classes_) == 2 else np.asarray(model.intercept_)[None])[0]


def _lead(sums: np.ndarray) -> np.ndarray:
    """By how much the largest is ahead of the second."""
    ordered = np.sort(sums, axis=-1)
    return np.asarray(ordered[..., -1] - ordered[..., -2])


class RouterByHand:
    """For CUBE-NM alone: it is told that the first sensor says which block of ten sensors to read.

    Its models: Gaussian naive Bayes or a forest, whichever is more often right out of fold, for each block and each
    number of sensors of it that have been read, in fixed order. A row leaves where the largest chance reaches a cut,
    the one that the budget pays out of fold; with a hard budget, where that is spent.
    """

    n_block = 10

    def fit(self, problem: Problem) -> None:
        """The better kind of model, models of every block and prefix of it, and a cut for each wish."""
        kinds: tuple[Callable[[], Any], ...] = (GaussianNB, lambda: forest(problem.seed))
        self.kind = max(kinds, key=lambda make: self._learn(problem, make, (self.n_block,)))
        self._learn(problem, self.kind, range(1, self.n_block + 1))
        self.cuts = {wish: self._cut(wish) for wish in problem.wishes}

    def _learn(self, problem: Problem, make: Callable[[], Any], prefixes: Sequence[int]) -> float:
        """Accuracy out of fold with the whole block; ``sure`` and ``right`` are (n, n_block)."""
        block = problem.X[:, : len(problem.sensors[0].columns)].argmax(axis=1)
        self.models: dict[tuple[int, int], Any] = {}
        self.sure, self.right = (np.zeros((len(block), self.n_block)) for _ in range(2))
        for b in np.unique(block).tolist():
            at = np.flatnonzero(block == b)
            for k in prefixes:
                X = problem.X[np.ix_(at, problem.columns(self._sensors(b)[:k]))]
                p = out_of_fold(make, X, problem.y[at], problem.n_classes, problem.seed)
                self.sure[at, k - 1], self.right[at, k - 1] = p.max(axis=1), p.argmax(axis=1) == problem.y[at]
                self.models[b, k] = make().fit(X, problem.y[at])
        return float(self.right[:, -1].mean())

    def _sensors(self, block: int) -> Sequence[int]:
        return range(1 + block * self.n_block, 1 + (block + 1) * self.n_block)

    def _cut(self, wish: Wish) -> float:
        """The largest one whose mean cost is within the budget; costs rise with the cut. A hard budget needs none."""
        if wish.kind == HARD:
            return np.inf
        cuts = np.unique(self.sure)
        return float(cuts[max(0, bisect_right(cuts, wish.budget, key=self._cost) - 1)])

    def _cost(self, cut: float) -> float:
        is_over = self.sure[:, :-1] >= cut
        return 1 + float(np.where(is_over.any(axis=1), is_over.argmax(axis=1) + 1, self.n_block).mean())

    def decide(self, session: Session) -> np.ndarray:
        """The context, then its block until the answer is sure."""
        cut, block = self.cuts[session.wish], session.read(0).argmax(axis=1)
        most = int(session.wish.budget) - 1 if session.wish.kind == HARD else self.n_block
        answer = np.zeros(session.n, dtype=np.int64)
        for b in np.unique(block).tolist():
            at = np.flatnonzero(block == b)
            X = np.empty((len(at), 0))
            for k, sensor in enumerate(self._sensors(b)[:most], 1):
                X = np.hstack([X, session.read(sensor, at)])
                p = chances(self.models[b, k], X, session.problem.n_classes)
                answer[at] = p.argmax(axis=1)
                on = p.max(axis=1) < cut
                at, X = at[on], X[on]
                if not len(at):
                    break
        return answer
