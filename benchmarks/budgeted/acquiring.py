# SPDX-License-Identifier: Apache-2.0
"""Published ways to acquire features row by row, written anew from their papers, with the models of ``masked``.

AACO (Valancius, Lennon and Oliva, ICML 2024): of a row's nearest training rows, by what has been read of it, which set
of further sensors would answer best? It plans a whole set, reads one sensor of it, and plans again.
GDFS (Covert et al., ICML 2023) reads next what says most about the class, given what was read. Here a network learns
that conditional mutual information for every sensor as the log loss that a reading saves, per cost, as in DIME
(Gadgil, Covert and Lee, ICLR 2024), and learns once more from the sets that its own order meets.

Both spend a budget whole, which loses nothing for a row with a hard one. The sets that they end with are those from
which their last model learns, the best of three kinds.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from benchmarks.budgeted.masked import ALL, FAST, HIDDEN, Answers, Inputs, Rows, Sums, log_losses, random_sets
from benchmarks.budgeted.problem import Problem, Session, Wish

NEIGHBOURS = (5, 20)  # AACO: the paper's number, and a larger one where that is better
PLANS, TRIED, BLOCK = 96, 250, 40  # sets that a plan is chosen from; training rows that choose; rows at a time
SAMPLES = 20_000  # rows with sets from which gains are learned
FINAL = 8_000  # copies of rows from which last models learn
OWN = 0.8  # of these, the share with the row's own set; others have another row's

Choose = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
Read = Callable[[int, np.ndarray], np.ndarray]


class _Acquirer(ABC):
    """Reads sensors one by one, then answers from those it has."""

    def fit(self, problem: Problem) -> None:
        """A model of any set, a policy, and for each wish a model of the sets that the policy ends with."""
        self.costs, self.inputs = problem.costs, Inputs(problem)
        self.rng, self.most = np.random.default_rng(problem.seed), max(w.budget for w in problem.wishes)
        self.rows = Rows(self.inputs, self.inputs(problem.X), problem.y, problem.n_classes, problem.seed)
        self.model: Sums = self.rows.best(FAST, self._random)
        self._learn()
        self.last = {wish: self._last(problem, wish) for wish in problem.wishes}

    def _random(self, at: np.ndarray) -> np.ndarray:
        return random_sets(len(at), self.costs, self.most, self.rng)

    @abstractmethod
    def _learn(self) -> None:
        """What ``_choose`` needs."""

    @abstractmethod
    def _choose(self, X: np.ndarray, is_read: np.ndarray, can: np.ndarray, left: np.ndarray) -> np.ndarray:
        """(n,) the sensor to read next, of those that each row can pay for, (n, n_sensors)."""

    def _walk(self, n: int, budget: float, read: Read) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Inputs and sets at the end, and the sets on the way."""
        X, is_read = np.zeros((n, len(self.inputs.sensor)), np.float32), np.zeros((n, len(self.costs)), bool)
        way = []
        while True:
            left = budget - is_read @ self.costs
            can = ~is_read & (self.costs <= left[:, None] + 1e-9)
            on = np.flatnonzero(can.any(axis=1))
            if not len(on):
                return X, is_read, way
            way.append(is_read.copy())
            chosen = self._choose(X[on], is_read[on], can[on], left[on])
            for s in np.unique(chosen).tolist():
                at = on[chosen == s]
                X[np.ix_(at, self.inputs.own[s])] = self.inputs.of(s, read(s, at))
                is_read[at, s] = True

    def _practise(self, problem: Problem, wish: Wish) -> np.ndarray:
        """The sets of training rows at the end, (n, n_sensors)."""
        return self._walk(len(problem.y), wish.budget, lambda s, at: problem.X[np.ix_(at, self.inputs.own[s])])[1]

    def _last(self, problem: Problem, wish: Wish) -> Answers:
        ends = self._practise(problem, wish)

        def sets(at: np.ndarray) -> np.ndarray:
            return ends[np.where(self.rng.random(len(at)) < OWN, at, self.rng.integers(0, len(ends), len(at)))]

        found: Answers = self.rows.best(ALL, sets, FINAL, by_accuracy=True)
        return found

    def decide(self, session: Session) -> np.ndarray:
        """Walk, then answer."""
        X, is_read, _ = self._walk(session.n, session.wish.budget, session.read)
        return self.last[session.wish].chances(X, is_read).argmax(axis=1)


class Aaco(_Acquirer):
    """Acquisition by the oracle of nearest neighbours."""

    def _learn(self) -> None:
        """Terms of all training rows, and the number of neighbours."""
        self.terms, self.k, self.practised = self.model.terms(self.rows.X), NEIGHBOURS[0], np.empty(0, int)

    def _practise(self, problem: Problem, wish: Wish) -> np.ndarray:
        """Of some training rows, none its own neighbour; the others get sets of these. The better k is kept."""
        at = self.rng.permutation(len(problem.y))[:TRIED]
        self.practised, best = at, (np.inf, 0, np.empty(0))
        for k in NEIGHBOURS:
            self.k = k
            X, ends, _ = self._walk(len(at), wish.budget, lambda s, i: problem.X[np.ix_(at[i], self.inputs.own[s])])
            loss = float(log_losses(self.model.chances(X, ends), problem.y[at]).mean())
            best = min(best, (loss, k, ends), key=lambda b: b[0])
        self.ks = {**getattr(self, "ks", {}), wish: best[1]}
        self.practised = np.empty(0, int)
        out = best[2][self.rng.integers(0, len(at), len(problem.y))]
        out[at] = best[2]
        return np.asarray(out)

    def decide(self, session: Session) -> np.ndarray:
        """With the wish's number of neighbours."""
        self.k = self.ks[session.wish]
        return super().decide(session)

    def _choose(self, X: np.ndarray, is_read: np.ndarray, can: np.ndarray, left: np.ndarray) -> np.ndarray:
        if not is_read.any():  # every training row is as near as any: one plan for all
            near = self.rng.integers(0, len(self.rows.y), (1, 8 * max(NEIGHBOURS)))
            return np.repeat(self._planned(is_read[:1], can[:1], left[:1], near), len(X))
        mask = self.inputs.columns(is_read)
        distances = mask @ (self.rows.X**2).T - 2 * (X * mask) @ self.rows.X.T  # but for what is a row's own
        if len(self.practised) == len(X):
            distances[np.arange(len(X)), self.practised] = np.inf
        near = np.argpartition(distances, self.k, axis=1)[:, : self.k]
        parts = np.split(np.arange(len(X)), range(BLOCK, len(X), BLOCK))
        return np.concatenate([self._planned(is_read[p], can[p], left[p], near[p]) for p in parts])

    def _planned(self, is_read: np.ndarray, can: np.ndarray, left: np.ndarray, near: np.ndarray) -> np.ndarray:
        """Of each row's best plan the sensor without which its neighbours would lose most."""
        order = self.rng.random((PLANS, len(self.costs))).argsort(axis=1)
        price = np.where(can[:, order.T].transpose(0, 2, 1), self.costs[order], 0.0)  # (n, PLANS, n_sensors)
        taken = can[:, order.T].transpose(0, 2, 1) & (np.cumsum(price, axis=2) <= left[:, None, None] + 1e-9)
        plans = np.zeros(taken.shape, dtype=bool)
        np.put_along_axis(plans, np.broadcast_to(order, taken.shape), taken, axis=2)
        every = np.arange(len(near))
        plan = plans[every, self._losses(plans | is_read[:, None], near).argmin(axis=1)]
        without = (plan | is_read)[:, None] & ~np.eye(len(self.costs), dtype=bool)
        return np.where(plan, self._losses(without, near), -np.inf).argmax(axis=1)

    def _losses(self, sets: np.ndarray, near: np.ndarray) -> np.ndarray:
        """(n, n_sets): mean loss of the neighbours (n, k) with each of the sets (n, n_sets, n_sensors)."""
        sums = self.model.base + sets[:, None].astype(np.float32) @ self.terms[near]  # (n, k, n_sets, width)
        p = self.model.finish(sums)
        true = np.take_along_axis(p, self.rows.y[near][:, :, None, None], axis=3)[..., 0]
        return np.asarray(-np.log(np.maximum(true, 1e-4)).mean(axis=1))


class Greedy(_Acquirer):
    """Greedy order by conditional mutual information."""

    def _learn(self) -> None:
        """Two rounds: gains of random sets, then also of those that the first round's order meets."""
        n = len(self.rows.y)
        half = self.rng.permutation(n) % 2
        models = [self.rows.part(np.flatnonzero(half == h)) for h in (0, 1)]
        self._pair = [part.fitted(type(self.model), self._random, SAMPLES) for part in models]
        at = np.resize(np.arange(n), SAMPLES)
        sets = self._random(at)
        self.gain = self._regressed(at, sets, self._gains(at, sets, half))
        way = self._walk(n, self.most, lambda s, i: self._raw(s, i))[2]
        met = np.concatenate(way)
        at, sets = np.concatenate([at, np.resize(np.arange(n), len(met))]), np.concatenate([sets, met])
        keep = self.rng.permutation(len(at))[: 2 * SAMPLES]
        at, sets = at[keep], sets[keep]
        self.gain = self._regressed(at, sets, self._gains(at, sets, half))

    def _raw(self, sensor: int, at: np.ndarray) -> np.ndarray:
        own = self.inputs.own[sensor]
        return np.asarray(self.rows.X[np.ix_(at, own)] * self.inputs.scale[own] + self.inputs.mean[own])

    def _gains(self, at: np.ndarray, sets: np.ndarray, half: np.ndarray) -> np.ndarray:
        """(n, n_sensors): log loss that each sensor saves, by the model of the other half of the rows."""
        out = np.empty(sets.shape, np.float32)
        for h, model in enumerate(self._pair):
            mine = np.flatnonzero(half[at] != h)
            for part in np.array_split(mine, max(1, len(mine) // 500)):
                terms, y = model.terms(self.rows.X[at[part]]), self.rows.y[at[part]]
                now = model.base + np.einsum("ns,nsh->nh", sets[part].astype(np.float32), terms)
                p = model.finish(np.concatenate([now[:, None], now[:, None] + terms], axis=1))
                losses = -np.log(np.maximum(np.take_along_axis(p, y[:, None, None], axis=2)[..., 0], 1e-4))
                out[part] = losses[:, :1] - losses[:, 1:]
        return np.where(sets, 0.0, out)

    def _regressed(self, at: np.ndarray, sets: np.ndarray, gains: np.ndarray) -> MLPRegressor:
        model = MLPRegressor(hidden_layer_sizes=(HIDDEN,), batch_size=256, max_iter=20, learning_rate_init=2e-3,
                             random_state=self.rows.seed)  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(self._both(self.rows.X[at], sets), gains)

    def _both(self, X: np.ndarray, is_read: np.ndarray) -> np.ndarray:
        return np.hstack([X * self.inputs.columns(is_read), is_read.astype(np.float32)])

    def _choose(self, X: np.ndarray, is_read: np.ndarray, can: np.ndarray, left: np.ndarray) -> np.ndarray:
        gain = self.gain.predict(self._both(X, is_read)).reshape(len(X), -1)
        worth = np.where(gain > 0, gain / self.costs, gain * self.costs)
        return np.asarray(np.where(can, worth, -np.inf).argmax(axis=1))


class Cegb:
    """LightGBM's cost-effective boosting: a sensor is paid for once, in units of training loss at some rate.

    For each wish the least rate, found by bisection, at which the budget pays for all sensors of the model.
    """

    rates, steps = (1.0, 3e3), 8

    def fit(self, problem: Problem) -> None:
        """A model for each wish."""
        self.owner = Inputs(problem).sensor
        self.models = {wish: self._within(problem, wish.budget) for wish in problem.wishes}

    def _within(self, problem: Problem, budget: float) -> Any:
        low, high = self.rates
        found = self._boosted(problem, high)
        for _ in range(self.steps):
            rate = float(np.sqrt(low * high))
            model = self._boosted(problem, rate)
            if problem.costs[self._sensors(model)].sum() <= budget + 1e-9:
                high, found = rate, model
            else:
                low = rate
        return found

    def _boosted(self, problem: Problem, rate: float) -> Any:
        from lightgbm import LGBMClassifier

        shares = problem.costs[self.owner] / np.bincount(self.owner)[self.owner]
        return LGBMClassifier(
            n_estimators=50, n_jobs=1, verbose=-1, random_state=problem.seed,
            cegb_tradeoff=rate, cegb_penalty_feature_coupled=shares.tolist(),
        ).fit(problem.X, problem.y)  # fmt: skip

    def _sensors(self, model: Any) -> list[int]:
        return np.unique(self.owner[model.feature_importances_ > 0]).tolist()

    def decide(self, session: Session) -> np.ndarray:
        """From all sensors of the model."""
        model = self.models[session.wish]
        X = np.full((session.n, len(self.owner)), np.nan)
        for s in self._sensors(model):
            X[:, list(session.problem.sensors[s].columns)] = session.read(s)
        return np.asarray(model.predict(X))
