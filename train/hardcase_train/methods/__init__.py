# SPDX-License-Identifier: Apache-2.0
"""The registry of methods. Each paper has a package of its own, and these do not import each other.

To add a method, add a package here and its class to ``_CLASSES``. Sweeps run the methods in this order, the slowest
settings first.
"""

from __future__ import annotations

from typing import Any

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError

from ..estimator import MethodClassifier, PolicyClassifier
from .adapt.gbrt import AdaptGBRT
from .adapt.greedy_miser import GreedyMiser
from .adapt.l1_baseline import L1Baseline
from .adapt.least_squares import AdaptLstsq
from .adapt.linear import AdaptLin
from .adapt.stages import StagedAdaptGBRT
from .baselines.cascade import ConfidenceCascade
from .baselines.static import StaticSubset
from .boosted.adaboost_rs import ResampledAdaBoost
from .boosted.stage_wise import StageWiseRegression
from .cstc.and_or import AndOr
from .cstc.cost_tree import CostSensitiveTree
from .cstc.greedy_tree import GreedyTree
from .cstc.single import SingleCostSensitive
from .graph.dag import DagClassifier
from .graph.lp_tree import LpTree
from .polydom.indexed import Greedy, GreedyAccuracy, GreedyCost, PolyDom, PolyDomAnytime
from .prune.pruned_forest import BudgetPrunedForest
from .route.route import RouteClassifier
from .streams.duty_cycle import DutyCycle
from .streams.held import Held

__all__ = ["AUTO", "BASELINES", "ESTIMATORS", "METHODS", "check_method", "register_method"]

AUTO = "auto"  # stands for the methods that a sweep chooses
MOST_OF_NAME = 16  # letters of an unknown name that a message repeats; no method has a longer one
_CLASSES: tuple[type[MethodClassifier], ...] = (
    ConfidenceCascade,
    AdaptLin,
    AdaptLstsq,
    L1Baseline,
    BudgetPrunedForest,
    DagClassifier,
    RouteClassifier,
    StagedAdaptGBRT,
    StaticSubset,
    GreedyMiser,
    LpTree,
    CostSensitiveTree,
    PolyDom,
    PolyDomAnytime,
    Greedy,
    GreedyAccuracy,
    GreedyCost,
    SingleCostSensitive,
    GreedyTree,
    AndOr,
    StageWiseRegression,
    ResampledAdaBoost,
    Held,
    DutyCycle,
)
METHODS = {cls.method.name: cls for cls in _CLASSES}
BASELINES = tuple(name for name, cls in METHODS.items() if cls.method.is_baseline)
ESTIMATORS: dict[str, type[PolicyClassifier]] = {"AdaptGBRT": AdaptGBRT, **{cls.__name__: cls for cls in _CLASSES}}


def register_method(cls: type[MethodClassifier]) -> type[MethodClassifier]:
    """Register a method, so that sweeps find it by name; usable as a class decorator.

    Raises
    ------
    ValueError
        A different method has that name, or another estimator the class's name.
    """
    name = cls.method.name
    if name == AUTO or _is_another(METHODS.get(name), cls):
        raise ValueError(f"a method named {name!r} exists; give {cls.__name__}.method another name")
    if _is_another(ESTIMATORS.get(cls.__name__), cls):
        raise ValueError(f"an estimator named {cls.__name__} exists; give the class another name")
    METHODS[name] = ESTIMATORS[cls.__name__] = cls
    return cls


def _is_another(known: type[PolicyClassifier] | None, cls: type[PolicyClassifier]) -> bool:
    """Whether there is one, and it is not an earlier definition of this class: a notebook's cell may run twice."""
    return known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__)


def check_method(where: str, name: Any) -> str:
    """The name, if it is that of a method or "auto".

    Raises
    ------
    InputError
        No method has that name; the message suggests the closest one.

    Examples
    --------
    >>> check_method("--method", "adapt-gbrt")
    'adapt-gbrt'
    >>> check_method("--method", "cascades")
    Traceback (most recent call last):
        ...
    hardcase_edge.errors.InputError: --method names the method 'cascades'; did you mean 'cascade'?
    """
    if name == AUTO or name in METHODS:
        return str(name)
    names = [AUTO, *METHODS]
    hint = did_you_mean(name, names, f"methods are {', '.join(names)}", cutoff=0.45)
    raise InputError(f"{where} names the method {str(name)[:MOST_OF_NAME]!r}; {hint}")
