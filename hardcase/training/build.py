# SPDX-License-Identifier: Apache-2.0
"""Write the build folder of a training run (drafts, rows, Pareto front, f0, report) atomically."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.escape import markdown
from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.kinds import RANK
from hardcase_export.drafts.files import SUFFIX, kept_files, pack_draft, room_for_policies
from hardcase_export.drafts.front import read_front
from hardcase_train.data.memory import memory_names
from hardcase_train.data.problem import Rows
from hardcase_train.data.table import Table
from hardcase_train.linear.label_overlap import label_overlap, overlap_by_distance
from hardcase_train.methods import check_method
from hardcase_train.policy.front import Point, programs
from hardcase_train.policy.selection import Judge
from hardcase_train.settings.config import Config
from hardcase_train.settings.effort import effort_of
from hardcase_train.settings.toml import read_config
from hardcase_train.stages.kept import Keeper, worst_cost
from hardcase_train.tasks.sensors import cost_origins
from hardcase_train.tasks.target_unit import in_target_unit
from hardcase_train.tasks.task import Task

from ..measuring.bars import rows_bar
from ..measuring.picked import Picked, Wish
from ..measuring.warn import picked_warnings
from ..reports.budget_chart import budgets_svg
from ..reports.train_page import mix_table, train_report
from .budgets import budget_figures, is_indexed
from .folders import BUILD, claimed, fill_folder
from .given_hpc import own_points_of
from .hpc_file import copy_hpc, hpc_confidence, save_hpc, value_of
from .runs import open_runs
from .seeds import as_read, page, picks, summarise
from .survey import divided_groups

__all__ = ["build", "configure", "provenance", "write_build"]

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

    ``hpc`` overrides all of [hpc] but classes, which are then those of this model.

    Raises
    ------
    InputError
        The file is invalid, or a name is unknown.
    """
    config = read_config(path, seed=seed)
    for name in config.methods:
        check_method(f"{path}: [policy]", name)
    if methods:
        config = config.but(methods=tuple(check_method("--method", name) for name in methods))
    if hpc is not None:
        config = config.but(model=hpc, legacy=None, legacy_name="", params={})
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
) -> tuple[Task, dict[str, Any]]:
    """Train and write the build folder atomically, alone; the task, and front.json with ``warnings`` and ``picked``.

    Parameters
    ----------
    n_seeds : number of seeds; the build is that of the configuration's seed, further seeds are for front.md
    table : the data; None: ``config.file``
    model : f0, an unfitted estimator; None: the one that ``config`` names
    command, wish : of the report, as for ``reports.train_page.train_report``
    force : whether ``out`` may be a folder that is not a build
    where : as for ``runs.open_runs``
    """
    with claimed(out, BUILD, force=force), open_runs(out, n_seeds=n_seeds, **where) as (runs, scratch):
        task = runs.task(config, table, model)
        hpc = save_hpc(task, scratch)  # before training, because f0 may be impossible to export
        keeper = Keeper(task.problem)
        own = keeper.kept(own_points_of(task))  # so may a model of the user's

        def write(points: list[Point], seeds: dict[int, dict[str, Any]]) -> dict[str, Any]:
            with fill_folder(out, BUILD, force=force) as folder:
                copy_hpc(task, scratch, folder)
                front = write_build(folder, task, points, hpc, seeds)
                with rows_bar("5/5 report", quiet=runs.quiet):
                    page, svg, picked = train_report(folder, task, front, command=command, wish=wish)
                warnings = divided_groups(task.table, config) + ([] if picked is None else picked_warnings(picked))
                (folder / "report.html").write_text(page, encoding="utf-8")
                (folder / "front.svg").write_text(svg, encoding="utf-8")
                if is_indexed(points) and task.problem.kind.has_classes:
                    curves = budget_figures(task.problem, points, config.unit)
                    (folder / "budgets.json").write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")
                    (folder / "budgets.svg").write_text(budgets_svg(curves), encoding="utf-8")
                if warnings:
                    with (folder / "front.md").open("a", encoding="utf-8") as file:
                        file.writelines(f"\n{markdown(line)}\n" for line in warnings)
                return {**front, "warnings": warnings, "picked": None if picked is None else _picked(picked, front)}

        def first(points: list[Point]) -> None:
            points = [*points, *own]
            write(points, {config.seed: picks(config.unit, task.problem, points)})
            runs.written.append(out)

        points = [*runs.points(task, methods, first), *own]
        seeds = {config.seed: picks(config.unit, task.problem, points)}
        for k in range(1, n_seeds):
            other = runs.task(config.but(seed=(config.seed + k) % 2**32), table, model)
            others = [*runs.points(other, methods), *Keeper(other.problem).kept(own_points_of(other))]
            seeds[other.config.seed] = picks(config.unit, other.problem, others)
        return task, write(points, seeds)


def _picked(picked: Picked, front: dict[str, Any]) -> dict[str, Any]:
    """What an export without a wish would pick, on test rows: method, quality, cost, and the cuts."""
    figures = picked.measured.figures
    method = front["points"][picked.number]["method"]
    return {"method": method, "quality": figures.quality, "cost": figures.cost, "headline": picked.cuts.to_json()}


def write_build(
    folder: Path, task: Task, points: list[Point], hpc: dict[str, Any], seeds: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Write drafts, rows, front and table of a build that has f0's file already; the contents of front.json."""
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
    front |= overlap_of(task, [p.method for p in points])
    (folder / "front.json").write_text(json.dumps(front, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    title = f"{task.config.file.name}: {task.config.target}"
    mixes = mix_table(folder, read_front(folder / "front.json"))
    (folder / "front.md").write_text(page(title, front, mixes), encoding="utf-8")
    return front


def _costs(task: Task) -> dict[str, Any]:
    """Where costs are from, what reading every sensor costs on test rows, and what f0 reads if that is less."""
    problem, sizes = task.problem, task.problem.test.sizes
    read = problem.hpc_sensors
    every = [sum(Meter(problem, size).sensor_costs) for size in ([1] if sizes is None else sizes.tolist())]
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
    packed: dict[int, bytes] = {}
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
        if files[k] is not None:
            packed[k] = pack_draft(pack_bundle(Bundle(manifest.to_json(), program, (), is_draft=True)))
    kept = kept_files(as_read(points), [len(packed.get(k, b"")) for k in range(len(points))], room)
    for k, name in enumerate(files):
        if name is not None and k in kept:
            (folder.parent / name).write_bytes(packed[k])
        files[k] = name if k in kept else None
    return [_entry(task, p, name) for p, name in zip(points, files, strict=True)]


def _entry(task: Task, p: Point, name: str | None) -> dict[str, Any]:
    """The point in front.json."""
    params = {k: _named(task, k, v) for k, v in p.params.items()}
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


@cache
def _packages() -> tuple[tuple[str, str], ...]:
    """The packages that made a bundle, each with its version, which is read from a file."""
    return tuple((name, version(name)) for name in ("hardcase-train", "numpy", "scikit-learn"))


def provenance(task: Task, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What a bundle says of its training: method, parameters, data, seed, f0 and packages."""
    parts = {k: getattr(task.problem, k) for k in ("train", "valid", "calibration", "test")}
    rows = {k: len(part.y) if part else 0 for k, part in parts.items()}
    data = {"file": task.config.file.name, "sha256": task.table.sha256, "rows": rows, "split": task.config.split}
    data |= {} if task.config.kind.has_classes else {"task": task.config.task}
    if task.config.group is not None:
        groups = {k: len(set(part.group.tolist())) if part else 0 for k, part in parts.items()}
        data |= {"group": task.config.group, "groups": groups}
    if task.config.sequence is not None:
        data |= {"sequence": task.config.sequence}
    if task.config.item_size is not None:
        data |= {"item_size": task.config.item_size}
    return {
        "method": method,
        "params": {k: _named(task, k, v) for k, v in params.items()},
        "data": data if task.config.weight is None else {**data, "weight": task.config.weight},
        "seed": task.config.seed,
        "size": task.problem.size_name,
        "hpc": _hpc_provenance(task),
        "packages": dict(_packages()),
    }


def _hpc_provenance(task: Task) -> dict[str, Any]:
    config = task.config
    if config.legacy is not None:
        return {"name": config.legacy_name, "table": config.legacy.name, "sha256": task.hpc.sha256}
    if config.model is not None:
        return {"model": config.model.name, "sha256": task.hpc.file_sha256}
    return {"estimator": config.estimator, "params": config.params}


def _named(task: Task, key: str, value: Any) -> Any:
    """A parameter's value with sensors by name instead of number."""
    if key in ("sensors", "cheap"):
        return [task.sensors[s] for s in value]
    if key == "stages":
        return [[task.sensors[s] for s in stage] for stage in value]
    return value


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
