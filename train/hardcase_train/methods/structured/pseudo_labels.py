# SPDX-License-Identifier: Apache-2.0
"""Pseudo-labels: which parts of a training item should have bought costly features, and how much that matters.

A state is (n,) booleans. ``losses`` gives the wrong parts of one item in each of m states (m, n), by decoding it. The
modified loss is C(S) = losses(S) + price * (parts bought), docs/math.md section 18. Of equal states the one with fewer
parts wins, and then the one whose earlier parts are bought.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Losses = Callable[[np.ndarray], np.ndarray]
MOST_EXHAUSTIVE = 12  # parts: 4,096 states


@dataclass(frozen=True)
class PseudoLabel:
    """The state, its modified loss, and its importance: the most that a state looked at loses more."""

    state: np.ndarray
    loss: float
    weight: float


def exhaustive(losses: Losses, n: int, price: float) -> PseudoLabel:
    """The best of all 2^n states.

    Raises
    ------
    ValueError
        The item has more than ``MOST_EXHAUSTIVE`` parts.
    """
    if n > MOST_EXHAUSTIVE:
        raise ValueError(f"{n} parts have 2^{n} states; up to {MOST_EXHAUSTIVE} are searched, use trajectory")
    states = (np.arange(1 << n)[:, None] >> np.arange(n)[None, ::-1] & 1).astype(bool)
    return _best(states, losses(states), price)


def trajectory(losses: Losses, n: int, price: float) -> PseudoLabel:
    """The best state on the greedy way from none to all, one part at a time."""
    state = np.zeros(n, dtype=bool)
    ends = np.vstack([state, ~state])
    states, values = [ends], [losses(ends)]
    way, way_values = [ends[0]], [values[0][0]]
    while not state.all() and values[0][0] > 0:  # nothing is better than no wrong part at no cost
        steps = _steps(state)
        step_losses = losses(steps)
        best = int(np.argmin(step_losses))
        state = steps[best]
        states.append(steps)
        values.append(step_losses)
        way.append(state)
        way_values.append(step_losses[best])
    chosen = _best(np.array(way), np.array(way_values), price)
    worst = float(np.max(_modified(np.vstack(states), np.concatenate(values), price)))
    return PseudoLabel(chosen.state, chosen.loss, worst - chosen.loss)


def helping_steps(losses: Losses, n: int, price: float, least_gain: float = 0.0) -> PseudoLabel:
    """The union of the single steps from none that lower the modified loss by ``least_gain`` at least, and at all."""
    none = np.zeros(n, dtype=bool)
    states = np.vstack([none, ~none, _steps(none)])
    modified = _modified(states, losses(states), price)
    gains = modified[0] - modified[2:]
    return _weighted((gains > 0) & (gains >= least_gain), states, modified, losses, price)


def wrong_parts(losses: Losses, is_wrong: np.ndarray, price: float) -> PseudoLabel:
    """The parts that are wrong without costly features: what helping steps are if features never hurt."""
    none = np.zeros(len(is_wrong), dtype=bool)
    states = np.vstack([none, ~none])
    return _weighted(is_wrong.astype(bool), states, _modified(states, losses(states), price), losses, price)


def _weighted(state: np.ndarray, seen: np.ndarray, modified: np.ndarray, losses: Losses, price: float) -> PseudoLabel:
    """A state that was not chosen by its own loss; its weight is 0 if it is the worst one seen."""
    own = float(_modified(state[None], losses(state[None]), price)[0])
    return PseudoLabel(state, own, max(0.0, float(modified.max()) - own))


def _steps(state: np.ndarray) -> np.ndarray:
    """(m, n) the states with one part more, in the order of parts."""
    parts = np.flatnonzero(~state)
    steps = np.repeat(state[None], len(parts), axis=0)
    steps[np.arange(len(parts)), parts] = True
    return steps


def _modified(states: np.ndarray, losses: np.ndarray, price: float) -> np.ndarray:
    return np.asarray(losses + price * states.sum(axis=1), dtype=np.float64)


def _best(states: np.ndarray, losses: np.ndarray, price: float) -> PseudoLabel:
    modified = _modified(states, losses, price)
    bought = states.sum(axis=1)
    tied = np.flatnonzero(modified <= modified.min() + 1e-12)
    best = max(tied, key=lambda s: (-bought[s], tuple(states[s])))
    return PseudoLabel(states[best], float(modified[best]), float(modified.max() - modified[best]))
