# SPDX-License-Identifier: Apache-2.0
"""A learner from Python: what it takes, which policy it keeps, and whose answers it gives."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

import hardcase_train
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Acquire, Forward
from hardcase_edge.verifier.verify import verify
from hardcase_export.integers.quantise import quantise
from hardcase_train.estimator import PolicyClassifier
from hardcase_train.methods import ESTIMATORS, METHODS
from tests.helpers.train.estimators import NAMES, few, table
from tests.helpers.train.problems import LEAST

SENSORS = [[4, 0], [2]]  # columns 1 and 3 are sensors of their own
COSTS = [6, 2, 1, 3]


def fitted(name: str = "AdaptGBRT", **params: Any) -> PolicyClassifier:
    return few(name, **{"max_loss": 0.2, **params}).fit(*table())


# ---------------------------------------------------------------- the package


def test_every_method_is_an_estimator_of_the_package() -> None:
    assert set(ESTIMATORS.values()) == {hardcase_train.AdaptGBRT, *METHODS.values()}  # adapt-gbrt of one stage is two
    assert set(hardcase_train.__all__) - set(NAMES) == {
        "MethodClassifier",
        "PolicyClassifier",
        "PolicyRegressor",
        "Problem",
        "register_method",
    }
    assert all(issubclass(getattr(hardcase_train, name), PolicyClassifier) for name in NAMES)
    with pytest.raises(AttributeError, match="'hardcase_train' has no attribute 'AdaptForest'"):
        _ = hardcase_train.AdaptForest


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, hardcase_train; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert not {"numpy", "sklearn", "numba", "scipy"} & {name.split(".")[0] for name in said.split()}


def test_an_estimator_says_what_differs_from_its_defaults() -> None:
    assert repr(hardcase_train.AdaptGBRT(p_full=0.2, budget=3)) == "AdaptGBRT(budget=3, p_full=0.2)"


# ---------------------------------------------------------------- sensors and costs


INDICES = {"Greedy", "GreedyAccuracy", "GreedyCost", "PolyDom", "PolyDomAnytime"}


@pytest.mark.parametrize("name", NAMES)
def test_sensors_are_numbered_as_given_and_cost_what_was_said(name: str) -> None:
    model = fitted(name, sensors=SENSORS, costs=COSTS, forward_cost=10, effort=LEAST)
    X, y = table(seed=1)
    program, outcome = model.program_, model.decide(X)
    assert [s.features for s in program.sensors] == [(4, 0), (2,), (1,), (3,)]
    assert [s.cost[0] / 1e6 for s in program.sensors] == COSTS
    bought = {s for node in program.nodes if isinstance(node, Acquire) for s in node.sensors}
    if name in INDICES:  # which have sets for small budgets, too
        assert bought.issuperset(model.sensors_)
    else:
        assert model.sensors_ == sorted(bought)
    assert outcome.cost[outcome.forwarded] == pytest.approx(sum(COSTS) + 10)
    assert outcome.cost.max() <= sum(COSTS) + 10
    assert outcome.cost.tolist() == model.cost(X).tolist()
    assert np.mean(model.predict(X) == y) > 0.6


@pytest.mark.parametrize("name", NAMES)
def test_what_is_fitted_quantises_and_is_proved(name: str) -> None:
    X, _ = table(seed=1)
    model = fitted(name)
    integers = quantise(model.program_).program
    assert verify(integers).worst_cost >= 0
    before = model.decide(X)
    model.program_ = integers
    after = model.decide(X)
    assert np.mean(before.label == after.label) >= 0.99


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"sensors": [[0, 1], [1]]}, "and no two share one"),
        ({"sensors": [[5]]}, "each sensor needs at least one column of 0 to 4"),
        ({"sensors": [[-1]]}, "each sensor needs at least one column of 0 to 4"),
        ({"sensors": [[]]}, "each sensor needs at least one column of 0 to 4"),
        ({"sensors": [0, 1]}, r"sensors is \[0, 1\] and .*; give each sensor a list of column numbers"),
        ({"sensors": [[0.7]]}, r"sensors is \[\[0.7\]\] and .*; give each sensor a list of column numbers"),
        ({"costs": 3}, "costs is 3; give each sensor a list of column numbers and a cost"),
        ({"costs": dict.fromkeys(range(5), 9.0)}, "costs is a dict; give a list of costs, in the order"),
        ({"costs": [[1, 2], 1, 1, 1, 1]}, r"the cost of sensor 0 is \[1, 2\], a cost from 0"),
        ({"forward_cost": None}, "forward_cost is None, a cost from 0"),
        ({"budget": float("inf")}, r"budget of AdaptGBRT is inf; expected a number from 0 to 1e\+09"),
        ({"max_loss": None}, "max_loss of AdaptGBRT is None; expected a number from 0 to 1"),
        ({"costs": [1, 2]}, "costs has 2 entries for 5 sensors"),
        ({"sensors": [[0, 1]], "costs": [1]}, "costs has 1 entries for 4 sensors"),
        ({"costs": [1, 1, 1, 1, -1]}, "the cost of sensor 4 is -1, a cost from 0"),
        ({"costs": [1, 1, 1, 1, float("nan")]}, "the cost of sensor 4 is nan"),
        ({"costs": [1, 1, 1, 1, 4e-7]}, "the cost of sensor 4 is 4e-07, which six decimals round to nothing"),
        ({"forward_cost": 1e10}, "forward_cost is 10000000000.0, a cost from 0"),
        ({"hpc": RidgeClassifier()}, "hpc is RidgeClassifier.*has no predict_proba"),
        ({"hpc": LogisticRegression(C=-1)}, "the estimator cannot be fitted: .*C.*must be"),
    ],
)
def test_what_cannot_be_used_is_a_value_error_of_one_line(params: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as found:
        fitted(**params)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("AdaptGBRT", {"p_full": 1.5}, "p_full of AdaptGBRT is 1.5; expected a number from 0 to 1"),
        ("AdaptGBRT", {"n_rounds": 1.0}, "n_rounds of AdaptGBRT is 1.0; expected a whole number from 0 to inf"),
        ("AdaptGBRT", {"gamma": float("nan")}, "gamma of AdaptGBRT is nan; expected a number from 0 to inf"),
        ("StagedAdaptGBRT", {"n_rounds": 0}, "n_rounds of StagedAdaptGBRT is 0; expected a whole number from 1 to inf"),
        ("StaticSubset", {"size": "smal"}, "the parameter size is 'smal'; use one of auto, small, large, ebm"),
        ("StaticSubset", {"effort": "quik"}, "effort names the effort 'quik'; use one of quick, normal, thorough"),
        ("AdaptLstsq", {"n_steps": 0}, "n_steps of AdaptLstsq is 0; expected a whole number from 1"),
        ("GreedyMiser", {"n_trees": "many"}, "n_trees of GreedyMiser is 'many'; expected a whole number from 1"),
        ("L1Baseline", {"l2": -1}, "l2 of L1Baseline is -1; expected a number from 0"),
        ("StaticSubset", {"max_loss": 5}, "max_loss of StaticSubset is 5; expected a number from 0 to 1"),
        ("StaticSubset", {"budget": -1}, "budget of StaticSubset is -1; expected a number from 0"),
    ],
)
def test_a_parameter_out_of_range_is_named_with_its_range(name: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        fitted(name, **params)


def test_sensors_may_be_an_array() -> None:
    assert [s.features for s in fitted(sensors=np.array([[3, 1]])).program_.sensors] == [(3, 1), (0,), (2,), (4,)]


def test_a_learners_own_refusal_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="p_full above 0") as found:
        fitted("AdaptLstsq", p_full=0.0)
    assert isinstance(found.value.__cause__, InputError)


@pytest.mark.parametrize(("n", "said"), [(1, "1 sample"), (9, "9 sample"), (12, "12 classes are too few")])
@pytest.mark.parametrize("name", NAMES)
def test_too_few_rows_are_a_value_error(name: str, n: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        few(name).fit(np.arange(2.0 * n).reshape(n, 2), np.arange(n))


@pytest.mark.filterwarnings("ignore:No policy of")
@pytest.mark.parametrize("name", NAMES)
def test_ten_rows_of_one_column_are_enough(name: str) -> None:
    X, y = np.arange(10.0).reshape(10, 1), np.arange(10) % 2
    model = few(name).fit(X, y)
    assert set(model.predict(X)) <= {0, 1}


def test_a_reading_may_be_a_fraction_though_training_saw_whole_numbers() -> None:
    X, y = table()
    whole = np.round(X * 3)
    model = few("GreedyMiser", max_loss=0.2).fit(whole, y)
    assert {f.dtype for f in model.program_.features} == {"f32"}
    between = model.decide(whole + 0.25)
    assert (between.node == model.decide(whole).node).all()  # no sensor has failed
    assert np.isnan(model._rows(np.full((1, 5), 1e300))).all()  # beyond what an f32 holds: missing


# ---------------------------------------------------------------- which policy is kept


def test_a_budget_takes_the_best_that_it_pays() -> None:
    model = [fitted("ConfidenceCascade", budget=b, costs=[1, 2, 3, 4, 5], forward_cost=10) for b in (7, 12, 30)]
    found = [m.figures_ for m in model]
    assert all(f.cost + f.cost_se <= b for f, b in zip(found, (7, 12, 30), strict=True))
    assert found[0].quality < found[1].quality <= found[2].quality


def test_a_cascade_of_one_stage_that_may_not_forward_answers_within_its_limit() -> None:
    model = fitted("ConfidenceCascade", limits={"budget": 1}, costs=[1, 2, 3, 4, 5], forward_cost=10)
    assert (model.figures_.cost, model.figures_.forward_rate) == (1, 0)


@pytest.mark.parametrize("name", ["AdaptLin", "RouteClassifier"])
def test_a_method_that_has_no_policy_within_a_limit_says_so_in_a_line(name: str) -> None:
    said = r"no policy of these methods keeps \[policy\] budget = 0.5; allow more, or choose another method"
    with pytest.raises(ValueError, match=said):
        fitted(name, limits={"budget": 0.5}, costs=[1, 2, 3, 4, 5], forward_cost=10)


def test_max_loss_takes_the_cheapest_that_is_good_enough() -> None:
    losses = (0.005, 0.02, 0.3)
    model = [fitted("ConfidenceCascade", max_loss=m, costs=[1, 2, 3, 4, 5], forward_cost=10) for m in losses]
    found = [m.figures_ for m in model]
    assert found[0].cost > found[1].cost > found[2].cost
    assert found[0].quality > found[1].quality > found[2].quality
    lost = found[0].quality - found[2].quality
    assert 0.02 < lost <= 0.3


def test_where_nothing_will_do_the_nearest_is_taken_and_it_is_said() -> None:
    with pytest.warns(
        UserWarning, match=r"No policy of StaticSubset meets max_loss=0 \(f0 accuracy .*\)\. Using the closest: loss"
    ):
        best = fitted("StaticSubset", max_loss=0.0)
    with pytest.warns(
        UserWarning, match=r"No policy of GreedyMiser meets budget=0\.5\. Using the closest: mean cost 5\."
    ):
        dear = fitted("GreedyMiser", budget=0.5)
    assert best.figures_.quality >= fitted("StaticSubset").figures_.quality
    assert dear.figures_.cost == 5


def test_a_search_over_settings_is_scikit_learns() -> None:
    found = GridSearchCV(few("AdaptLin", max_loss=0.3), {"gamma": [0.0, 10.0]}, cv=2).fit(*table())
    assert found.best_params_ == {"gamma": 0.0}


# ---------------------------------------------------------------- f0


def test_forwarded_rows_have_f0s_answer_and_others_the_devices() -> None:
    X, _ = table(seed=1)
    model = fitted("AdaptLin", max_loss=0.005, hpc=LogisticRegression())
    outcome, proba = model.decide(X), model.predict_proba(X)
    assert 0 < outcome.forwarded.mean() < 1
    there = outcome.forwarded
    (forward,) = [node for node in model.program_.nodes if isinstance(node, Forward)]
    assert forward.sensors == (0, 1, 2, 3, 4)
    assert proba[there] == pytest.approx(model.hpc_.predict_proba(model._rows(X)[there]))
    assert proba.argmax(axis=1).tolist() == outcome.label.tolist()
    assert proba.sum(axis=1) == pytest.approx(1)
    sure = -np.sort(-proba[~there], axis=1)
    assert (np.argsort(np.log(sure[:, 0] / sure[:, 1])) == np.argsort(outcome.margin[~there])).all()


def test_an_f0_given_as_probabilities_is_neither_fitted_nor_asked() -> None:
    class Never(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            raise AssertionError

        predict_proba = fit

    X, y = table()
    said = np.full((len(y), 3), 0.05)
    said[np.arange(len(y)), y] = 0.9
    model = few("AdaptLin", hpc=Never()).fit(X, y, hpc_proba=said)
    assert model.hpc_ is None
    outcome = model.decide(X, said)
    assert outcome.forwarded.any()
    assert (outcome.label == y)[outcome.forwarded].all()
    assert model.predict(X, said[:, ::-1])[outcome.forwarded].tolist() == (2 - y[outcome.forwarded]).tolist()
    with pytest.raises(ValueError, match="f0 was given as probabilities; pass hpc_proba"):
        model.predict(X)
    assert model.cost(X).tolist() == outcome.cost.tolist()  # what it costs, nobody need be asked


@pytest.mark.parametrize("wrong", [np.ones((300, 2)), np.ones((299, 3)), -np.ones((300, 3))])
def test_probabilities_of_another_shape_are_a_value_error(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"hpc_proba has shape .*; expected shape \(300, 3\) and no negative value"):
        few("AdaptLin").fit(*table(), hpc_proba=wrong)
    with pytest.raises(ValueError, match="hpc_proba adds up to 3 in row 1; expected 1 in each row"):
        few("AdaptLin").fit(*table(), hpc_proba=np.ones((300, 3)))


def test_an_f0_without_a_seed_gets_one_and_with_one_keeps_it() -> None:
    free = fitted(hpc=DecisionTreeClassifier(max_features=1), random_state=3)
    again = fitted(hpc=DecisionTreeClassifier(max_features=1), random_state=3)
    assert free.hpc_.random_state is not None
    assert free.hpc_.random_state == again.hpc_.random_state
    assert fitted(hpc=DecisionTreeClassifier(random_state=7)).hpc_.random_state == 7


def test_by_default_f0_is_boosted_trees() -> None:
    model = hardcase_train.AdaptLin()._unfitted(5)
    assert type(model).__name__ == "HistGradientBoostingClassifier"
    assert model.random_state == 5
