# SPDX-License-Identifier: Apache-2.0
"""Write the build folder of a training run (drafts, rows, Pareto front, f0, report) atomically."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hardcase_cloud.backends.large_model import address_in
from hardcase_edge.base.escape import markdown
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.kinds import RANK
from hardcase_export.drafts.files import SUFFIX, kept_files, pack_draft, room_for_policies
from hardcase_export.drafts.front import front_of
from hardcase_export.integers.point import Build
from hardcase_train.data.problem import Rows, memory_names
from hardcase_train.data.table import Table, read_table
from hardcase_train.linear.label_overlap import label_overlap, overlap_by_distance
from hardcase_train.methods import METHODS, check_method
from hardcase_train.methods.structured.two_levels import METHODS as OF_ITEMS
from hardcase_train.policy.front import Point, programs
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import Config
from hardcase_train.settings.effort import effort_of
from hardcase_train.settings.toml import read_config
from hardcase_train.stages.kept import Keeper, worst_cost
from hardcase_train.tasks.items import check_items
from hardcase_train.tasks.target import in_target_unit
from hardcase_train.tasks.task import Task, cost_origins

from ..measuring.bars import rows_bar
from ..measuring.picked import Wish
from ..reports.budget_chart import budgets_svg
from ..reports.cases_part import told_of_cases
from ..reports.train_page import Told, mix_table, train_report
from .budgets import budget_figures, is_indexed
from .folders import BUILD, claimed, fill_folder
from .front_table import as_read, page, picks, summarise
from .given_hpc import own_points_of
from .hpc_file import copy_hpc, hpc_confidence, named, provenance, save_hpc, value_of
from .items import ItemRun
from .runs import Runs, open_runs
from .survey import suspicions

MAX_TRAIN_ROWS = 4_096
MAX_TRAIN_NUMBERS = 2_000_000


def configure(
    path: Path,
    *,
    seed: int | None = None,
    methods: tuple[str, ...] = (),
    effort: str | None = None,
    hpc: Path | None = None,
) -> Config:
    """Read a configuration and check the names of its methods; arguments override the file.

    ``hpc`` overrides all of [hpc] but classes, which are then those of this model. The large model of [hpc] url is
    not asked, nor is its key wanted.

    Raises
    ------
    InputError
        The file is invalid, or a name is unknown.
    """
    config = read_config(path, seed=seed)
    known = METHODS if config.item is None else OF_ITEMS
    for name in config.methods:
        check_method(f"{path}: [policy]", name, known)
    if methods:
        config = config.but(methods=tuple(check_method("--method", name, known) for name in methods))
    if hpc is not None:
        config = config.but(model=hpc, legacy=None, legacy_name="", params={}, service="")
    if config.service:
        address_in(config.service, f"{path}: [hpc] url")
    return config if effort is None else config.but(effort=effort_of("--effort", effort).name)


def build(
    config: Config,
    methods: tuple[str, ...],
    out: Path,
    *,
    n_seeds: int = 1,
    table: Table | None = None,
    model: Any = None,
    command: str = "",
    wish: Wish | None = None,
    force: bool = False,
    **where: Any,
) -> tuple[Task, dict[str, Any], Build]:
    """Train and write the build folder atomically, alone.

    The task; front.json with ``warnings`` and ``picked``; and the build, with the integers that its report measured.

    Policies of items of several parts have the same front, seeds and folder; ``ItemRun`` trains them.

    Parameters
    ----------
    n_seeds : number of seeds; the build is that of the configuration's seed, further seeds are for front.md
    table : the data; None: ``config.file``
    model : f0, an unfitted estimator; None: the one that ``config`` names
    command, wish : of the report, as for ``reports.train_page.train_report``; None: no wish
    force : whether ``out`` may be a folder that is not a build
    where : as for ``runs.open_runs``
    """
    if config.item is not None:
        check_items(config)
        table = read_table(config.file) if table is None else table
    with claimed(out, BUILD, force=force), open_runs(out, n_seeds=n_seeds, **where) as (runs, scratch):
        task = runs.task(config, table, model)
        hpc = save_hpc(task, scratch)  # before training, because f0 may be impossible to export
        hpc |= {"url": config.service} if config.service else {}

        def trained_of(task: Task) -> _Trained:
            if table is None or config.item is None:
                return _Cases(task, runs, methods)
            return ItemRun(task, table, runs, methods, hpc["sha256"])

        trained = trained_of(task)

        def write(points: list[Any], seeds: dict[int, dict[str, Any]]) -> tuple[dict[str, Any], Build]:
            with fill_folder(out, BUILD, force=force) as folder:
                copy_hpc(task, scratch, folder)
                front = trained.write(folder, points, hpc, seeds)
                text = json.dumps(front, indent=1, sort_keys=True) + "\n"
                (folder / "front.json").write_text(text, encoding="utf-8")
                made = Build(folder, front_of(json.loads(text), "front.json"))
                told = trained.told(made, front, points, wish or {})
                mixes, title = mix_table(made), f"{config.file.name}: {config.target}"
                html, svg = train_report(made.front, trained.task, front, told, mixes, command, wish or {})
                lines = "".join(f"\n{markdown(line)}\n" for line in told.warnings)
                pages = {"report.html": html, "front.svg": svg, "front.md": page(title, front, mixes) + lines}
                for name, text in pages.items():
                    (folder / name).write_text(text, encoding="utf-8")
            return {**front, "warnings": [*told.warnings], "picked": _picked(told)}, made.moved(out)

        def first(points: list[Any]) -> None:
            write(points, {config.seed: trained.picks(points)})
            runs.written.append(out)

        points = trained.points(first)
        seeds = {config.seed: trained.picks(points)}
        for k in range(1, n_seeds):
            other = trained_of(runs.task(config.but(seed=(config.seed + k) % 2**32), table, model))
            seeds[other.task.config.seed] = other.picks(other.points())
        return task, *write(points, seeds)


class _Trained(Protocol):
    """What ``build`` asks of a kind of policies, for one seed; the methods are those of ``_Cases``."""

    @property
    def task(self) -> Task: ...

    def points(self, better: Callable[[list[Any]], None] | None = None) -> list[Any]: ...

    def picks(self, points: list[Any]) -> dict[str, dict[str, Any]]: ...

    def write(
        self, folder: Path, points: list[Any], hpc: dict[str, Any], seeds: dict[int, dict[str, Any]]
    ) -> dict[str, Any]: ...

    def told(self, build: Build, front: dict[str, Any], points: list[Any], wish: Wish) -> Told: ...


@dataclass(frozen=True)
class _Cases:
    """The training of policies that decide each case for itself, by a sweep over methods."""

    task: Task
    runs: Runs
    methods: tuple[str, ...]

    def points(self, better: Callable[[list[Point]], None] | None = None) -> list[Point]:
        """The points of the sweep, and those of the user's own model; ``better`` as for ``Runs.points``."""
        own = Keeper(self.task.problem).kept(own_points_of(self.task))  # first, for it may be impossible to export
        first = None if better is None else lambda points: better([*points, *own])
        return [*self.runs.points(self.task, self.methods, first), *own]

    def picks(self, points: list[Point]) -> dict[str, dict[str, Any]]:
        """What wishes pick, as ``front_table.picks``."""
        return picks(self.task.config.unit, self.task.problem, points)

    def write(
        self, folder: Path, points: list[Point], hpc: dict[str, Any], seeds: dict[int, dict[str, Any]]
    ) -> dict[str, Any]:
        """Write drafts and rows; the contents of front.json."""
        front = write_build(folder, self.task, points, hpc, seeds)
        if is_indexed(points) and self.task.problem.kind.has_classes:
            curves = budget_figures(self.task.problem, points, self.task.config.unit)
            (folder / "budgets.json").write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")
            (folder / "budgets.svg").write_text(budgets_svg(curves), encoding="utf-8")
        return front

    def told(self, build: Build, front: dict[str, Any], points: list[Point], wish: Wish) -> Told:
        """What the report has of them; the front is in the build."""
        with rows_bar("5/5 report", quiet=self.runs.quiet):
            return told_of_cases(build, self.task, wish, suspicions(self.task))


def _picked(told: Told) -> dict[str, Any] | None:
    """What an export without a wish would pick, on test rows: method, quality, cost, and the cuts."""
    if told.picked is None or told.test is None or told.cuts is None:
        return None
    test, cuts = told.test, told.cuts.to_json()
    return {"method": told.picked.method, "quality": test.quality, "cost": test.cost, "headline": cuts}


def write_build(
    folder: Path, task: Task, points: list[Point], hpc: dict[str, Any], seeds: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Write drafts and rows of a build that has f0's file already; the contents of front.json."""
    for name in ("valid", "calibration", "test"):
        rows = getattr(task.problem, name)
        if rows is not None:
            more = {"limits": _limits(task)} if name == "valid" else {}
            _save_rows(folder / f"{name}.npz", task, rows, hpc["sha256"], more)
    _save_rows(folder / "train.npz", task, task.problem.train.take(_some(task)), hpc["sha256"], {})
    room = room_for_policies(sum(path.stat().st_size for path in folder.iterdir() if path.is_file()))
    entries = _save_policies(task, points, folder / "policies", hpc["sha256"], room)
    quality = task.problem.quality
    wishes = {wish: summarise([rows[wish] for rows in seeds.values()]) for wish in next(iter(seeds.values()))}
    over_seeds = {"seeds": list(seeds), "max_loss": wishes}
    measure = {"quality": quality.name, "measure": quality.to_json(), "n_judged": len(Judge(task.problem).y)}
    limits = dict(task.problem.limits.given)
    front = {"unit": task.config.unit, **measure, "points": entries, "hpc": hpc, "seeds": over_seeds, "limits": limits}
    front["costs"] = _costs(task)
    return front | overlap_of(task, [p.method for p in points])


def _costs(task: Task) -> dict[str, Any]:
    """Where costs are from, what reading every sensor costs on test rows, and what f0 reads if that is less."""
    problem, sizes = task.problem, task.problem.test.sizes
    read = problem.hpc_sensors
    n = range(len(problem.sensors))
    every = [Meter(problem, size).total(n, 0) for size in ([1] if sizes is None else sizes.tolist())]
    less = {"f0": [task.sensors[s] for s in read]} if len(read) < len(task.sensors) else {}
    return {**cost_origins(task.config, task.sensors), "every_sensor": to_unit(float(np.mean(every or [0]))), **less}


def overlap_of(task: Task, methods: Collection[str]) -> dict[str, Any]:
    """``label_overlap`` by the distance of labels, if they are ordered and trees of classifiers were trained."""
    problem, classes = task.problem, task.classes
    is_ordered = task.config.kind is RANK or (classes and all(isinstance(c, int | float) for c in classes))
    if not is_ordered or "cstc" not in methods:
        return {}
    by_distance = overlap_by_distance(label_overlap(problem, problem.in_unit(problem.train.y)))
    return {"label_overlap": by_distance} if by_distance else {}


def _save_policies(task: Task, points: list[Point], folder: Path, hpc: str, room: int) -> list[dict[str, Any]]:
    """Write the drafts, at most ``room`` bytes of them; the points of front.json."""
    folder.mkdir()
    files: list[str | None] = []
    numbers = dict.fromkeys((p.method for p in points), 0)
    keeper = Keeper(task.problem)
    for p in points:
        if p.method == "hpc" and not keeper.kept([p]):  # the reference of the front; no device may run it
            files.append(None)
            continue
        files.append(f"policies/{p.method}-{numbers[p.method]:03d}{SUFFIX}")
        numbers[p.method] += 1
    sizes = [0] * len(points)
    value = value_of(task)
    for k, draft, _ in programs(points):
        features, sensors = memory_names(points[k].memory, task.features, task.sensors)
        manifest = Manifest(
            name=task.config.bundle_name,
            unit=task.config.unit,
            features=features,
            sensors=sensors,
            classes=task.classes,
            target=task.config.target,
            hpc=hpc,
            windows=task.windows,
            trained=provenance(task, points[k].method, points[k].params),
            categories=task.table.categories,
            value=value,
            clock=task.config.clock,
        )
        program = draft if value is None else in_target_unit(draft, task.problem.value_unit)
        name = files[k]
        if name is not None:  # written at once: together they may take more memory than training
            data = pack_draft(pack_bundle(Bundle(manifest.to_json(), program, (), is_draft=True)))
            sizes[k] = (folder.parent / name).write_bytes(data)
    kept = kept_files(as_read(points), sizes, room)
    for k, name in enumerate(files):
        if name is not None and k not in kept:
            (folder.parent / name).unlink()
            files[k] = None
    return [_entry(task, p, name) for p, name in zip(points, files, strict=True)]


def _entry(task: Task, p: Point, name: str | None) -> dict[str, Any]:
    """The point in front.json."""
    params = {k: named(task, k, v) for k, v in p.params.items()}
    figures = _figures(task, p)
    return {"method": p.method, "params": params, **figures, "program": name, "worst_cost": worst_cost(p)}


def _figures(task: Task, p: Point) -> dict[str, dict[str, float]]:
    """The point's figures; for a legacy f0 also ``used_cost``, the mean cost of that system itself on the rows."""
    assert p.test is not None  # a split has test rows
    figures = {"valid": p.valid, "test": p.test}
    if p.method != "hpc" or task.config.legacy is None:
        return {name: f.to_json() for name, f in figures.items()}
    assert p.program is not None
    train, valid, test = task.problem.train, task.problem.valid, task.problem.test
    sizes = None if train.sizes is None else np.concatenate([train.sizes, valid.sizes])
    judged = np.concatenate([train.index, valid.index])
    spent = (task.hpc.used_cost(*rows) for rows in ((judged, p.program, sizes), (test.index, p.program, test.sizes)))
    return {name: {**f.to_json(), "used_cost": cost} for (name, f), cost in zip(figures.items(), spent, strict=True)}


def _some(task: Task) -> Any:
    """Numbers of the training rows that the build keeps, in order: for ``export --atypical``, which needs no more."""
    n, n_features = task.problem.train.X.shape
    kept = min(n, max(512, min(MAX_TRAIN_ROWS, MAX_TRAIN_NUMBERS // n_features)))
    return np.sort(np.random.default_rng(0).permutation(n)[:kept])


def _limits(task: Task) -> Any:
    """The lowest and highest value of each feature in the rows that train and choose policies, (n_features, 2)."""
    X = np.concatenate([task.problem.train.X, task.problem.valid.X])
    return np.stack([np.fmin.reduce(X), np.fmax.reduce(X)], axis=1)  # NaN only where all are


def _save_rows(path: Path, task: Task, rows: Rows, hpc: str, more: dict[str, Any]) -> None:
    group: dict[str, Any] = {} if rows.group is None else {"group": rows.group}
    group |= {} if rows.sizes is None else {"item_size": rows.sizes}
    group |= {} if rows.sequence is None else {"sequence": rows.sequence}
    np.savez_compressed(
        path,
        X=rows.X,
        y=task.y[rows.index],
        hpc=task.problem.in_unit(rows.hpc_label),
        hpc_confidence=hpc_confidence(task.problem, rows),
        hpc_sha256=hpc,
        index=rows.index,
        weight=rows.weight,
        feature_names=np.array(task.features),
        **group,
        **more,
    )
