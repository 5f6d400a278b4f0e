# SPDX-License-Identifier: Apache-2.0
"""Every learner passes scikit-learn's checks of an estimator, and our own; and our own can fail."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from hardcase_edge.session.session import Session
from hardcase_train import checks, policy_estimator
from hardcase_train.checks import ALL_CHECKS, METHOD_CHECKS, run_check
from hardcase_train.data.canonical_order import Order
from hardcase_train.estimator import PolicyClassifier
from hardcase_train.methods import ESTIMATORS
from hardcase_train.methods.adapt.gbrt import AdaptGBRT
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.policy.batch import Batch
from tests.helpers.train.estimators import NAMES, PEERS, few
from tests.helpers.train.problems import LEAST

VALUES = ("PolicyRegressor",)  # beside the classifiers of every method
OFTEN = [*(name for name in NAMES if name not in PEERS), *VALUES]  # peers: ``benchmarks/checks.py`` runs all of theirs
FEW_CHECKS = (checks.check_a_costless_sensor_is_used_where_it_helps, checks.check_the_device_decides_as_predict)
FAILS = {
    "check_sample_weight_equivalence_on_dense_data": "validation rows and folds are drawn by row, and trees ask for a "
    "number of rows in each leaf: a row of weight two is not two rows"
}
SKIPPED = {
    "check_array_api_input": "runs only where SCIPY_ARRAY_API is set",
    "check_sample_weights_pandas_series": "pandas is no dependency",
    "check_regressor_data_not_an_array": "pandas is no dependency",
    "check_classifier_data_not_an_array": "pandas is no dependency",  # its part without pandas has run by then
}  # all pass where they can run


OF_EACH_BASE = ("AdaptGBRT", "L1Baseline", "PolyDom", "StaticSubset", *VALUES)  # docs/decisions/checks.md
OF_SHARED_CODE = {  # of inputs, labels and weights, which ``fit`` and ``predict`` take apart before a method sees rows
    "check_all_zero_sample_weights_error", "check_classifier_data_not_an_array", "check_classifiers_classes",
    "check_classifiers_train", "check_dtype_object", "check_estimators_dtypes", "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d", "check_fit_check_is_fitted", "check_fit_score_takes_y",
    "check_methods_sample_order_invariance", "check_n_features_in_after_fitting", "check_pipeline_consistency",
    "check_positive_only_tag_during_fit", "check_readonly_memmap_input", "check_sample_weights_list",
    "check_sample_weights_not_an_array", "check_sample_weights_not_overwritten", "check_sample_weights_shape",
    "check_supervised_y_2d", *FAILS, *SKIPPED,
}  # fmt: skip
FITTED: dict[tuple[Any, ...], Any] = {}
F0S: dict[bytes, Any] = {}
SHARED = ("fit", "predict", "predict_proba", "decide", "cost", "_fit", "_learn", "_decide", "_rows", "__sklearn_tags__")


@pytest.fixture(autouse=True)
def _known_f0() -> Iterator[None]:
    """On few tables all estimators fit the same f0: what another test has fitted is used once, later fits are own."""
    found = dict(F0S)

    def known(made: Callable[..., Any], *given: Any, **more: Any) -> Any:
        key = pickle.dumps((made.__name__, given, more))
        if key not in found:
            F0S[key] = made(*given, **more)
            return deepcopy(F0S[key])
        return deepcopy(found.pop(key))

    with pytest.MonkeyPatch.context() as patch:  # of its own, as ``first_fit`` undoes the other
        for name in ("out_of_fold", "fit_hpc"):
            patch.setattr(policy_estimator, name, partial(known, getattr(policy_estimator, name)))
        yield


@pytest.mark.filterwarnings("ignore")  # the checks look at those that matter
@pytest.mark.parametrize("name", OF_EACH_BASE)
def test_scikit_learns_checks_pass(name: str) -> None:
    made = check_estimator(few(name, effort=LEAST), expected_failed_checks=FAILS, on_skip=None, on_fail=None)
    assert len(made) > 50
    found: dict[str, dict[str, Any]] = {"passed": {}, "failed": {}, "xfail": {}, "skipped": {}}
    for one in made:
        found[one["status"]][one["check_name"]] = one["exception"]
    assert found["failed"] == {}
    assert set(found["xfail"]) == set(FAILS)
    assert set(found["skipped"]) <= set(SKIPPED)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_EACH_BASE])
def test_where_input_is_handled_by_shared_code_the_other_checks_pass(name: str) -> None:
    assert [n for n in SHARED if getattr(ESTIMATORS[name], n) is not getattr(PolicyClassifier, n)] == []
    called = [(made, check) for made, check in estimator_checks_generator(few(name, effort=LEAST))]
    own = [(made, check) for made, check in called if check.func.__name__ not in OF_SHARED_CODE]
    assert len(own) > 30
    for made, check in own:
        check(made)


@pytest.fixture
def first_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a check fits first, on the data of most of them, is what another one has fitted; later fits are its own."""
    fit = checks._fitted

    def first(estimator: Any, X: np.ndarray, y: np.ndarray, *given: Any, **params: Any) -> Any:
        monkeypatch.undo()
        if given or params:
            return fit(estimator, X, y, *given, **params)
        key = (type(estimator), X.tobytes(), y.tobytes())
        if key not in FITTED:
            FITTED[key] = fit(estimator, X, y)
        return FITTED[key]

    monkeypatch.setattr(checks, "_fitted", first)


@pytest.mark.usefixtures("first_fit")
@pytest.mark.parametrize("check", ALL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", OFTEN)
def test_our_own_checks_pass(name: str, check: Any) -> None:
    run_check(check, few(name, effort=LEAST))


@pytest.mark.parametrize("check", FEW_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(PEERS))
def test_some_checks_pass_for_the_peers_of_a_paper(name: str, check: Any) -> None:
    run_check(check, few(name))


def test_every_check_is_called() -> None:
    named = {c.__name__ for c in (*ALL_CHECKS, *METHOD_CHECKS)}
    assert named == {n for n in vars(checks) if n.startswith("check_")}


# ---------------------------------------------------------------- they can fail


class Crowded(AdaptGBRT):
    """What it says of a row depends on those beside it."""

    def _decide(self, X, hpc_proba):
        outcome, proba = super()._decide(X, hpc_proba)
        return replace(outcome, label=(outcome.label + len(X)) % 3), proba


class Forgetful(AdaptGBRT):
    """Another seed for each fit."""

    seeds = iter(range(100))

    def _learn(self, *args):
        self.random_state = next(self.seeds)
        super()._learn(*args)


class Stingy(StaticSubset):
    """Buys nothing."""

    def points(self, judge):
        return [p for p in super().points(judge) if not p.params["sensors"]]


class Weightless(AdaptGBRT):
    """All rows alike, but those of weight zero."""

    def _learn(self, X, y, weight, given, group):
        super()._learn(X, y, np.ones(len(y)), given, group)


class Blind(AdaptGBRT):
    """Does not say how likely an answer is where a reading is missing."""

    def _decide(self, X, hpc_proba):
        outcome, proba = super()._decide(X, hpc_proba)
        proba[np.isnan(X).any(axis=1)] = np.nan
        return outcome, proba


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (Crowded, checks.check_one_row_is_decided_as_in_a_batch),
        (Stingy, checks.check_a_costless_sensor_is_used_where_it_helps),
        (Blind, checks.check_missing_values_are_answered),
        (Forgetful, checks.check_a_refit_gives_the_same_program),
        (Weightless, checks.check_weights_count),
    ],
)
def test_a_learner_that_breaks_a_promise_is_found_out(wrong: Any, check: Any) -> None:
    given = few("AdaptGBRT").get_params(deep=False)
    known = wrong().get_params(deep=False)
    with pytest.raises(AssertionError):
        check(wrong(**{k: v for k, v in given.items() if k in known}))


def test_a_session_that_overspends_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_fits", lambda self, cost: True)
    with pytest.raises(AssertionError, match=r"the budget is 0\.0, the decision costs"):
        checks.check_cost_never_exceeds_a_hard_budget(few("AdaptGBRT"))


def test_a_batch_that_decides_otherwise_than_the_device_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Batch._costs
    monkeypatch.setattr(Batch, "_costs", lambda self, *args: costs(self, *args) + 1)
    with pytest.raises(AssertionError, match="on the device"):
        checks.check_the_device_decides_as_predict(few("AdaptGBRT"))


@pytest.mark.parametrize("name", ["AdaptGBRT", "GreedyMiser"])
def test_in_the_tables_own_order_ties_are_broken_by_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(problem):
        return Order(problem, tuple(range(len(problem.features))), tuple(range(len(problem.sensors))))

    monkeypatch.setattr(policy_estimator, "content_order", as_it_is)
    with pytest.raises(AssertionError):
        checks.check_shuffled_columns_change_nothing(few(name))
