# SPDX-License-Identifier: Apache-2.0
"""The registry: every method by its name, with settings that are JSON, and a place for one of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

import hardcase_train
from hardcase.reports.front_chart import front_svg
from hardcase.training.build import configure
from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.quality import Figures
from hardcase_train import checks
from hardcase_train.checks import METHOD_CHECKS, run_check
from hardcase_train.data.problem import Problem
from hardcase_train.estimator import MethodClassifier
from hardcase_train.method import Method, Params
from hardcase_train.methods import AUTO, BASELINES, ESTIMATORS, METHODS, check_method, register_method
from hardcase_train.policy.answers import answer_point
from hardcase_train.policy.front import Point
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.sweep.halving import Ladder, settings_of
from hardcase_train.sweep.sweep import chosen_methods
from hardcase_train.sweep.train import learn
from tests.helpers.train.estimators import few, table
from tests.helpers.train.problems import BRIEF, LEAST, make_problem, plain, toml


def search_of(**effort: object) -> SubsetSearch:
    return SubsetSearch(Judge(make_problem(n=90, effort=replace(BRIEF, **effort))), 1)


# ---------------------------------------------------------------- the methods that are there


def test_each_method_has_a_name_and_a_colour_of_its_own() -> None:
    facts = [cls.method for cls in METHODS.values()]
    assert [fact.name for fact in facts] == list(METHODS)
    assert len({fact.colour for fact in facts}) == len(set(METHODS)) == len(set(METHODS.values())) >= 10
    assert AUTO not in METHODS
    assert {fact.auto for fact in facts} == {"always", "raced", "named"}
    assert (
        set(BASELINES)
        == {"static", "cascade", "duty-cycle"}
        == {name for name in METHODS if METHODS[name].method.is_baseline}
    )


def test_each_method_is_an_estimator_by_the_name_of_its_class() -> None:
    assert all(ESTIMATORS[cls.__name__] is cls and issubclass(cls, MethodClassifier) for cls in METHODS.values())
    assert all(getattr(hardcase_train, name) is cls for name, cls in ESTIMATORS.items())


@pytest.fixture
def _least(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem of the checks asks for less effort."""
    effort = replace(LEAST, levels=BRIEF.levels, forward_rates=BRIEF.forward_rates, n_linear_gammas=2)
    monkeypatch.setattr(checks, "_problem", partial(checks._problem, effort))


@pytest.mark.usefixtures("_least")
@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", METHODS)
def test_each_method_keeps_the_contract_of_sweeps(name: str, check: Callable[[Any], None]) -> None:
    run_check(check, METHODS[name])


@pytest.mark.parametrize("name", ["adapt-lin", "l1"])
def test_a_row_of_the_least_margin_is_answered_by_the_program_as_by_its_figures(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_problem", partial(checks._problem, LEAST))  # where its margin is a threshold
    checks.check_confidences_are_those_of_the_program(METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_sweeps_take_the_settings_of_the_grid(name: str) -> None:
    ladder = Ladder(make_problem(n=90, effort=BRIEF))
    assert [setting.params for setting in settings_of(name, ladder)] == METHODS[name].grid(search_of())


@pytest.mark.parametrize("name", BASELINES)
def test_a_baselines_points_are_those_of_all_its_settings(name: str) -> None:
    search = search_of()
    grid = METHODS[name].grid(search)
    assert {params["classifier"] for params in grid} == {"forest", "trees"}
    alone = [point for params in grid for point in METHODS[name].run(search, params)]
    assert plain(ESTIMATORS[METHODS[name].__name__](n_jobs=2).points(Judge(search.problem))) == plain(alone)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", BASELINES)
def test_a_setting_of_a_baseline_trains_the_classifier_that_it_names(name: str) -> None:
    """The programs of a setting have as many trees a scorer as a model of that kind."""
    search = search_of()
    n_trees = {"forest": search.size.forest.n_trees, "trees": search.size.n_trees}  # type: ignore[union-attr]
    assert n_trees["forest"] != n_trees["trees"]
    for params in METHODS[name].grid(search):
        if params.get("sensors") == []:
            continue  # no reading, no tree
        for point in METHODS[name].run(search, params):
            assert point.params["classifier"] == params["classifier"]
            assert {len(s.trees) for s in point.program.scorers} == {n_trees[params["classifier"]]}


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("name", BASELINES)
def test_a_size_without_forests_leaves_boosted_trees(name: str, size: str) -> None:
    search = SubsetSearch(Judge(replace(make_problem(n=90, effort=BRIEF), size_name=size)), 1)
    assert {params["classifier"] for params in METHODS[name].grid(search)} == {"trees"}


# ---------------------------------------------------------------- names


def test_a_name_is_checked_and_the_nearest_is_told() -> None:
    assert [check_method("here", name) for name in (AUTO, *METHODS)] == [AUTO, *METHODS]
    with pytest.raises(InputError, match=r"^here names the method 'adopt-gbrt'; did you mean 'adapt-gbrt'"):
        check_method("here", "adopt-gbrt")
    for nothing_near in ("zzzz", 3, None, "z" * 1000):
        with pytest.raises(InputError, match=r"; methods are auto, cascade, adapt-lin, .*, lp-tree") as error:
            check_method("here", nothing_near)
        assert len(str(error.value)) < 300


# ---------------------------------------------------------------- one of your own


@dataclass(eq=False, repr=False)
class OneSensor(MethodClassifier):
    """Buys one sensor and answers."""

    method: ClassVar[Method] = Method(name="one-sensor", colour="#123456")

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        return [{"sensors": [s]} for s in range(len(search.problem.sensors))]

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        subset = tuple(params["sensors"])
        (model,) = search.models([subset])
        return [answer_point(search.judge, cls.method.name, params, subset, model)]


RUNS = count()


class Twice(OneSensor):
    """Each setting stands twice."""

    @classmethod
    def grid(cls, search: SubsetSearch) -> list[Params]:
        return 2 * super().grid(search)


class Unforeseen(OneSensor):
    """Says that there will be ten times as many settings."""

    @classmethod
    def n_settings(cls, problem: Problem) -> int:
        return 10 * len(problem.sensors)


class Remembering(OneSensor):
    """The points of a setting depend on how many ran before."""

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        return [replace(p, params={**params, "run": next(RUNS)}) for p in super().run(search, params)]


class Borrowed(OneSensor):
    """Its points have the name of another method."""

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        return [replace(p, method="static") for p in super().run(search, params)]


class Boastful(OneSensor):
    """States better figures than its programs have."""

    @classmethod
    def run(cls, search: SubsetSearch, params: Params) -> list[Point]:
        return [replace(p, valid=replace(p.valid, quality=0.99)) for p in super().run(search, params)]


WRONG = {
    "check_settings_are_json_and_stand_once": Twice, "check_the_number_of_settings_is_known_before": Unforeseen,
    "check_settings_do_not_depend_on_each_other": Remembering, "check_points_are_of_the_method": Borrowed,
    "check_confidences_are_those_of_the_program": Boastful,
}  # fmt: skip


@pytest.mark.parametrize("check", METHOD_CHECKS, ids=lambda check: check.__name__)
def test_a_method_that_breaks_the_contract_is_found_out_unless_it_says_so(check: Callable[[Any], None]) -> None:
    wrong = WRONG[check.__name__]
    with pytest.raises(AssertionError):
        run_check(check, wrong)
    said = replace(wrong.method, expected_failures={check.__name__: "on purpose"})
    run_check(check, type("Said", (wrong,), {"method": said}))
    with pytest.raises(AssertionError, match=r"passes; the method expects it to fail: on purpose"):
        run_check(check, type("Better", (OneSensor,), {"method": said, "n_settings": classmethod(lambda cls, p: 4)}))


@pytest.fixture
def registry() -> Iterator[None]:
    """The registry is afterwards as it was."""
    before = [(known, dict(known)) for known in (METHODS, ESTIMATORS)]
    yield
    for known, content in before:
        known.clear()
        known.update(content)  # type: ignore[arg-type]


@pytest.mark.usefixtures("registry")
def test_a_registered_method_is_trained_beside_the_others(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert register_method(OneSensor) is OneSensor
    assert hardcase_train.OneSensor is OneSensor
    problem = make_problem(n=90, effort=BRIEF)
    points = learn(problem, ("one-sensor", "static"), quiet=True)
    assert {p.method for p in points} == {"hpc", "one-sensor", "static"}
    own = [p for p in points if p.method == "one-sensor"]
    assert own
    assert all(len(p.params["sensors"]) == 1 and p.program is not None and p.test for p in own)
    assert [p.test.cost for p in own] == [(1.0, 5.0, 20.0)[p.params["sensors"][0]] for p in own]
    assert configure(toml(tmp_path, "[policy]\nmethods = ['one-sensor']\n")).methods == ("one-sensor",)
    entries = [{"method": p.method, "valid": p.valid.to_json(), "test": p.test.to_json()} for p in points]
    assert "#123456" in front_svg("mJ", entries)


@pytest.mark.usefixtures("registry")
@pytest.mark.filterwarnings("ignore:no policy of")
def test_a_method_of_ones_own_is_an_estimator() -> None:
    X, y = table()
    model = few("StaticSubset").get_params()
    fitted = OneSensor(**{k: v for k, v in model.items() if k != "n_jobs" and "__" not in k}).fit(X, y)
    assert np.mean(fitted.predict(X) == y) > 0.6
    assert len(fitted.sensors_) == 1


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("how", ["always", "named"])
def test_auto_takes_it_if_it_says_so(how: str) -> None:
    class Mine(OneSensor):
        method: ClassVar[Method] = Method(name="mine", colour="#123456", auto=how)

    register_method(Mine)
    ladder = Ladder(make_problem(n=60, effort=BRIEF))
    chosen = chosen_methods(ladder, Figures(0.9, 100.0, 1.0), lambda jobs, _: [[] for _ in jobs])
    assert ("mine" in chosen) == (how == "always")


@pytest.mark.usefixtures("registry")
def test_a_class_may_be_defined_again_as_a_notebook_does() -> None:
    register_method(OneSensor)
    again = type("OneSensor", (OneSensor,), {"__module__": __name__, "__qualname__": "OneSensor"})
    assert register_method(again) is METHODS["one-sensor"] is ESTIMATORS["OneSensor"] is again


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("name", "class_name", "message"),
    [
        ("static", "Mine", "a method named 'static' exists; give Mine.method another name"),
        ("static", "StaticSubset", "a method named 'static' exists; give StaticSubset.method another name"),
        (AUTO, "Mine", "a method named 'auto' exists"),
        ("mine", "StaticSubset", "an estimator named StaticSubset exists; give the class another name"),
        ("mine", "AdaptGBRT", "an estimator named AdaptGBRT exists"),
    ],
)
def test_a_name_that_is_taken_is_refused_and_nothing_changes(name: str, class_name: str, message: str) -> None:
    before = dict(METHODS), dict(ESTIMATORS)
    body = {"method": Method(name=name, colour="#123456"), "__module__": __name__, "__qualname__": class_name}
    with pytest.raises(ValueError, match=message):
        register_method(type(class_name, (OneSensor,), body))
    assert dict(METHODS) == before[0]
    assert dict(ESTIMATORS) == before[1]
