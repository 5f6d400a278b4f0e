# SPDX-License-Identifier: Apache-2.0
"""Effort levels: how many settings a search tries, from a quick look to the last tenth of a per cent.

This module has every constant that decides how long training takes, with its unit and its reason. The size of a model
on the device is not effort; ``trees.size`` decides it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardcase_edge.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much every method tries; the defaults are those of "normal".

    An effort says how many prices and gammas are tried. Each method states the bounds between which they lie, in
    errors (or loss) per unit of the problem's cost (``policy.prices``).

    >>> Effort(name="short", max_stages=4).max_stages
    4
    >>> effort_of("[policy]", "quick") is QUICK
    True
    """

    name: str
    tree_share: float = 1.0  # share of the boosted trees that the model's size allows
    forest_trees: int = 64  # per forest; votes of fewer trees are coarser
    max_stages: int = 12  # per chain of nested sensor sets
    max_probes: int = 400  # small classifiers that the search over orders of sensors may train
    levels: tuple[float, ...] = (
        0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995,
    )  # confidences at which a cascade's stages answer  # fmt: skip
    n_prices: int = 64  # for which the cuts of nested sets are chosen; with few prices, the front has gaps
    n_gate_prices: int = 28  # for which the cuts of gated stages are chosen
    n_graph_prices: int = 16  # for which a graph of all sensor sets is learned; each price trains every state again
    max_degree: int = 2  # of polynomials over a few sensors
    n_gammas: int = 7  # penalties on sensors in boosting, zero included
    p_fulls: tuple[float, ...] = (0.02, 0.15)  # bounds of the share of rows that q forwards
    forward_rates: tuple[float, ...] = (
        0.0, 0.003, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7,
    )  # shares of rows at which thresholds of gate and margin are tried  # fmt: skip
    gate_rounds: int = 3  # alternations between q and a gate with its model
    gate_trees: int = 20  # boosted in each round; GreedyMiser has as many trees as a first round and these together
    n_linear_gammas: int = 8  # penalties along a path of linear models
    n_linear_starts: int = 2  # single sensors that a path starts from, in addition to the empty set
    linear_p_fulls: tuple[float, ...] = (0.05, 0.2, 0.6)
    prune_forests: tuple[tuple[int, float], ...] = ((3, 1.0), (8, 1.0), (12, 1.0), (12, 0.3))  # trees, max_features
    n_prune_prices: int = 10
    n_lp_prices: int = 8
    lp_rows: int = 400  # rows of a linear program, whose time grows faster than their number
    ridges: tuple[float, ...] = (
        0.3,
        3.0,
        30.0,
        300.0,
    )  # L2 penalties of polynomial classifiers, divided by the number of rows
    tree_shapes: tuple[tuple[str, int], ...] = (("tree", 2), ("cascade", 3))  # of trees of classifiers, with depths
    n_tree_prices: int = 8  # for which a tree of classifiers chooses its sensors
    part_shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)  # of parts that buy, where [joint] shares names no others
    part_releases: tuple[str, ...] = ("one-shot", "anytime")  # where [joint] releases names no others
    transition_steps: tuple[float, ...] = (0.05, 0.2, 1.0)  # of a chain, of which inner folds choose
    races: bool = True  # whether ``auto`` also tries methods that seldom deserve a full sweep


NORMAL = Effort(name="normal")
QUICK = Effort(
    name="quick",
    tree_share=0.5,
    forest_trees=48,
    max_stages=8,
    max_probes=120,
    levels=(0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.985),
    n_prices=32,
    n_gate_prices=8,
    n_graph_prices=5,
    max_degree=1,
    n_gammas=3,
    p_fulls=(0.15,),
    forward_rates=(0.0, 0.01, 0.03, 0.1, 0.3),
    gate_rounds=1,
    gate_trees=10,
    n_linear_gammas=4,
    n_linear_starts=1,
    linear_p_fulls=(0.2,),
    prune_forests=((4, 1.0),),
    n_prune_prices=4,
    n_lp_prices=2,
    lp_rows=60,
    ridges=(3.0,),
    tree_shapes=(("tree", 1),),
    n_tree_prices=4,
    part_shares=(0.1, 0.3),
    part_releases=("one-shot",),
    transition_steps=(0.2,),
    races=False,
)
THOROUGH = Effort(
    name="thorough",
    max_probes=1200,
    n_prices=128,
    n_gate_prices=56,
    n_graph_prices=32,
    n_gammas=13,
    p_fulls=(0.01, 0.02, 0.05, 0.15, 0.4),
    gate_rounds=5,
    n_linear_gammas=16,
    n_linear_starts=4,
    linear_p_fulls=(0.02, 0.05, 0.1, 0.2, 0.4, 0.6),
    prune_forests=((3, 1.0), (8, 1.0), (12, 1.0), (12, 0.3), (24, 1.0), (24, 0.3)),
    n_prune_prices=20,
    n_lp_prices=16,
    lp_rows=800,
    tree_shapes=(("tree", 0), ("tree", 1), ("tree", 2), ("tree", 3), ("cascade", 3), ("cronus", 3)),
    n_tree_prices=16,
    part_shares=(0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7),
    part_releases=("one-shot", "anytime", "rounds"),
    transition_steps=(0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
)
EFFORTS = {effort.name: effort for effort in (QUICK, NORMAL, THOROUGH)}


def effort_of(where: str, name: object) -> Effort:
    """The effort of this name, one of ``EFFORTS``; an ``Effort`` is returned as it is.

    Raises
    ------
    InputError
        No effort has that name.
    """
    if isinstance(name, Effort):
        return name
    if not isinstance(name, str) or name not in EFFORTS:
        raise InputError(f"{where} names the effort {str(name)[:80]!r}; use one of {', '.join(EFFORTS)}")
    return EFFORTS[name]
