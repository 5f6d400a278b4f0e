# SPDX-License-Identifier: Apache-2.0
"""The benchmark of budgets: its meter, its rows, FrugalML's optimum on a toy, and a page that says what was not run."""

from __future__ import annotations

import signal
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import psutil
import pytest
from pyarrow import parquet

from benchmarks import runner
from benchmarks.budgeted import __main__ as budgeted
from benchmarks.budgeted import acquiring, hard_page, masked, page, peers, speed
from benchmarks.budgeted.arena import Drawn, FileError, MethodError, class_of, run
from benchmarks.budgeted.cases import CASES, FIVE_TABLES, cube, cube_costs, cube_nm
from benchmarks.budgeted.frugal import AgreeingApis, Frugal
from benchmarks.budgeted.ours import task
from benchmarks.budgeted.problem import HARD, Meter, OverspentError, Problem, Sensor, Session, Wish
from hardcase_train.settings.toml import read_config
from tests.helpers.places import ROOT

SENSORS = (Sensor("a", (0, 1), 2.0), Sensor("b", (2,), 3.0))


def problem(*wishes: Wish) -> Problem:
    rng = np.random.default_rng(0)
    return Problem("toy", rng.normal(size=(40, 3)), np.arange(40) % 2, SENSORS, wishes)


def session_of(toy: Problem, wish: Wish, X: np.ndarray) -> tuple[Meter, Session]:
    meter = Meter(toy, wish, X)
    return meter, Session(toy, wish, len(X), meter.sell)


def test_a_meter_charges_each_row_once_for_a_sensor() -> None:
    meter, session = session_of(problem(), Wish(1.0), np.arange(12.0).reshape(4, 3))
    assert session.read(0, [1, 3]).tolist() == [[3.0, 4.0], [9.0, 10.0]]
    session.read("a", [3, 3, 2])
    assert session.read("b").tolist() == [[2.0], [5.0], [8.0], [11.0]]
    assert meter.spent.tolist() == [3.0, 5.0, 5.0, 5.0]  # a mean budget is measured, not enforced
    assert session.spent.tolist() == meter.spent.tolist()
    assert session.left.tolist() == [-2.0, -4.0, -4.0, -4.0]


def test_a_mask_reads_the_rows_where_it_is_true() -> None:
    meter, session = session_of(problem(), Wish(9.0), np.arange(12.0).reshape(4, 3))
    assert session.read("b", np.array([False, True, False, True])).tolist() == [[5.0], [11.0]]
    assert session.read("b", []).shape == (0, 1)
    assert meter.spent.tolist() == session.spent.tolist() == [0.0, 3.0, 0.0, 3.0]
    for rows in (1, [[0, 1]], [True, False], [0.5]):
        with pytest.raises(IndexError, match=r"or a mask of shape \(4,\); these have the shape"):
            session.read("a", rows)  # type: ignore[arg-type]
    assert meter.spent.sum() == 6.0


def test_a_hard_budget_sells_nothing_to_any_row_if_one_cannot_pay() -> None:
    meter, session = session_of(problem(), Wish(4.0, HARD), np.zeros((2, 3)))
    session.read(0, [0])
    with pytest.raises(OverspentError):
        session.read(1)
    assert meter.spent.tolist() == [2.0, 0.0]
    assert session.spent.tolist() == [2.0, 0.0]
    session.read(1, [1])
    assert meter.spent.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(("sensor", "rows"), [(2, [0]), (-1, [0]), (0, [4]), (0, [-1]), ("c", [0])])
def test_what_is_not_there_is_not_sold(sensor: int | str, rows: list[int]) -> None:
    meter, session = session_of(problem(), Wish(9.0), np.zeros((4, 3)))
    with pytest.raises((IndexError, KeyError), match=r"there is no sensor|rows are numbered"):
        session.read(sensor, rows)
    assert not meter.spent.any()


TOY = """
import numpy as np


class Mine:
    def fit(self, problem):
        self.most = np.bincount(problem.y).argmax()

    def decide(self, session):
        {0}
"""


@pytest.fixture(scope="module")
def toy() -> Drawn:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    return Drawn(Problem("toy", X, y, SENSORS, (Wish(4.0, HARD),)), X[:8], y[:8], "")


def ran(drawn: Drawn, folder: Path, body: str) -> dict[str, Any]:
    path = folder / "mine.py"
    path.write_text(TOY.format(body), encoding="utf-8")
    return dict(run(drawn, str(path))["wishes"]["hard 4"])


def test_a_method_that_hides_its_purchases_pays_for_them(toy: Drawn, tmp_path: Path) -> None:
    body = """X = session.read(0)
        session.is_read[:] = False
        session.problem.X[:] = 0
        object.__setattr__(session.problem.sensors[1], "cost", 0.0)
        object.__setattr__(session.wish, "budget", 1e9)
        try:
            session.read(1)
        except Exception as e:
            assert type(e).__name__ == "OverspentError"
            return np.zeros(session.n)
        return np.ones(session.n)"""
    found = ran(toy, tmp_path, body)
    assert (found["accuracy"], found["cost"], found["most"], found["refused"]) == (0.5, 2.0, 2.0, 1)
    assert toy.problem.X.any()


def test_what_a_method_starts_ends_with_it(toy: Drawn, tmp_path: Path) -> None:
    body = f"""import subprocess
        child = subprocess.Popen(["sleep", "300"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        raise ValueError("no")"""
    with pytest.raises(MethodError, match="ValueError: no"):
        ran(toy, tmp_path, body)
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "session.read(0, [2]); session.read(1)",
            "OverspentError: b costs 3, and row 2 has 2 left; read only rows whose session.left pays for it (line 10)",
        ),
        ("session.read('c')", "KeyError: 'there is no sensor c; sensors are a, b' (line 10)"),
        ("session.read(0, 3)", "IndexError: rows are a list of their numbers or a mask"),
        ("raise ValueError('two\\nlines')", "hard 4: ValueError: two lines (line 10)"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found' (line 10); install it in "),
        ("return np.zeros(7)", "hard 4: decide gave the shape (7,); return the class of each row, of shape (8,)"),
        ("pass", "hard 4: decide gave None; return the class of each row, of shape (8,)"),
        ("return [[1], [1, 2]]", "inhomogeneous"),
        ("return np.full(8, 0.5)", "hard 4: decide gave 0.5 for row 0; classes are whole numbers, 0 to 1"),
        ("return ['a'] * 8", "decide gave a for row 0"),
        ("import os; os._exit(3)", "its process ended without an answer, with exit status 3"),
    ],
)
def test_what_a_method_does_wrong_is_said_in_one_line(
    toy: Drawn, tmp_path: Path, body: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MethodError, match=r"mine\.py: ") as error:
        ran(toy, tmp_path, body)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert not capfd.readouterr().err  # nor does its process say more


TWO = TOY.format("pass") + TOY.format("pass").replace("Mine", "Other")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "it has no class with fit and decide$"),
        (TOY.replace("decide", "predict"), "it has no class with fit and decide; Mine has fit alone"),
        (TWO, "Mine and Other have fit and decide; leave one, and import others from a file beside it"),
    ],
)
def test_a_file_has_one_method(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=said):
        class_of(tmp_path / "mine.py")
    with pytest.raises(FileError, match="no such file, and no method; methods are hardcase"):
        class_of(tmp_path / "other.py")


def test_a_method_imports_what_stands_beside_its_file(toy: Drawn, tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("ANSWER = 1", encoding="utf-8")
    assert ran(toy, tmp_path, "import beside_mine; return np.full(8, beside_mine.ANSWER)")["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["hard-cube", "--method", "a.py", "--method", "static"], "a.py runs alone; give --method once"),
        (["speed-small", "--method", "a.py"], "speed-small times hardcase alone; a file runs on hard-cube, "),
        (["hard-cube", "--method", "a.py", "--seeds", "0"], "--seeds 0 runs nothing; give 1 or more"),
        (["hard-letters", "--method", "a.py"], "letter.npz"),
        (["hard-cube", "--whole"], "--whole is every case and seed; leave out CASE and --seeds"),
        (["--jobs", "0"], "--jobs 0 runs nothing; give 1 or more"),
    ],
)
def test_a_command_that_would_measure_something_else_is_refused(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARDCASE_DATA", str(tmp_path))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(runner, "unnamed", lambda: "")
    with pytest.raises(SystemExit) as ended:
        runner.run("budgeted", given)
    assert said in f"{ended.value}{capsys.readouterr().err}"


def command(monkeypatch: pytest.MonkeyPatch, run: Callable[..., object], **words: object) -> list[tuple[str, str, str]]:
    """What a command records as case, method and seed, where a run is ``run`` and drawing a case gives its seed."""
    kept: dict[str, Any] = {}
    cases = {name: replace(case, draw=lambda seed: seed) for name, case in CASES.items()}
    monkeypatch.setattr(budgeted, "CASES", cases)
    monkeypatch.setattr(budgeted, "run_method", run)
    monkeypatch.setattr(budgeted, "find_spec", lambda name: name)  # as where all packages are
    monkeypatch.setattr(speed, "CASES", dict.fromkeys(speed.CASES, dict))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    given = {"cases": [], "method": [], "seeds": None, "whole": False, "effort": None, "again": False, "jobs": 2}
    budgeted.run(Namespace(**given | words, known=lambda: kept, save=lambda found: None))
    return [
        (name, method, seed) for name, methods in kept.items() for method, seeds in methods.items() for seed in seeds
    ]


def test_a_command_without_more_words_runs_the_first_seed_of_each_quick_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> dict[str, Any]:
        return {"seconds": 0.0, "wishes": {}}

    brief, every = (command(monkeypatch, run, whole=whole) for whole in (False, True))
    assert set(brief) < set(every)
    assert {name for name, _, _ in brief} == {*CASES, *speed.CASES} - {*page.LONG}
    assert all(seed == str(CASES[name].seeds[0]) for name, _, seed in brief if name in CASES)
    assert {(n, s) for n, _, s in every if n in CASES} == {(n, str(s)) for n, case in CASES.items() for s in case.seeds}


def test_two_methods_run_at_once_and_an_error_ends_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = CASES["hard-cube"].methods
    both, ended, begun = Barrier(2, timeout=60), Event(), []
    monkeypatch.setattr(budgeted, "end_all", ended.set)

    def run(seed: object, method: str, effort: str) -> dict[str, Any]:
        begun.append(method)
        if method in (first, second):
            both.wait()
        if method == first:
            raise MethodError("it failed")
        assert ended.wait(60)
        return {"seconds": 0.0, "wishes": {}}

    with pytest.raises(SystemExit, match="it failed"):
        command(monkeypatch, run, cases=["hard-cube"])
    assert {*begun[:2]} == {first, second}
    assert len(begun) <= 3


@pytest.mark.parametrize(
    ("drawn", "rows"),
    [
        (cube_nm(80, 0.1, 0), "6350030c56bb4bf1"),
        (cube_nm(80, 0.3, 1), "9ee08fde51ddce37"),
        (cube(80, 2), "48c93d3af2b5749e"),
        (cube_costs(80, 3, ()), "a311d701923bb4f4"),
    ],
)
def test_rows_are_fixed_by_the_seed(drawn: Drawn, rows: str) -> None:
    assert drawn.rows == rows


def test_a_context_says_which_block_is_a_cube() -> None:
    drawn = cube_nm(4_000, 0.1, 0)
    X, y = drawn.problem.X, drawn.problem.y
    block, rows = X[:, :5].argmax(axis=1), np.arange(len(y))
    first = X[rows, 5 + 10 * block + y]  # the lowest bit stands at place y
    assert np.abs(first - (y & 1)).std() < 0.11
    assert [len(s.columns) for s in drawn.problem.sensors] == [5] + [1] * 50


def rented(seed: int) -> Problem:
    """Three models of two labels: a free one, which is right where it is confident, and two that are better."""
    rng = np.random.default_rng(seed)
    y, X = rng.integers(0, 2, 60), np.empty((60, 6))
    for k, wrong in enumerate((0.4, 0.2, 0.1)):
        is_wrong = rng.random(60) < wrong
        X[:, 2 * k] = np.where(is_wrong, 1 - y, y)
        X[:, 2 * k + 1] = np.round(np.where(is_wrong, rng.random(60) * 0.7, 0.2 + rng.random(60) * 0.8), 1)
    sensors = tuple(Sensor(f"m{k}", (2 * k, 2 * k + 1), cost) for k, cost in enumerate((0.1, 2.0, 5.0)))
    return Problem("rented", X, y, sensors, (Wish(3.0),))


def best_by_enumeration(toy: Problem, budget: float) -> float:
    """Accuracy of the best mixture of two strategies of one base each, among all rules for both labels."""
    labels, n, points = toy.X[:, 0::2], len(toy.y), []
    right = labels == toy.y[:, None]
    for base in range(3):
        sure = toy.X[:, 2 * base + 1]
        rules = [(base, -1.0), *product([k for k in range(3) if k != base], np.unique(sure))]
        for pair in product(rules, repeat=2):
            cost, quality = toy.costs[base] * n, right[:, base].sum()
            for label, (second, most) in enumerate(pair):
                at = (labels[:, base] == label) & (sure <= most)
                cost += at.sum() * toy.costs[second]
                quality += (right[at, second].astype(int) - right[at, base]).sum()
            points.append((cost / n, quality / n))
    within = [p for p in points if p[0] <= budget]
    beyond = [p for p in points if p[0] > budget]
    best = max(q for _, q in within)
    mixed = [a[1] + (budget - a[0]) / (b[0] - a[0]) * (b[1] - a[1]) for a in within for b in beyond if b[1] > best]
    return max([best, *mixed])


@pytest.mark.parametrize("budget", [0.1, 1.0, 2.5, 4.0])
def test_frugalml_finds_the_best_mixture_of_strategies(budget: float) -> None:
    toy, method = rented(3), Frugal()
    method.fit(toy)
    costs, accuracies = zip(*method.points, strict=True)
    assert np.interp(budget, costs, accuracies) == pytest.approx(best_by_enumeration(toy, budget), abs=1e-12)


def test_apis_that_agree_answer_and_an_expert_is_asked_where_they_differ() -> None:
    labels = np.array([[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 1]] * 10)
    X, y = np.zeros((60, 6)), np.array([0, 0, 1, 1, 0, 1] * 10)
    X[:, 0::2] = labels
    sensors = tuple(Sensor(f"m{k}", (2 * k, 2 * k + 1), cost) for k, cost in enumerate((1.0, 1.0, 4.0)))
    toy, method = Problem("agreeing", X, y, sensors, (Wish(5.0),)), AgreeingApis()
    method.fit(toy)
    session = session_of(toy, Wish(5.0), X)[1]
    assert (method.decide(session) == y).all()
    assert session.spent.tolist() == [2.0, 6.0, 6.0, 2.0, 6.0, 6.0] * 10


def test_frugalml_spends_on_average_what_the_budget_says() -> None:
    toy, method = rented(3), Frugal()
    method.fit(toy)
    session = session_of(toy, Wish(2.5), np.tile(toy.X, (400, 1)))[1]
    method.decide(session)
    assert session.spent.mean() == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize("kind", [peers.CascadeByHand, peers.Agreement])
def test_peers_keep_a_hard_budget_and_a_mean_one_out_of_fold(
    kind: type[peers.CascadeByHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "N_TREES", 8)
    drawn = cube(200, 0)
    wishes = (Wish(4.0), Wish(3.0, HARD))
    known = Problem("cube", drawn.problem.X, drawn.problem.y, drawn.problem.sensors, wishes)
    method = kind()
    method.fit(known)
    for wish in wishes:
        session = session_of(known, wish, drawn.X_test[:300])[1]
        assert method.decide(session).shape == (300,)
        assert session.spent.mean() <= 1.1 * wish.budget


def test_the_table_of_a_problem_is_one_that_hardcase_takes(tmp_path: Path) -> None:
    toy = Problem("x", rented(0).X, rented(0).y, rented(0).sensors, (Wish(1.0),), texts=frozenset({0, 2, 4}))
    config = task(tmp_path, toy, "quick")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table["c0"][0].as_py() in ("is 0", "is 1")
    parts = table["part"].to_pylist()
    assert [parts.count(p) / len(parts) for p in ("train", "valid", "test")] == pytest.approx(
        [0.9, 0.05, 0.05], abs=0.05
    )
    assert [s.cost for s in read_config(config).sensors] == [0.1, 2.0, 5.0]
    task(tmp_path, toy, "quick", is_split=False)
    assert "part" not in parquet.read_schema(tmp_path / "rows.parquet").names


def made(points: dict[str, tuple[float, float]]) -> dict[str, Any]:
    wishes = {w: {"accuracy": a, "cost": c, "cost_se": 0.0, "most": c, "n": 10} for w, (a, c) in points.items()}
    return {"seconds": 1.0, "rows": "", "wishes": wishes}


def test_the_method_of_the_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "benchmarks" / "own_method.md").read_text(encoding="utf-8")
    source = text.partition("```python\n")[2].partition("```")[0]
    assert len(source.splitlines()) <= 40
    (tmp_path / "my_method.py").write_text(source, encoding="utf-8")
    found = run(cube(200, 0, (Wish(3.0, HARD), Wish(5.0))), str(tmp_path / "my_method.py"))["wishes"]
    assert found["hard 3"]["most"] == 3.0
    assert found["mean 5"]["accuracy"] > 0.4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """CUBE with few rows, and models that learn from few."""
    for name, value in (("COPIES", 1_500), ("HIDDEN", 16), ("EPOCHS", 4)):
        monkeypatch.setattr(masked, name, value)
    for name, value in (("SAMPLES", 800), ("FINAL", 600), ("TRIED", 30), ("PLANS", 12), ("HIDDEN", 16)):
        monkeypatch.setattr(acquiring, name, value)
    return cube(200, 0, (Wish(3.0, HARD), Wish(5.0, HARD)))


@pytest.mark.parametrize("kind", [acquiring.Aaco, acquiring.Greedy])
def test_acquisition_spends_a_hard_budget_and_beats_the_prior(small: Drawn, kind: type[acquiring.Greedy]) -> None:
    method = kind()
    method.fit(small.problem)
    for wish in small.problem.wishes:
        meter, session = session_of(small.problem, wish, small.X_test[:200])
        right = (method.decide(session) == small.y_test[:200]).mean()
        assert meter.spent.tolist() == [wish.budget] * 200
        assert right > 0.3  # of eight classes


@pytest.mark.parametrize("kind", [masked.Bayes, masked.Network])
def test_terms_of_sensors_add_up_to_a_model_s_chances(small: Drawn, kind: type[masked.Bayes]) -> None:
    inputs = masked.Inputs(small.problem)
    rows = masked.Rows(inputs, inputs(small.problem.X), small.problem.y, 8, 0)
    rng = np.random.default_rng(0)
    sets = masked.random_sets(200, small.problem.costs, 5.0, rng)
    assert (sets.sum(axis=1) <= 5).all()
    assert set(sets.sum(axis=1)) == {0, 1, 2, 3, 4, 5}
    model = rows.fitted(kind, lambda at: sets[at], 400)
    sums = model.base + np.einsum("ns,nsh->nh", sets.astype(np.float32), model.terms(rows.X))
    assert np.allclose(model.finish(sums), model.chances(rows.X, sets), atol=1e-4)


def test_boosting_with_costs_reads_what_the_budget_pays_for() -> None:
    drawn = cube_costs(200, 0, (Wish(3.0, HARD),))
    method = acquiring.Cegb()
    method.fit(drawn.problem)
    meter, session = session_of(drawn.problem, drawn.problem.wishes[0], drawn.X_test[:50])
    assert method.decide(session).shape == (50,)
    assert 0 < meter.spent.max() <= 3.0


def test_a_page_of_hard_budgets_begins_with_what_is_missed() -> None:
    def of(accuracy: float) -> dict[str, Any]:
        return {str(s): made({f"hard {b}": (accuracy + s / 1000, b) for b in (3, 5, 10)}) for s in range(3)}

    text = hard_page.hard_part({"hard-cube": {"hardcase": of(0.9), "AACO": of(0.8), "GDFS order": of(0.95)}})
    assert "- CUBE: ahead of GDFS order at 0 of 3 budgets; behind by -0.0500 ± 0.0000 at 3," in text
    assert "CUBE: ahead of AACO" not in text
    assert "- MNIST, 49 patches: not run beside AACO." in text
    assert "| AACO (3 instances) | 0.8010 ± 0.0025 (+0.1000 ± 0.0000) |" in text


def test_a_method_of_a_file_stands_beside_others_on_its_own_instances() -> None:
    def of(*accuracies: float) -> dict[str, Any]:
        return {str(s): made({"hard 3": (a, s + 1.0), "mean 5": (a, 4.5)}) for s, a in enumerate(accuracies)}

    found = {"hardcase": of(0.9, 0.2, 0.2), "static": of(0.85), "/far/mine.py": of(0.8, 0.3)}
    assert hard_page.beside("x", found, "/far/mine.py").splitlines() == [
        "x, 2 instances",
        "  hard 3: accuracy, largest cost of a row, and how far mine.py is ahead",
        "    mine.py   0.5500 ± 3.1766  2",
        "    hardcase  0.5500 ± 4.4472  2       +0.0000 ± 1.2706 level",
        "    static    0.8500           1       -0.0500 (one instance)",
        "  mean 5: accuracy, mean cost of a row, and how far mine.py is ahead",
        "    mine.py   0.5500 ± 3.1766  4.50",
        "    hardcase  0.5500 ± 4.4472  4.50    +0.0000 ± 1.2706 level",
        "    static    0.8500           4.50    -0.0500 (one instance)",
    ]


def test_a_page_says_what_was_not_run_and_what_was_missed() -> None:
    empty = page.page({})
    assert empty.count("not run") >= len(page.LEAST) + len(page.BELOW) + 3
    table = {m: {"0": made({"mean 2": (0.8, 2.0), "mean 4": (0.9, cost)})} for m, cost in
             (("hardcase", 4.0), ("cascade by hand", 6.0))}  # fmt: skip
    table["all sensors"] = {"0": made({"mean 2": (0.91, 10.0)})}
    rented = {"hardcase": {"100": made({"mean 3": (0.72, 3.2), "mean 5": (0.7, 5.05)})}}
    digit = {"hardcase": {"10": made({"mean 5": (0.7, 5.0)})}, "best API": {"10": made({"mean 5": (0.69, 5.0)})},
             "FrugalML": {s: made({"mean 5": (0.6 + 0.08 * (s == "10"), 5.0)}) for s in ("10", "100")}}  # fmt: skip
    text = page.page({"rooms": table, "rafdb": rented, "digit": digit})
    assert "| Rooms | 4.00 | 6.00 | 0.67 | 1 |" in text
    assert "| 0.715 | 0.7200 (1 of 5 seeds) | **costs 7 % more** than the budget |" in text
    assert "| RAFDB: faces: accuracy, mean cost 5 | 0.745 | 0.7000 (1 of 5 seeds) | **missed** by 0.045 |" in text
    assert "mean cost 5 | 0.6900 (FrugalML or best API) | 0.7000 (1 of 5 seeds) | reached |" not in text  # of seed 10
    whole = page.whole({"rooms": table, "rafdb": rented, "digit": digit})
    assert "mean cost 5 | 0.6900 (FrugalML or best API) | 0.7000 (1 of 5 seeds) | reached |" in whole
    assert "(0.7200) @ 3.20" in text  # beyond the budget
    assert text.index("goals are missed") < text.index("## Hard budgets")
    assert "### Rooms" not in text
    assert "### Rooms" in page.whole({"rooms": table})
    assert "not all run" in text
    assert set(FIVE_TABLES) < set(CASES)


def test_the_cost_at_a_loss_lies_between_the_points_of_a_curve() -> None:
    curve = made({"mean 1": (0.5, 1.0), "mean 2": (0.4, 2.0), "mean 3": (0.7, 3.0)})
    assert page.cost_at(curve, 0.6, 9.0) == pytest.approx(2.0)
    assert page.cost_at(curve, 0.4, 9.0) == 1.0
    assert page.cost_at(curve, 0.8, 9.0) == 9.0


def test_a_staged_ebm_buys_the_terms_of_its_order_until_the_lead_is_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    class Machine:
        classes_, term_features_, n_features_in_, intercept_ = np.arange(2), [(0,), (1,), (2,)], 3, np.array([0.5])

        def eval_terms(self, X: np.ndarray) -> np.ndarray:
            return np.nan_to_num(X, nan=7.0)

        def term_importances(self) -> np.ndarray:
            return np.array([1.0, 1.0, 9.0])

    monkeypatch.setattr(peers, "ebm", lambda X, y, seed: Machine())
    toy = problem(Wish(3.5), Wish(3.0, HARD))
    method = peers.StagedEbm()
    method.fit(toy)
    assert method.order == [1, 0]  # 9 for a cost of 3, and 2 for a cost of 2
    method.plans = {Wish(3.5): (2, 2.0), Wish(3.0, HARD): (1, np.inf)}
    X = np.array([[9.0, 9.0, 2.0], [-1.0, -0.4, 1.0], [1.0, 1.0, -1.0]])
    for wish, answer, spent in ((Wish(3.5), [1, 1, 1], [3.0, 5.0, 5.0]), (Wish(3.0, HARD), [1, 1, 0], [3.0] * 3)):
        meter, session = session_of(toy, wish, X)
        assert method.decide(session).tolist() == answer
        assert meter.spent.tolist() == spent
