# SPDX-License-Identifier: Apache-2.0
"""How often a promise holds: many draws of calibration rows from populations whose true figures are known.

    python -m benchmarks run promise [--draws 1000]

A population is a table of what each policy does on each case. Calibration rows are drawn from it with replacement, so
that the truth is the population's own share, exactly. Beside the promise stands the naive rule: the cheapest policy
whose figures on the same rows are within the terms.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from benchmarks.pages import ROOT
from hardcase_edge.more.fronts.front import Judged
from hardcase_export.drafts.front import Point
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.decide import decisions
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import candidates
from hardcase_export.picking.risk_choice import RiskTerms, find
from hardcase_export.picking.risk_test import Counts, ValidationRates

if TYPE_CHECKING:
    from collections.abc import Callable

    from hardcase_export.integers.point import IntegerPoint

EXAMPLE = ROOT / "examples" / "hydraulic" / "hardcase.toml"
MISUSE = "200 machines, rows taken for independent"  # the one promise that may break
N_CASES = 100_000  # of an invented population
N_JUDGED = 2_000  # of these cases, on which its policies are judged
N_ALIKE = 50  # cases of a machine


@dataclass(frozen=True)
class Population:
    """What K policies do on n cases; ``points`` carry their judged figures and, in ``params["k"]``, their row here."""

    points: list[Point]
    local: np.ndarray  # (K, n) bool: answered without the cloud
    right: np.ndarray  # (K, n) bool: the answer, wherever it comes from
    f0_right: np.ndarray  # (n,) bool
    cost: np.ndarray  # (K,) mean of all cases
    known: tuple[np.ndarray, np.ndarray]  # ``local`` and ``right`` of cases that are known before rows are drawn

    def counts(self, k: int, rows: np.ndarray | slice = slice(None), group_size: int = 0) -> Counts:
        """Of policy k on these rows; ``group_size``: so many neighbours are a group, 0 for no groups."""
        local, right = self.local[k, rows], self.right[k, rows]
        f0_right = self.f0_right[rows]
        found = np.array([local, local & ~right, local & ~right & f0_right, local & right & ~f0_right])
        groups = found.reshape(4, -1, group_size).sum(axis=2).T.tolist() if group_size else []
        n_local, errors, worse, better = found.sum(axis=1).tolist()
        return Counts(len(local), n_local, errors, worse, better, tuple(Counts(group_size, *group) for group in groups))


@dataclass(frozen=True)
class Draw:
    """A trial on rows drawn from a population."""

    population: Population
    drawn: np.ndarray
    group_size: int = 0
    name: str = "the draw"
    seen: dict[int, Counts] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.drawn)

    @property
    def groups(self) -> int:
        return len(self.drawn) // self.group_size if self.group_size else 0

    def can_forward(self, point: Point) -> bool:
        """Of an invented policy nothing is proved."""
        return True

    def counts(self, point: Point) -> Counts:
        """On the drawn rows."""
        k = point.params["k"]
        if k not in self.seen:
            self.seen[k] = self.population.counts(k, self.drawn, self.group_size)
        return self.seen[k]

    def expected(self, point: Point) -> dict[str, float]:
        """No population has parts."""
        return {}

    def judged(self, point: Point) -> ValidationRates:
        """As the point says; populations have classes."""
        v = point.valid
        return ValidationRates(v.forward_rate, v.local_error or 0.0, v.local_worse or 0.0, v.local_better or 0.0)


def shares(counts: Counts) -> tuple[float, float, float, float]:
    """Forward rate, and of the local answers: wrong, worse than f0, better than f0."""
    local = max(counts.local, 1)
    return counts.forwarded / counts.rows, counts.errors / local, counts.worse / local, counts.better / local


def breaks(counts: Counts, terms: RiskTerms, max_forward: float | None) -> bool:
    """Are these counts outside the terms?"""
    rate, error, worse, better = shares(counts)
    risk = worse - better if terms.is_excess else error
    return risk > terms.risk or (max_forward is not None and rate > max_forward)


def naive(population: Population, terms: RiskTerms, drawn: np.ndarray) -> int | None:
    """The cheapest policy whose own figures on the drawn rows are within the terms."""
    for point in sorted(population.points, key=lambda p: p.valid.cost):
        counts = population.counts(point.params["k"], drawn)
        if counts.local and not breaks(counts, terms, terms.max_forward):
            return int(point.params["k"])
    return None


def simulate(
    population: Population,
    terms: RiskTerms,
    n: int,
    draws: int,
    alike: int = 1,
    is_grouped: bool = False,
    seed: int = 0,
    peer: Callable[[np.ndarray], int | None] | None = None,
) -> dict[str, Any]:
    """Both rules on so many draws of n rows: how often each holds, and what its picks cost and forward.

    Parameters
    ----------
    alike : cases of a machine, which are drawn together
    is_grouped : whether the promise counts machines; else it takes all rows for independent
    peer : MAPIE's rule, from drawn rows to a policy; None: it is not asked
    """
    rng = np.random.default_rng(seed)
    size = population.local.shape[1]
    truth = [population.counts(k) for k in range(len(population.cost))]
    runs: dict[str, list[tuple[int, bool]]] = {"promise": [], "naive": []} | ({"mapie": []} if peer else {})
    for _ in range(draws):
        drawn = (rng.integers(0, size // alike, n // alike)[:, None] * alike + np.arange(alike)).ravel()
        picks = {"naive": naive(population, terms, drawn)} | ({"mapie": peer(drawn)} if peer else {})
        for name, k in picks.items():
            if k is not None:
                runs[name].append((k, breaks(truth[k], terms, terms.max_forward)))
        found = find(population.points, terms, Draw(population, drawn, alike if is_grouped else 0))
        if found is not None:
            k = found[0].params["k"]
            runs["promise"].append((k, breaks(truth[k], terms, found[1].max_forward)))
    return {name: _summary(picks, population, truth, draws) for name, picks in runs.items()}


def _summary(picks: list[tuple[int, bool]], population: Population, truth: list[Counts], draws: int) -> dict[str, Any]:
    broken = sum(b for _, b in picks)
    return {
        "draws": draws,
        "picked": len(picks),
        "broken": broken,
        "held": 1 - broken / draws,
        "cost": float(np.mean([population.cost[k] for k, _ in picks])) if picks else None,
        "forward_rate": float(np.mean([shares(truth[k])[0] for k, _ in picks])) if picks else None,
    }


# ---------------------------------------------------------------- populations


def _population(
    local: np.ndarray, wrong: np.ndarray, f0_right: np.ndarray, cost: np.ndarray, judged: np.ndarray
) -> Population:
    """``wrong`` (K, n): what the device would answer; ``judged``: the cases on which figures are taken."""
    right = np.where(local, ~wrong, f0_right)
    known = local[:, judged], right[:, judged]
    whole = Population([], local, right, f0_right, cost, known)
    points = []
    for k in range(len(cost)):
        rate, *of_local = shares(whole.counts(k, judged))
        figures = Judged(float(right[k, judged].mean()), float(cost[k]), rate, 0.0, 0.0, *of_local)
        points.append(Point("invented", {"k": k}, figures, figures, f"policy-{k}"))
    return Population(points, local, right, f0_right, cost, known)


def gates(seed: int = 0) -> Population:
    """One gate at 40 thresholds: a local answer to a case of hardness s is wrong with a chance that grows with s.

    Of the cases up to hardness t, t^2 / 5 are wrong: a risk of 0.05 is true at t = 0.5, between two thresholds.
    """
    rng = np.random.default_rng(seed)
    hardness = rng.random(N_CASES)
    wrong, f0_right = rng.random(N_CASES) < 0.6 * hardness**2, rng.random(N_CASES) >= 0.03
    t = np.linspace(0.205, 0.985, 40)
    local = hardness < t[:, None]
    return _population(local, np.tile(wrong, (len(t), 1)), f0_right, 1 + 99 * (1 - t), np.arange(N_JUDGED))


def machines(seed: int = 0) -> Population:
    """The gate of ``gates``; one machine in five makes five times its share of the errors, and the others none."""
    rng = np.random.default_rng(seed)
    hardness = rng.random(N_CASES)
    errs = np.repeat(rng.random(N_CASES // N_ALIKE) < 0.2, N_ALIKE)
    wrong, f0_right = rng.random(N_CASES) < errs * np.minimum(1, 3 * hardness**2), rng.random(N_CASES) >= 0.03
    t = np.linspace(0.205, 0.985, 40)
    local = hardness < t[:, None]
    return _population(local, np.tile(wrong, (len(t), 1)), f0_right, 1 + 99 * (1 - t), np.arange(N_JUDGED))


def flattered(risk: float, seed: int = 0) -> Population:
    """Twenty policies, each a little riskier than ``risk`` in truth, and judged without an error: no pick is right."""
    rng = np.random.default_rng(seed)
    shape = (20, N_CASES)
    local, wrong = rng.random(shape) < 0.9, rng.random(shape) < 1.05 * risk
    judged = np.flatnonzero(~wrong.any(axis=0))[:N_JUDGED]
    return _population(local, wrong, np.ones(N_CASES, dtype=bool), np.linspace(10, 5, 20), judged)


def rig(folder: Path) -> Population:
    """The hydraulic rig: the integers of every policy of one training run, on its calibration and test rows, pooled."""
    from hardcase.cli import main

    build = folder / "build"
    if main(["train", str(EXAMPLE), "--out", str(build), "--seed", "0", "--quiet"]) != 0:
        raise SystemExit("training failed")
    points, made, known, trained = [], [], [], Build(build)
    for k, point in enumerate(candidates(trained.front, None)):
        done = trained.integers(point, 0.99)
        local, right, cost, f0_right = _decided(build, done, "calibration", "test")
        made.append((local, right, cost, f0_right))
        known.append(_decided(build, done, "valid")[:2])
        points.append(Point(point.method, {"k": k}, point.valid, point.test, point.program))
    local, right, cost, f0_right = (np.array(x) for x in zip(*made, strict=True))
    before = np.array([x for x, _ in known]), np.array([x for _, x in known])
    return Population(points, local, right, f0_right[0], cost, before)


def _decided(build: Path, done: IntegerPoint, *names: str) -> tuple[Any, ...]:
    """Of the integers on the build's rows of these parts: local or not, right or not, mean cost, f0 right or not."""
    parts = [read_rows(build / f"{name}.npz", done.manifest) for name in names]
    X, y, hpc = (np.concatenate([getattr(p, key) for p in parts]) for key in ("X", "y", "hpc"))
    decided = decisions(done.quantised.program, X, hpc)
    local, right = [d.route != "cloud" for d in decided], [d.result for d in decided] == y
    return local, right, np.mean([d.cost for d in decided]) / 1e6, hpc == y


# ---------------------------------------------------------------- the page


def scenarios(rig_population: Population) -> dict[str, tuple[Any, ...]]:
    """Name; population, terms, calibration rows; cases of a machine, and whether machines are counted."""
    one_gate, alike = gates(), machines()
    return {
        "one gate, 40 thresholds": (one_gate, RiskTerms(0.05), 500),
        "one gate, many rows": (one_gate, RiskTerms(0.05), 5000),
        "one gate, at most 75 % forwarded": (one_gate, RiskTerms(0.05, max_forward=0.75), 1000),
        "one gate, excess": (one_gate, RiskTerms(0.02, is_excess=True), 1000),
        "all flattered, error": (flattered(0.05), RiskTerms(0.05), 500),
        "all flattered, excess": (flattered(0.05), RiskTerms(0.05, is_excess=True), 500),
        "rig": (rig_population, RiskTerms(0.03), 220),
        "rig, excess": (rig_population, RiskTerms(0.02, is_excess=True), 220),
        "rig, delta 0.2": (rig_population, RiskTerms(0.03, delta=0.2), 220),
        "200 machines, counted": (alike, RiskTerms(0.1), 10_000, N_ALIKE, True),
        "200 machines, excess, counted": (alike, RiskTerms(0.07, is_excess=True), 10_000, N_ALIKE, True),
        MISUSE: (alike, RiskTerms(0.1), 10_000, N_ALIKE, False),
    }


def row(name: str, r: dict[str, Any]) -> list[str]:
    """The cells of one scenario's line of the table."""
    t, n, made, plain = (r[key] for key in ("terms", "rows", "promise", "naive"))
    what = "excess" if t["is_excess"] else "error"
    cells = [name, f"{what} {t['risk']:g}", f"{t['delta']:g}", f"{n:,}"]
    for x in (made, plain):
        cells += [f"{x['picked'] / x['draws']:.1%}", f"{x['broken'] / x['draws']:.1%}"]
        cells += ["" if x["cost"] is None else f"{x['cost']:.1f}, {x['forward_rate']:.1%}"]
    return cells


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    from benchmarks.pages import markdown
    from benchmarks.promise_peer import peer_section

    titles = ("population", "terms", "delta", "rows", "promised", "broken", "cost, forwarded")
    titles += ("naive: picked", "naive: broken", "naive: cost, forwarded")
    draws = next(iter(measured.values()))["promise"]["draws"]
    table = markdown(titles, [row(name, r) for name, r in measured.items()])
    return f"\n{draws:,} draws each.\n\n{table}\n{peer_section(measured)}"


def measure(draws: int) -> dict[str, Any]:
    """Every scenario, the rig's among them."""
    with tempfile.TemporaryDirectory() as folder:
        return each(scenarios(rig(Path(folder))), draws)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--draws", type=int, default=1000)


def run(args: Any) -> Any:
    """Measure, and print each row as it is done."""
    return measure(args.draws)


def problems(measured: dict[str, Any]) -> list[str]:
    """Promises that were broken oftener than they may be."""
    return [
        f"{name}: broken oftener than delta says, and than chance allows once in 1,000"
        for name, r in measured.items()
        if name != MISUSE and r["promise"]["broken"] > allowed(r)
    ]


def each(cases: dict[str, tuple[Any, ...]], draws: int) -> dict[str, Any]:
    """Every scenario, printed as it is done."""
    from benchmarks.pages import provenance
    from benchmarks.promise_peer import Controller, can_be_asked

    measured, made = {}, provenance() | {"mapie": version("mapie")}
    for name, (population, terms, n, *alike) in cases.items():
        peer = Controller(population, terms).pick if can_be_asked(terms, bool(alike and alike[1])) else None
        found = simulate(population, terms, n, draws, *alike, peer=peer)
        measured[name] = {"terms": asdict(terms), "rows": n, **found, "with": made}
        print(*row(name, measured[name]), sep=" | ", flush=True)
    return measured


def allowed(result: dict[str, Any]) -> int:
    """How many broken promises chance brings, but once in 1,000 runs, if each breaks with probability delta."""
    return int(stats.binom.ppf(0.999, result["promise"]["draws"], result["terms"]["delta"]))
