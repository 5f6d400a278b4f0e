"""All methods of a task, one after another: the points of its front."""

from __future__ import annotations

import os

import numpy as np
from tqdm import tqdm

from hardcase_edge.program import Answer, Forward, Slice

from .adapt_points import GAMMAS, N_SETTINGS, adapt_points, greedy_points
from .adapt_stages import staged_points
from .binning import Bins
from .boosting import Ensemble
from .cascade import cascade_points
from .chains import Chains
from .compiler import compile_program
from .front import Point, best_points, with_test
from .judge import Judge
from .linear_points import LINEAR_METHODS, linear_points, n_linear_settings
from .losses import ClassLoss
from .problem import Problem
from .prune_points import FORESTS, budget_prune_points
from .static_subset import static_points
from .subsets import SubsetSearch

__all__ = ["hpc_point", "learn"]

STAGE_ROUNDS = (0, 1)  # several stages without gates of their own, and with


def learn(problem: Problem, methods: tuple[str, ...], *, quiet: bool = False) -> list[Point]:
    """Points of f0 and of every method, each method's best on validation rows, and the fixed set of all sensors.

    Parameters
    ----------
    methods : of ``config.METHODS``
    quiet : bool
        No progress bars on stderr.
    """
    judge = Judge(problem)
    points = [hpc_point(judge)]
    jobs = os.cpu_count() or 1
    search = SubsetSearch(judge, jobs)
    chains = Chains(search)
    if "static" in methods:
        with tqdm(total=1, desc="static", disable=quiet, leave=False) as bar:
            found = static_points(search, bar)
        everything = max(found, key=lambda p: len(p.params["sensors"]))
        best = best_points(found)
        points += best + ([] if everything in best else [everything])
    if "cascade" in methods:
        with tqdm(total=1, desc="cascade", disable=quiet, leave=False) as bar:
            points += cascade_points(chains)
            bar.update(1)
    if "adapt-gbrt" in methods:
        with tqdm(total=N_SETTINGS, desc="adapt-gbrt", disable=quiet, leave=False) as bar:
            found = adapt_points(judge, jobs, bar)
        for n_rounds in STAGE_ROUNDS:
            found += staged_points(chains, n_rounds)
        points += best_points(found)
    if "greedy-miser" in methods:
        with tqdm(total=len(GAMMAS), desc="greedy-miser", disable=quiet, leave=False) as bar:
            points += greedy_points(judge, jobs, bar)
    if "budget-prune" in methods:
        with tqdm(total=len(FORESTS), desc="budget-prune", disable=quiet, leave=False) as bar:
            points += budget_prune_points(judge, jobs, bar)
    for method in LINEAR_METHODS:
        if method in methods:
            with tqdm(total=n_linear_settings(method, problem), desc=method, disable=quiet, leave=False) as bar:
                points += linear_points(method, judge, jobs, bar)
    return points


def hpc_point(judge: Judge) -> Point:
    """f0 for every row: buy all that a request carries, forward; the most frequent class where the cloud is away."""
    problem = judge.problem
    base = ClassLoss(problem.train.y, problem.n_classes, problem.train.weight).base()
    nodes = (Forward(problem.hpc_sensors, 1), Answer(Slice(0, 0, len(base))))
    program = compile_program(problem, [Ensemble(Bins(()), np.empty(0, dtype=np.int64), base)], nodes)
    figures = judge.summary(judge.run(program, []))
    return with_test(problem, Point("hpc", {}, figures, {}, program))
