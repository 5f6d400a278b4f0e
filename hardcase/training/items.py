# SPDX-License-Identifier: Apache-2.0
"""The training of policies for items of several parts: a chain, a joint bundle for each policy, and their front.

They do not go through the sweep (docs/decisions/items-of-parts.md): the figures of a point are those of its integers,
which the exporter makes, and each job of a sweep would train the chain again that all policies share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from hardcase_edge.base.files import write_whole
from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import ANYTIME, FEATURES, ONE_SHOT
from hardcase_edge.joint.session import JointDecision
from hardcase_edge.more.batch.per_class import Gap
from hardcase_edge.more.batch.quality import Figures
from hardcase_edge.more.fronts.front import HPC_METHOD, Judged
from hardcase_edge.program.cost import to_unit
from hardcase_export.drafts.costs import costs_of
from hardcase_export.drafts.files import kept_files, room_for_policies
from hardcase_export.integers.point import Build
from hardcase_export.joint.atypical import check_held_out
from hardcase_export.joint.build import export_chain
from hardcase_export.joint.model import ChainModel, Group
from hardcase_export.joint.quantise import Asking
from hardcase_train.data.table import Table
from hardcase_train.methods import AUTO
from hardcase_train.methods.structured.two_levels import (
    LEARNED,
    BuyPolicy,
    Setting,
    TwoLevels,
    learn_two_levels,
    tried,
)
from hardcase_train.settings.effort import QUICK, Effort
from hardcase_train.stages.deadline import Deadline
from hardcase_train.stages.kept import BundleKeeper
from hardcase_train.sweep.executors import n_threads, open_pool
from hardcase_train.tasks.items import Items, item_numbers, items_of, sensor_types
from hardcase_train.tasks.task import Task, cost_origins

from ..measuring.bars import clock_bar
from ..measuring.items import decide_items, figures, forward_se, gaps, item_cuts
from ..measuring.picked import Wish
from ..reports.items_part import told_of_items
from ..reports.train_page import Told
from .front_table import as_read, picks, summarise
from .hpc_file import provenance
from .runs import Runs
from .survey import suspicions

_Types = tuple[tuple[str, ...], tuple[str, ...]]

PARTS_RIGHT = "parts right"  # what their quality is called
SPARE = 1.5  # times what the last policy took, which must be left for the next one


@dataclass(frozen=True)
class BundlePoint:
    """A policy as a bundle of integers, with their figures.

    entry : the point of front.json, without the name of its file
    data : of the bundle; empty for f0, which knows no neighbours and is no policy of items
    forward_se : standard error of the share of parts that are asked
    decided : its decisions on test items
    """

    method: str
    params: dict[str, Any]
    valid: Judged
    test: Figures
    worst_cost: float | None
    entry: dict[str, Any]
    data: bytes = b""
    forward_se: float = 0.0
    decided: Sequence[JointDecision] = ()

    @property
    def is_offered(self) -> bool:
        """Whether a device may run it."""
        return bool(self.data)


class ItemRun:
    """One seed's training; its methods are what ``build`` asks of every kind of policy.

    Parameters
    ----------
    table : the data, with the column of items
    methods : names in ``two_levels.METHODS``; "auto" stands for the learned policy
    hpc : SHA-256 of f0
    """

    def __init__(self, task: Task, table: Table, runs: Runs, methods: Sequence[str], hpc: str) -> None:
        self.task, self.runs, self.hpc = task, runs, hpc
        self.methods = tuple(LEARNED if name == AUTO else name for name in methods)
        self.types = sensor_types(task)
        numbers, problem = item_numbers(table, task.config), task.problem
        parts = (problem.train, problem.valid, problem.test, problem.calibration or problem.valid)
        self.train, valid, test, tables = (items_of(task, rows, numbers) for rows in parts)
        if task.config.joint.atypical:
            check_held_out(tables.n_parts)
        self.sizes = {"train": len(self.train.y), "valid": len(valid.y), "test": len(test.y)}
        longest = max(map(len, self.train.y + valid.y + test.y + tables.y))
        self.longest = task.config.joint.max_parts or longest
        # confidences come from calibration items, which have chosen nothing
        self.valid, self.test, self.tables = (_short(items, self.longest) for items in (valid, test, tables))
        self.origins = cost_origins(task.config, task.sensors)
        self.known = costs_of(self.origins, "costs")
        self.step = 0.0  # of the transitions of the last chain

    # ------------------------------------------------------------ points

    def points(self, better: Callable[[list[BundlePoint]], None] | None = None) -> list[BundlePoint]:
        """f0's point, and those of the policies that keep the limits.

        Parameters
        ----------
        better : called with a front of quick effort, if there is a deadline and time for more

        Raises
        ------
        InputError
            Nothing is learned, or no policy keeps the limits.
        """
        effort, deadline = self.task.problem.effort, self.runs.deadline
        if deadline is None or effort.name == QUICK.name:
            return self._kept(self._measured(self._learned(effort)))
        began = monotonic()
        learned = self._learned(QUICK)
        took = monotonic() - began
        first = self._kept(self._measured(learned))
        each = (monotonic() - began - took) / len(learned.policies)
        began = monotonic()
        if better is not None:
            better(first)
        writing = monotonic() - began
        if deadline.left() < took * _chains(effort) / _chains(QUICK) + each * len(learned.policies) + writing:
            self.runs.say(f"no time is left for {effort.name} effort; the front is that of quick effort")
            return first
        found = self._measured(self._learned(effort), learned.settings, deadline.before(writing + SPARE * each))
        return self._kept(found) if found else first

    def _learned(self, effort: Effort) -> TwoLevels:
        joint, problem, train = self.task.config.joint, self.task.problem, self.train
        pool = self.runs.pool
        with (
            clock_bar("2/3 chain and policies"),
            open_pool(jobs=n_threads(self.runs.jobs, len(train.X))) if pool is None else nullcontext(pool) as opened,
        ):
            learned = learn_two_levels(
                train.X, train.y, len(problem.sensors[0].features), len(self.task.classes), group=train.group,
                methods=self.methods, ask=joint.ask, labels=joint.labels, seed=self.task.config.seed,
                pool=opened, **tried(joint, effort),
            )  # fmt: skip
        if not learned.policies:
            raise InputError("no purchase helps a training item, so nothing is learned; leave out --no-baselines")
        self.step = learned.transition_step
        return learned

    def _measured(
        self, learned: TwoLevels, first: Sequence[Setting] = (), until: Deadline | None = None
    ) -> list[BundlePoint]:
        """The points of all policies, or of those that are measured in time.

        Parameters
        ----------
        first : settings that are measured first; unless all of them are measured in time, there is no point at all
        """
        settings = learned.settings
        order = sorted(range(len(settings)), key=lambda k: settings[k] not in first)
        found: dict[int, BundlePoint] = {}
        with clock_bar("3/3 bundles"):
            for n, k in enumerate(order):
                if until is not None and until.left() < 0:
                    self.runs.say(f"time is over after {n} of {len(order)} policies")
                    return [] if settings[k] in first else [found[number] for number in sorted(found)]
                found[k] = self._point(learned, learned.policies[k])
        return [found[k] for k in sorted(found)]

    def _kept(self, points: list[BundlePoint]) -> list[BundlePoint]:
        keeper = BundleKeeper(self.task.problem)
        kept = keeper.kept(points)
        for line in keeper.lines():
            self.runs.say(line)
        keeper.check(kept)
        return [self._hpc_point, *kept]

    @cached_property
    def _hpc_point(self) -> BundlePoint:
        """f0 itself, which is asked about every part and knows no neighbours."""

        def measured(items: Items) -> dict[str, Any]:
            start, forward = self.task.problem.start_cost, self.task.problem.forward_cost
            cost = start + (forward - start) * items.n_parts / len(items.y)
            right = sum(int((r[:, 0] == y).sum()) for r, y in zip(items.replies, items.y, strict=True))
            return {"quality": right / items.n_parts, "cost": cost, "forward_rate": 1.0, "bought": 1.0}

        entry = {"method": HPC_METHOD, "params": {}, "valid": measured(self.valid), "test": measured(self.test)}
        return _as_point(entry)

    def _point(self, learned: TwoLevels, policy: BuyPolicy) -> BundlePoint:
        """The bundle of a policy, and what its integers decide on items that no choice has seen."""
        task, config = self.task, self.task.config
        columns = [f for s in task.problem.sensors for f in s.features]  # the worker takes them in the table's order
        order = tuple(columns.index(f) for f in range(len(columns)))
        asking = Asking(policy.ask_margin, order) if policy.ask_margin > 0 else None
        exported = export_chain(
            chain_model(task, learned, policy, self.types), self.train.X, self.tables.X, self.tables.y,
            name=config.bundle_name, unit=config.unit, max_parts=self.longest, weight_bits=config.joint.weight_bits,
            asking=asking, hpc=self.hpc if asking else "", target=config.target,
            trained=provenance(task, policy.method, policy.params), atypical=config.joint.atypical or None,
            costs=task.problem.costs, origins=self.known,
        )  # fmt: skip
        machine = load_bytes(exported.data, allow_joint=True).joint
        assert machine is not None
        of_test, of_valid = decide_items(machine, self.test), decide_items(machine, self.valid)
        entry = {
            "method": policy.method,
            "params": {**policy.params, "agreement": exported.agreement.same_labels, "bytes": len(exported.data)},
            "valid": {**figures(of_valid, self.valid), "gaps": gaps(of_valid, self.valid, len(task.classes))},
            "test": figures(of_test, self.test),
            "headline": item_cuts(of_test, task, self.known).to_json(),
            "worst_cost": to_unit(exported.report.worst_cost),
        }
        return replace(_as_point(entry), data=exported.data, forward_se=forward_se(of_valid), decided=of_test)

    # ------------------------------------------------------------ the build

    def picks(self, points: list[BundlePoint]) -> dict[str, dict[str, Any]]:
        """What wishes pick, as ``front_table.picks``."""
        best = max(p.valid.quality for p in points if p.is_offered)
        return picks(self.task.config.unit, self.task.problem, points, best)

    def write(
        self, folder: Path, points: list[BundlePoint], hpc: dict[str, Any], seeds: dict[int, dict[str, Any]]
    ) -> dict[str, Any]:
        """Write bundles; the contents of front.json.

        The quality of a point is the share of parts that its integers decide rightly; costs are of an item.
        """
        problem, config = self.task.problem, self.task.config
        every = sum(float(to_unit(s.cost[0])) for s in problem.sensors) * self.test.n_parts / len(self.test.y)
        wishes = {wish: summarise([rows[wish] for rows in seeds.values()]) for wish in next(iter(seeds.values()))}
        measure = replace(problem.quality, name=PARTS_RIGHT)
        return {
            "unit": config.unit, "joint": True, "quality": measure.name, "measure": measure.to_json(),
            "points": write_kept(folder, points), "hpc": hpc, "n_judged": self.valid.n_parts,
            "costs": {**self.origins, "every_sensor": every}, "limits": dict(problem.limits.given),
            "seeds": {"seeds": list(seeds), "max_loss": wishes}, "transition_step": self.step,
            "max_parts": self.longest, "items": self.sizes,
        }  # fmt: skip

    def told(self, build: Build, front: dict[str, Any], points: list[BundlePoint], wish: Wish) -> Told:
        """What the report has of them."""
        decided = [p.decided for p in points[1:]]
        return told_of_items(build, self.task, front, decided, self.test, wish, suspicions(self.task))


def _chains(effort: Effort) -> int:
    """How many chains learning trains with this effort."""
    return 6 + 3 * len(effort.transition_steps) * (len(effort.transition_steps) > 1)


def _as_point(entry: dict[str, Any]) -> BundlePoint:
    """The point of an entry of front.json."""
    keys = ("quality", "cost", "forward_rate")
    told = None if "gaps" not in entry["valid"] else tuple(Gap(*gap) for gap in entry["valid"]["gaps"])
    valid = Judged(**{key: entry["valid"][key] for key in keys}, gaps=told)
    test = Figures(**{key: entry["test"][key] for key in keys})
    return BundlePoint(entry["method"], entry["params"], valid, test, entry.get("worst_cost"), entry)


def write_kept(folder: Path, points: Sequence[BundlePoint]) -> list[dict[str, Any]]:
    """Write the bundles of points, as many as a build folder has room for; the points of front.json, with their files.

    Of the others the figures stay.
    """
    (folder / "policies").mkdir()
    room = room_for_policies(sum(path.stat().st_size for path in folder.iterdir() if path.is_file()))
    kept = kept_files(as_read(points), [len(p.data) for p in points], room)
    entries, numbers = [], dict.fromkeys((p.method for p in points), 0)
    for k, p in enumerate(points):
        name = f"policies/{p.method}-{numbers[p.method]:03d}.hcb"
        numbers[p.method] += 1
        entries.append({**p.entry, "program": name} if k in kept else p.entry)
        if k in kept:
            write_whole(folder / name, p.data)
    return entries


def _short(items: Items, longest: int) -> Items:
    """The items that a device takes."""
    few = [k for k, y in enumerate(items.y) if len(y) <= longest]
    if not few:
        raise InputError(f"no item of a part of the split has at most {longest} parts; raise [joint] max_parts")
    X, y, replies = ([values[k] for k in few] for values in (items.X, items.y, items.replies))
    return Items(X, y, replies, items.group[few])


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
