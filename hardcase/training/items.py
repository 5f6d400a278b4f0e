# SPDX-License-Identifier: Apache-2.0
"""The build of items of several parts: a joint bundle for each policy, their front, f0 and a report, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.base.files import write_whole
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT
from hardcase_edge.joint.session import JointDecision
from hardcase_edge.more.fronts.front import Judged
from hardcase_edge.program.cost import to_unit
from hardcase_export.drafts.costs import costs_of
from hardcase_export.drafts.files import kept_files, room_for_policies
from hardcase_export.drafts.front import Point, read_front
from hardcase_export.joint.atypical import check_held_out
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.model import ChainModel, Group
from hardcase_export.joint.quantise import Asking
from hardcase_export.picking.pick import pick
from hardcase_train.data.table import read_table
from hardcase_train.methods.structured.two_levels import BuyPolicy, TwoLevels, learn_two_levels
from hardcase_train.settings.config import Config
from hardcase_train.tasks.items import Items, check_items, item_numbers, items_of, sensor_types
from hardcase_train.tasks.sensors import cost_origins
from hardcase_train.tasks.task import Task

from ..measuring.bars import clock_bar
from ..measuring.items import decide_items, figures, gaps, item_cuts
from ..measuring.warn import item_headline
from ..reports.items_page import items_report
from .build import provenance
from .folders import BUILD, claimed, fill_folder
from .hpc_file import copy_hpc, save_hpc
from .runs import open_runs

_Types = tuple[tuple[str, ...], tuple[str, ...]]

__all__ = ["build_items"]

HPC = "hpc"


def build_items(
    config: Config, out: Path, *, command: str = "", force: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Train and write the build folder; the contents of front.json, with ``warnings`` and ``picked``.

    The quality of a point is the share of parts that its integers decide rightly; costs are of an item.

    Raises
    ------
    InputError
        The table or the configuration does not fit, or the folder may not be written.
    """
    check_items(config)
    table = read_table(config.file)
    numbers = item_numbers(table, config)
    with claimed(out, BUILD, force=force), open_runs(out, quiet=quiet) as (runs, scratch):
        task = runs.task(config, table)
        types = sensor_types(task)
        train, valid, test = (items_of(task, getattr(task.problem, k), numbers) for k in ("train", "valid", "test"))
        spare = task.problem.calibration
        tables = valid if spare is None else items_of(task, spare, numbers)  # confidences, by items that chose nothing
        joint = config.joint
        if joint.atypical:
            check_held_out(tables.n_parts)
        hpc = save_hpc(task, scratch)
        with clock_bar("2/3 chain and policies"):
            learned = learn_two_levels(
                train.X, train.y, len(task.problem.sensors[0].features), len(task.classes), group=train.group,
                shares=joint.shares, releases=joint.releases, ask=joint.ask, labels=joint.labels, seed=config.seed,
            )  # fmt: skip
        with fill_folder(out, BUILD, force=force) as folder:
            copy_hpc(task, scratch, folder)
            points: list[dict[str, Any]] = [_hpc_point(task, valid, test)]
            decided: list[list[JointDecision]] = []
            origins, files = cost_origins(config, task.sensors), [b""]
            (folder / "policies").mkdir()
            longest = joint.max_parts or max(map(len, train.y + valid.y + test.y + tables.y))
            valid, test, tables = (_short(items, longest) for items in (valid, test, tables))
            with clock_bar("3/3 bundles"):
                for policy in learned.policies:
                    policy_bundle, point = _point(
                        task, learned, policy, types, (train, tables, valid, test), longest, hpc["sha256"], origins
                    )
                    numbered = sum(p["method"] == policy.method for p in points)
                    point["program"] = f"policies/{policy.method}-{numbered:03d}.hcb"
                    files.append(policy_bundle[0])
                    points.append(point)
                    decided.append(policy_bundle[1])
            _write_kept(folder, points, files)
            front = {
                "unit": config.unit, "joint": True, "costs": origins, "points": points, "hpc": hpc,
                "n_judged": valid.n_parts, "transition_step": learned.transition_step, "max_parts": longest,
                "items": {"train": len(train.y), "valid": len(valid.y), "test": len(test.y)},
            }  # fmt: skip
            (folder / "front.json").write_text(json.dumps(front, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            front |= _picked(folder, task.classes)
            page, svg = items_report(task, front, decided, test, command)
            (folder / "report.html").write_text(page, encoding="utf-8")
            (folder / "front.svg").write_text(svg, encoding="utf-8")
    return front


def _picked(build: Path, classes: Sequence[object]) -> dict[str, Any]:
    """What an export without a wish picks, on test items: method, quality, cost and cuts; and warnings of it."""
    point = pick(read_front(build / "front.json"))
    cuts, warnings = item_headline(build, point, classes)
    picked = {
        "method": point.method,
        "quality": point.test.quality,
        "cost": point.test.cost,
        "headline": cuts.to_json(),
    }
    return {"warnings": warnings, "picked": picked}


def _write_kept(folder: Path, points: list[dict[str, Any]], files: list[bytes]) -> None:
    """Write the bundles of points, as many as a build folder has room for; of the others the figures stay."""

    def read(rows: dict[str, Any]) -> Judged:
        return Judged(rows["quality"], rows["cost"], rows["forward_rate"], rows.get("quality_se", 0.0))

    known = [Point(p["method"], p["params"], read(p["valid"]), read(p["test"]), p.get("program")) for p in points]
    room = room_for_policies(sum(path.stat().st_size for path in folder.iterdir() if path.is_file()))
    kept = kept_files(known, [len(data) for data in files], room)
    for k, (point, data) in enumerate(zip(points, files, strict=True)):
        if k in kept:
            write_whole(folder / point["program"], data)
        else:
            point.pop("program", None)


def _short(items: Items, longest: int) -> Items:
    """The items that a device takes."""
    few = [k for k, y in enumerate(items.y) if len(y) <= longest]
    if not few:
        raise InputError(f"no item of a part of the split has at most {longest} parts; raise [joint] max_parts")
    X, y, replies = ([values[k] for k in few] for values in (items.X, items.y, items.replies))
    return Items(X, y, replies, items.group[few])


def _point(
    task: Task, learned: TwoLevels, policy: BuyPolicy, types: _Types, parts: tuple[Items, ...],
    longest: int, hpc: str, origins: dict[str, Any],
) -> tuple[tuple[bytes, list[JointDecision]], dict[str, Any]]:  # fmt: skip
    """The bundle of a policy with its decisions on test items, and its point on the front."""
    config, known = task.config, costs_of(origins, "costs")
    train, tables, valid, test = parts
    columns = [f for s in task.problem.sensors for f in s.features]  # the worker takes them in the table's order
    order = tuple(columns.index(f) for f in range(len(columns)))
    asking = Asking(policy.ask_margin, order) if policy.ask_margin > 0 else None
    exported = export_chain(
        chain_model(task, learned, policy, types), train.X, tables.X, tables.y, name=config.bundle_name,
        unit=config.unit, max_parts=longest, weight_bits=config.joint.weight_bits, asking=asking,
        hpc=hpc if asking else "", target=config.target, trained=provenance(task, policy.method, policy.params),
        atypical=config.joint.atypical or None, costs=task.problem.costs, origins=known,
    )  # fmt: skip
    machine = load_bytes(exported.data, allow_joint=True).joint
    assert machine is not None
    decided, of_valid = decide_items(machine, test), decide_items(machine, valid)
    point = {
        "method": policy.method,
        "params": {**policy.params, "agreement": exported.agreement.same_labels, "bytes": len(exported.data)},
        "valid": {**figures(of_valid, valid), "gaps": gaps(of_valid, valid, len(task.classes))},
        "test": figures(decided, test),
        "headline": item_cuts(decided, task, known).to_json(),
        "worst_cost": to_unit(exported.report.worst_cost),
    }
    return (exported.data, decided), point


def _hpc_point(task: Task, valid: Items, test: Items) -> dict[str, Any]:
    """f0 itself, which is asked about every part and knows no neighbours."""

    def measured(items: Items) -> dict[str, Any]:
        cost = task.problem.forward_cost * items.n_parts / len(items.y)
        right = sum(int((r[:, 0] == y).sum()) for r, y in zip(items.replies, items.y, strict=True))
        return {"quality": right / items.n_parts, "cost": cost, "forward_rate": 1.0, "bought": 1.0}

    return {"method": HPC, "params": {}, "valid": measured(valid), "test": measured(test)}


def chain_model(task: Task, learned: TwoLevels, policy: BuyPolicy, types: _Types) -> ChainModel:
    """The arrays of a chain and one policy, with the names and costs of the task's sensors."""
    groups = [
        Group(name, tuple(task.features[f] for f in s.features), to_unit(s.cost[0]), dtype)
        for name, s, dtype in zip(task.sensors, task.problem.sensors, types, strict=True)
    ]
    rounds: np.ndarray = np.zeros((1 + len(policy.later), len(FEATURES) + 1))
    for row, learned_row in zip(rounds, [np.append(policy.weights, policy.bias), *policy.later], strict=True):
        row[: len(learned_row) - 1], row[-1] = learned_row[:-1], learned_row[-1]
    return ChainModel(
        labels=task.classes, cheap=groups[0], dear=groups[1], cheap_weights=learned.weights[0],
        dear_weights=learned.weights[1], transitions=learned.transitions, start=learned.start, stop=learned.stop,
        policy=rounds[0, :-1], policy_bias=policy.bias, threshold=policy.threshold,
        release=ONE_SHOT if policy.release == ONE_SHOT else ANYTIME, later=rounds[1:],
    )  # fmt: skip
