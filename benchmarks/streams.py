# SPDX-License-Identifier: Apache-2.0
"""Streams: when to buy the whole window, and what holding the label costs, at 10, 20 and 30 % of the windows.

    HARDCASE_DATA=FOLDER python -m benchmarks run streams
    HARDCASE_DATA=FOLDER python -m benchmarks run streams --only 3   # run one fold, or "room", again; the others' stay

WISDM (``wisdm_transformed.npz``): windows of 10 s of a phone's accelerometer, of 36 people and six activities. The
means of two axes are watched in every window, the other 41 features are bought. Six folds of people; thresholds come
from the other people. And the occupied room of ``examples/streams``, whose last recording is the test.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.learning_cases import data
from benchmarks.pages import ROOT, markdown, rest
from hardcase.training.build import configure
from hardcase_edge.more.batch.choices import margins_of
from hardcase_edge.program.definition import MARGIN, MICRO, Branch, Costs, Feature, Sensor, Slice, Uplink
from hardcase_edge.program.readings import request_bytes
from hardcase_train.data.problem import Problem, Rows
from hardcase_train.data.split import deal
from hardcase_train.methods.baselines.static import StaticSubset
from hardcase_train.methods.streams import duty_cycle, held
from hardcase_train.methods.streams.duty_cycle import DutyCycle
from hardcase_train.methods.streams.held import Held
from hardcase_train.policy.answers import bare_answer
from hardcase_train.policy.compile import buy, policy_of
from hardcase_train.policy.front import Point, with_test
from hardcase_train.policy.selection import Judge
from hardcase_train.stages.subset_search import SubsetSearch
from hardcase_train.tasks.task import make_task

FILE = "wisdm_transformed.npz"
WATCHED = ("YAVG", "ZAVG")
N_FOLDS, ROOM = 6, "room"
TARGETS = (0.1, 0.2, 0.3)
GOALS = (6.0, 1.0, 0.0)  # points that ``held`` may lose on WISDM
AHEAD = 1.0  # points that it must be better than a duty cycle
SHARES, PERIODS = (0.12, 0.17, 0.23, 0.3, 0.4, 0.5, 0.65), (2, 3, 4, 5, 7, 10, 14)  # around the targets
KIND = "forest"
CHEAP, DEAR = 0, 1  # sensors
DESIGNS = ("alone", "corrected")  # of the answers of ``held``
SECOND = "Trees that know the label held before gained over the readings alone (paired):\n\n"
METHODS = {
    "held": "`held`",
    "alone": "its answers by readings alone",
    "corrected": "its answers corrected",
    "duty": "`duty-cycle`",
    "gate": "margin gate",
}


def wisdm() -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The arrays, and the rows of each of six folds of people."""
    arrays = data(FILE)
    user, y = (arrays[key].astype(np.int64) for key in ("user", "y"))
    fold = deal(user, y, 0, [1 / N_FOLDS] * N_FOLDS, [1] * N_FOLDS)
    return arrays, [np.flatnonzero(fold == k) for k in range(N_FOLDS)]


def wisdm_problem(arrays: dict[str, np.ndarray], test: np.ndarray, valid: np.ndarray) -> Problem:
    """Two sensors, watched for nothing and bought for 1; the rows of these two folds test and validate."""
    X, y, user = arrays["X"].astype(np.float64), arrays["y"].astype(np.int64), arrays["user"].astype(np.int64)
    names = [str(name) for name in arrays["feature_names"]]
    n, watched = X.shape[1], tuple(names.index(name) for name in WATCHED)
    n_classes = int(y.max()) + 1

    def rows(numbers: np.ndarray) -> Rows:
        flat = np.full((len(numbers), n_classes), 1 / n_classes)  # no policy here asks f0
        return Rows(X[numbers], y[numbers], flat, numbers, group=user[numbers], sequence=user[numbers])

    train = np.setdiff1d(np.arange(len(y)), np.concatenate([test, valid]))
    return Problem(
        features=tuple(Feature("f32", nullable=bool(np.isnan(X[:, k]).any())) for k in range(n)),
        sensors=(Sensor(watched, (0,)), Sensor(tuple(k for k in range(n) if k not in watched), (MICRO,))),
        uplink=Uplink(request_bytes(["f32"] * n), tuple(range(n))),
        costs=Costs(cloud_per_request=10 * MICRO),
        n_classes=n_classes,
        train=rows(train),
        valid=rows(valid),
        test=rows(test),
    )


def room_problem() -> Problem:
    """The example's, with sensors that cost nothing and 1."""
    problem = make_task(configure(Path(ROOT / "examples" / "streams" / "hardcase.toml"))).problem
    cheap, dear = problem.sensors
    return replace(problem, sensors=(replace(cheap, cost=(0,)), replace(dear, cost=(MICRO,))))


# ---------------------------------------------------------------- one test


def gate_points(search: SubsetSearch) -> list[Point]:
    """Points of the margin gate, by rising share."""
    problem, judge = search.problem, search.judge
    first, last = search.models([(CHEAP,), (CHEAP, DEAR)], KIND, are_cut=False)
    start = buy((CHEAP,), 0)
    at, points = len(start), []
    for share in np.linspace(0, 1, 15)[1:-1]:
        cut = float(np.quantile(margins_of(first.scores), share))
        branch = Branch(Slice(0, 0, problem.n_outputs), MARGIN, (at + 2, at + 1), cut)
        nodes = [*start, branch, bare_answer(problem, 0), *buy((DEAR,), at + 2), bare_answer(problem, 1)]
        policy = policy_of(problem, [first.part, last.part], nodes)
        figures = judge.summary(judge.run(policy.program(), [first, last]))
        points.append(Point("gate", {}, figures, None, policy))
    return points


def tested(problem: Problem) -> dict[str, Any]:
    """Quality of buying every window, and of each method at each target: quality and share, on test rows."""
    search = SubsetSearch(Judge(problem), 2)
    everything = {"sensors": [CHEAP, DEAR], "classifier": KIND}
    (always,) = with_test(problem, StaticSubset.run(search, everything))
    own = Held.run(search, everything | {"cheap": [CHEAP]})
    points = {
        **{name: [p for p in own if p.params["corrected"] == (name == "corrected")] for name in DESIGNS},
        "duty": DutyCycle.run(search, everything),
        "gate": gate_points(search),
    }
    found: dict[str, Any] = {"always": always.test.quality, "judged": always.valid.quality}
    for name, own in points.items():
        found[name] = [at_share([*with_test(problem, own), always], share) for share in TARGETS]
    best = max(DESIGNS, key=lambda name: sum(figures["judged"] for figures in found[name]))
    return found | {"held": found[best]}


def at_share(points: list[Point], share: float) -> dict[str, float]:
    """Figures where the share of purchases on judged rows is this: between two neighbours, mixed linearly."""
    order = sorted(points, key=lambda p: p.valid.cost)
    judged = [p.valid.cost for p in order]
    figures = {
        "quality": [p.test.quality for p in order],
        "bought": [p.test.cost for p in order],
        "judged": [p.valid.quality for p in order],
    }
    return {name: float(np.interp(share, judged, values)) for name, values in figures.items()}


def measure(names: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """The folds of WISDM and the room with these names, printed as they are done, beside the figures that are known."""
    # all thresholds, not the best alone
    duty_cycle.best_points = held.best_points = list  # type: ignore[assignment,attr-defined]
    held.better = lambda designs, cuts, point: designs  # both, to show each
    held.SHARES, duty_cycle.PERIODS = SHARES, PERIODS
    for name in names:
        if name == ROOM:
            known[ROOM] = tested(room_problem())
        else:
            arrays, folds = wisdm()
            test, valid = (folds[k % N_FOLDS] for k in (int(name), int(name) + 1))
            known[name] = tested(wisdm_problem(arrays, test, valid)) | {"n": len(test)}
        print(name, lost([known[name]]), flush=True)
    return dict(sorted(known.items()))


# ---------------------------------------------------------------- the page


def lost(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Mean loss of each method at each target, in points."""
    return {m: [round(float(np.mean(losses(runs, m, k))), 2) for k in range(len(TARGETS))] for m in METHODS}


def losses(runs: list[dict[str, Any]], method: str, target: int) -> np.ndarray:
    """Loss in points of each run."""
    return np.array([100 * (run["always"] - run[method][target]["quality"]) for run in runs])


def interval(values: np.ndarray) -> str:
    """Mean, and half of its 95 % interval over folds."""
    if len(values) < 2:
        return f"{values.mean():.1f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.1f} ± {half:.1f}"


def table(runs: list[dict[str, Any]]) -> str:
    """Losses and shares."""
    titles = ["", *(title for t in TARGETS for title in (f"loss at {t:.0%}", "bought"))]
    rows = []
    for method, name in METHODS.items():
        cells = [name]
        for k in range(len(TARGETS)):
            cells += [interval(losses(runs, method, k)), f"{np.mean([r[method][k]['bought'] for r in runs]):.1%}"]
        rows.append(cells)
    return markdown(titles, rows)


def verdicts(runs: list[dict[str, Any]]) -> str:
    """What the goals were, and which were met."""
    lines = []
    for k, (target, goal) in enumerate(zip(TARGETS, GOALS, strict=True)):
        own, other = losses(runs, "held", k), losses(runs, "duty", k)
        ahead = other - own
        met, is_ahead = own.mean() <= goal + 0.05, ahead.mean() >= AHEAD
        lines.append(
            f"- {target:.0%}: goal {goal:.0f} points, {'met' if met else 'missed'} ({own.mean():.1f}); at least "
            f"{AHEAD:.0f} better than the duty cycle, {'met' if is_ahead else 'missed'} ({interval(ahead)}, paired)"
        )
    return "\n".join(lines)


def designs(runs: list[dict[str, Any]]) -> str:
    """What correcting answers gained, on judged rows, which chose it, and on test rows."""
    lines = []
    for k, target in enumerate(TARGETS):
        judged = np.array([100 * (run["corrected"][k]["judged"] - run["alone"][k]["judged"]) for run in runs])
        test = losses(runs, "alone", k) - losses(runs, "corrected", k)
        lines.append(f"- {target:.0%}: {interval(judged)} points on judged rows, {interval(test)} on test rows")
    n = sum(run["held"] == run["corrected"] for run in runs)
    return "\n".join([*lines, f"- judged rows chose it in {n} of {len(runs)} folds"])


def text_of(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    runs, room = [run for name, run in measured.items() if name != ROOM], measured[ROOM]
    n = sum(run["n"] for run in runs)
    always = np.array([run["always"] for run in runs])
    return f"""
## People who walk, jog, sit, stand and climb

WISDM's {n} windows of 36 people (Kwapisz, Weiss and Moore, 2010), {len(runs)} folds of people; another \
fold validates.
Watched are the means of two axes, which give the posture, and bought the other 41 features of the window.
Every window bought: accuracy {always.mean():.3f} (folds {always.min():.3f} to {always.max():.3f}).

{table(runs)}

{verdicts(runs)}

{rest("what a second design of the answer gained", SECOND + designs(runs))}
## An occupied room

The example of `examples/streams`, every third minute of two weeks (UCI Occupancy Detection, CC BY 4.0); one recording \
trains, one validates and one tests.
Watched are temperature and humidity, and bought light and CO2.
Every window bought: accuracy {room["always"]:.3f}.

{table([room])}

The label changes 114 times in 20,560 minutes: here a duty cycle is the better choice.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--only", nargs="*", choices=(*map(str, range(N_FOLDS)), ROOM))


def run(args: Any) -> Any:
    """Measure all, or some beside what was measured before."""
    return measure(args.only or [*map(str, range(N_FOLDS)), ROOM], args.known() if args.only else {})


def page(figures: dict[str, Any]) -> str:
    """The page, once all folds and the room have been run."""
    return text_of(figures) if len(figures) > N_FOLDS else ""
