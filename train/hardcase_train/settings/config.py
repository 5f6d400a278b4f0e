# SPDX-License-Identifier: Apache-2.0
"""Every key of hardcase.toml, stated once: its place, type, bounds, default and sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import DECLARED, to_micro
from hardcase_edge.program.kinds import CLASS, NAMES, Kind, kind_named
from hardcase_edge.program.limits import CLOCK_UNIT

from .amounts import Columns, Cost, Name, Origin, Polynomial, Share, Text, check_kept
from .effort import EFFORTS, NORMAL
from .statement import Settings, Statement, one_of, said, statements

DEFAULT_METHODS = ("auto",)
TASKS = NAMES
SIZES = ("auto", "small", "large", "ebm")
DATES = ("leave", "parts")
RELEASES = ("one-shot", "anytime", "rounds")
LABELS = ("helping", "trajectory", "wrong")
SPLIT = "random"
MOST_PARTS = 1024
COUNT = Meta(ge=1, le=1 << 16)


class SensorConfig(Settings, frozen=True, kw_only=True):
    """One [[sensor]] table. A feature that ends in ``*`` stands for all columns with that prefix."""

    name: Annotated[Name, said("sensor.name", "a source of readings that are acquired together")]
    features: Annotated[Columns, said(
        "sensor.features", "its columns; PS1.* stands for all with that prefix", default="its name",
    )]  # fmt: skip
    cost: Annotated[Polynomial, said(
        "sensor.cost", "of one reading of all its columns: a number, or the coefficients [c0, c1, c2] of c0 + c1 s + "
        "c2 s² for an item of size s, up to 8 of them", page="targets.md#items-of-any-size",
    )]  # fmt: skip
    cost_origin: Annotated[
        Origin, said("sensor.cost_origin", "where the cost is from: measured, modelled, declared or a placeholder")
    ] = DECLARED

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kept(f"the cost of sensor {self.name!r:.80}", self.cost)

    def _named(self, one: Statement) -> str:
        return f"the {one.key} of sensor {self.name!r:.80}"


class PolicyLimits(Settings, frozen=True, kw_only=True):
    """Limits of a policy; None: no limit. Methods keep them, and ``stages.kept`` proves each point."""

    budget: Annotated[Cost | None, said(
        "policy.budget", "the most that any decision may cost, its request included, in the unit of costs; every "
        "policy of the front keeps it", page="budgets.md",
    )] = None  # fmt: skip
    max_ms: Annotated[Annotated[float, Meta(ge=0, le=1e9, extra={"noun": "milliseconds"})] | None, said(
        "policy.max_ms", "the longest decision of the kernel in ms, without reading sensors",
    )] = None  # fmt: skip
    max_bytes: Annotated[Annotated[int, Meta(ge=1, le=1 << 40, extra={"noun": "a whole number of bytes"})] | None, said(
        "policy.max_bytes", "bytes of the policy and the kernel (10,240) in flash",
    )] = None  # fmt: skip
    max_forward: Annotated[Share | None, said(
        "policy.max_forward", "the largest share of rows that is forwarded, by the judged rows and one standard error",
    )] = None  # fmt: skip

    @property
    def given(self) -> dict[str, float]:
        """The limits that there are."""
        return {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}

    @property
    def micro_budget(self) -> int | None:
        """The budget in micro-units."""
        return None if self.budget is None else to_micro(self.budget)

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return bool(self.given)


NO_LIMITS = PolicyLimits()


def limits_of(what: str, given: Mapping[str, Any] | PolicyLimits | None) -> PolicyLimits:
    """Limits as a parameter gives them.

    >>> limits_of("policy", {"budget": 5}).given
    {'budget': 5.0}

    Raises
    ------
    InputError
        A key is unknown, or a value is out of range.
    """
    if given is None or isinstance(given, PolicyLimits):
        return given or NO_LIMITS
    if not isinstance(given, Mapping):
        raise InputError(f"{what} is {str(given)[:40]!r}; give a dict of limits, such as {{'budget': 5}}")
    for key in given:
        if key not in PolicyLimits.__struct_fields__:
            known = PolicyLimits.__struct_fields__
            hint = did_you_mean(str(key), known, f"limits are {', '.join(known)}", cutoff=0.5)
            raise InputError(f"{what} has the unknown limit {str(key)[:40]!r}; {hint}")
    return PolicyLimits(**given)


class IndexSettings(Settings, frozen=True, kw_only=True):
    """Settings of ``poly-dom`` and the methods beside it, which index sensor sets by item size and budget.

    A ``tolerance`` below the standard error of an accuracy means nothing; ``expands_all`` trains every set
    (Naive-Expand-All), and is a flag alone.
    """

    alpha: Annotated[float, Meta(ge=1, le=10), said(
        "index.alpha", "how much better the best sensor set may be than the best trained one, for any size and budget",
        page="targets.md#items-of-any-size",
    )] = 1.0  # fmt: skip
    tolerance: Annotated[float, Meta(ge=0, le=1), said(
        "index.tolerance", "how much worse a superset of sensors may be than its subset",
    )] = 0.01  # fmt: skip
    expands_all: bool = False
    estimated: Annotated[bool, said(
        "index.estimated", "the search trains only sets that look good by an estimate of their accuracy; this halves "
        "their number or more, and gives up the guarantee of alpha",
    )] = False  # fmt: skip
    max_trained: Annotated[Annotated[int, COUNT] | None, said(
        "index.max_trained", "models that the search may train; it then lowers alpha step by step while they last",
    )] = None  # fmt: skip
    max_minutes: Annotated[Annotated[float, Meta(ge=0, le=1e6)] | None, said(
        "index.max_minutes", "minutes that the search may take, likewise",
    )] = None  # fmt: skip
    max_models: Annotated[Annotated[int, COUNT] | None, said(
        "index.max_models", "the most models of a program of these methods",
    )] = None  # fmt: skip
    max_bytes: Annotated[Annotated[int, Meta(ge=1, le=1 << 30)] | None, said(
        "index.max_bytes", "the most bytes of a program of these methods",
    )] = None  # fmt: skip


class ItemSettings(Settings, frozen=True, kw_only=True):
    """Which policies are trained for items of several parts."""

    shares: Annotated[tuple[Annotated[float, Meta(gt=0, lt=1)], ...], Meta(
        min_length=1, extra={"noun": "an array of shares between 0 and 1"},
    ), said(
        "joint.shares", "of the training parts that policies buy the second sensor for, one policy each; quick and "
        "thorough effort try others unless this is set",
        page="labels.md#train-and-export",
    )] = (0.1, 0.2, 0.3, 0.5)  # fmt: skip
    releases: Annotated[tuple[Annotated[str, one_of(RELEASES)], ...], Meta(min_length=1), said(
        "joint.releases", "whether the parts of an item buy all at once (one-shot), or the most doubtful first "
        "(anytime), which may have a policy for each round (rounds)",
    )] = RELEASES[:2]  # fmt: skip
    labels: Annotated[str, one_of(LABELS), said(
        "joint.labels", "which training parts should have bought, for one-shot and anytime: the steps from none that "
        "help (helping), the best state on a greedy way (trajectory), or the parts that are wrong without (wrong)",
        page="math-labels.md#18-structured-prediction-under-a-budget",
    )] = LABELS[0]  # fmt: skip
    ask: Annotated[float, Meta(ge=0, lt=1, extra={"noun": "a share"}), said(
        "joint.ask", "the share of training parts that go to f0, those that are doubtful with both sensors; 0: none",
    )] = 0.0  # fmt: skip
    max_parts: Annotated[int, Meta(ge=0, le=MOST_PARTS), said(
        "joint.max_parts", "the most parts of an item that a device takes", default="those of the longest item",
    )] = 0  # fmt: skip
    weight_bits: Annotated[Literal[8, 16], said("joint.weight_bits", "bits of a weight on the device: 8 or 16")] = 8
    atypical: Annotated[float, Meta(ge=0, le=0.5, extra={"noun": "a share"}), said(
        "joint.atypical", "the share of held-out parts that count as atypical, whose confidence is lower; 0: there is "
        "no such score", page="drift.md#atypical-cases",
    )] = 0.0  # fmt: skip


class ErrorCosts(Settings, frozen=True, kw_only=True):
    """[cost.errors], as ``error_costs.cost_table`` takes it, in the unit of costs."""

    miss: Annotated[dict[str, Cost], said(
        "cost.errors.miss", "costs by true class", page="targets.md#what-an-error-costs",
    )] = field(default_factory=dict)  # fmt: skip
    false_alarm: Annotated[dict[str, Cost], said(
        "cost.errors.false_alarm", "costs by answer, where no miss names the true class",
    )] = field(default_factory=dict)  # fmt: skip
    other: Annotated[Cost | None, said("cost.errors.other", "of every other error", default="each counts 1")] = None
    matrix: Annotated[dict[str, dict[str, Cost]], said(
        "cost.errors.matrix", "all costs by true class and answer, in place of the others",
    )] = field(default_factory=dict)  # fmt: skip


class Config(Settings, frozen=True, kw_only=True):
    """Every key of hardcase.toml. Costs in the unit of ``[cost] unit``."""

    file: Annotated[Path, said("data.file", "the table, relative to this file")]
    name: Annotated[Name | None, Meta()] = None  # of bundles; None: that of the file, without its ending
    target: Annotated[Name, said("data.target", "the column to predict")]
    task: Annotated[str, one_of(TASKS), said(
        "data.task", "what the target is: a class, a value, or a rank within its group",
        page="targets.md#values-and-ranks",
    )] = CLASS.name  # fmt: skip
    target_unit: Annotated[Text, said("data.target_unit", "the unit of values, for the device's records")] = ""
    split: Annotated[Name, said(
        "data.split", "random (60/10/10/20), time (row order), or a column that says train, valid, calibration, test",
    )] = SPLIT  # fmt: skip
    group: Annotated[Name | None, said(
        "data.group", "a column that says to which machine (site, person) a row belongs; no split, fold or interval "
        "divides a group", page="targets.md#groups",
    )] = None  # fmt: skip
    sequence: Annotated[Name | None, said(
        "data.sequence", "a column that names each row's stream, whose rows follow each other as in the table; it is "
        "no feature, and a random split divides no stream", page="targets.md#streams",
        default="none; with split = \"time\" all rows are one stream",
    )] = None  # fmt: skip
    weight: Annotated[Name | None, said("data.weight", "a column with the weight of each row, from 0")] = None
    item_size: Annotated[Name | None, said(
        "data.item_size", "a column of whole numbers from 1, the size of each row's item, in which costs may be "
        "polynomials; it is no feature", page="targets.md#items-of-any-size", default="all are 1",
    )] = None  # fmt: skip
    item: Annotated[Name | None, said(
        "data.item", "a column: consecutive rows with the same text in it are the parts of one item; it is no feature, "
        "and no split or fold divides an item", page="labels.md#train-and-export", default="each row is an item",
    )] = None  # fmt: skip
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1), said("data.seed", "of splits and training")] = 0
    drop: Annotated[Columns, said(
        "data.drop", "columns that no model reads; x.* stands for all with that prefix", page="tables.md",
    )] = ()  # fmt: skip
    dates: Annotated[str, one_of(DATES), said(
        "data.dates", "what becomes of columns of dates: parts makes month, day, weekday and hour features, leave "
        "leaves them out", page="tables.md",
    )] = DATES[0]  # fmt: skip
    unit: Annotated[Name, said("cost.unit", "the name of your unit, such as mJ")] = "unit"
    clock: Annotated[bool, said(
        "cost.clock", "the unit is ms, and devices decide by the clock: what sensors really take is spent",
        page="items.md#by-the-clock",
    )] = False  # fmt: skip
    default_sensor: Annotated[Cost, said(
        "cost.default_sensor", "of a column that no sensor names: it is a sensor of its own",
    )] = 1.0  # fmt: skip
    per_decision: Annotated[Cost, said(
        "cost.per_decision", "waking up, once for each decision (of an item of several parts: once an item) before it "
        "reads anything; not by the clock",
    )] = 0.0  # fmt: skip
    decision_origin: Annotated[Origin, said("cost.decision_origin", "where per_decision is from")] = DECLARED
    default_origin: Annotated[Origin, said(
        "cost.cost_origin", "where default_sensor is from: measured, modelled, declared by a person, or a placeholder, "
        "which hardcase init made up", page="training.md#where-costs-are-from",
    )] = DECLARED  # fmt: skip
    per_request: Annotated[Cost, said(
        "cost.uplink.per_request", "the radio, for each request; by the clock the round trip in ms, more than any "
        "budget if there is no cloud", default="0; needed by the clock",
    )] = 0.0  # fmt: skip
    per_byte: Annotated[Cost, said("cost.uplink.per_byte", "the radio, for each byte of a request")] = 0.0
    uplink_origin: Annotated[Origin, said("cost.uplink.cost_origin", "where costs of the radio are from")] = DECLARED
    cloud_per_request: Annotated[Cost, said("cost.cloud.per_request", "the cloud, for each request")] = 0.0
    cloud_origin: Annotated[Origin, said("cost.cloud.cost_origin", "where the cost of the cloud is from")] = DECLARED
    errors: dict[str, Any] = field(default_factory=dict)  # as ``ErrorCosts`` states them
    sensors: tuple[SensorConfig, ...] = ()
    estimator: Annotated[Text | Annotated[tuple[Name, ...], Meta(min_length=1)], Meta(
        extra={"noun": 'a class of scikit-learn, or an array such as ["StandardScaler", "LogisticRegression"]'},
    ), said(
        "hpc.estimator", "f0: a classifier with predict_proba, or a regressor of values, of scikit-learn, LightGBM, "
        "XGBoost or CatBoost, or an array of the steps of a Pipeline", page="f0.md", default="HistGradientBoosting…",
    )] = ""  # fmt: skip
    params: Annotated[dict[str, Any], said("hpc.params", "parameters of the estimator, such as max_iter = 300")] = (
        field(default_factory=dict)
    )
    model: Annotated[Path | None, said(
        "hpc.model", "in place of an estimator, the file of a fitted model; --hpc overrides it",
        page="f0.md#a-fitted-model-as-f0",
    )] = None  # fmt: skip
    model_classes: Annotated[tuple[str | int | float, ...], Meta(extra={"noun": "an array of labels"}), said(
        "hpc.classes", "the labels of the fitted model's classes in its own order, where its file only numbers them",
        default="the file's own; else the sorted labels",
    )] = ()  # fmt: skip
    legacy: Annotated[Path | None, said(
        "hpc.table", "in place of an estimator, the file of the answers of a legacy system",
        page="f0.md#a-legacy-system-as-f0",
    )] = None  # fmt: skip
    legacy_name: Annotated[Text, said("hpc.name", "the name of the legacy system", default="the file's")] = ""
    service: Annotated[str, said(
        "hpc.url", "the large model that workers with --hpc hardcase.toml ask, as openai+https://host/v1?model=NAME&"
        "key=VARIABLE; training never asks it, but learns from the table of its answers, or else from the estimator or "
        "model as its stand-in", page="large-models.md#in-hardcasetoml", default="f0 itself answers",
    )] = ""  # fmt: skip
    own_model: Annotated[Path | None, said(
        "lpc.tflite", "a model of your own of classes, values or ranks, used as a low-cost model",
        page="exports.md#a-model-of-your-own",
    )] = None  # fmt: skip
    own_sensors: Annotated[tuple[Name, ...], said("lpc.sensors", "the sensors whose readings that model takes")] = ()
    methods: Annotated[Annotated[tuple[Name, ...], Meta(
        min_length=1, extra={"noun": 'an array that names a method at least, such as ["auto"]'},
    )], said(
        "policy.methods", "what is trained for the device: auto picks among the methods", page="methods.md",
    )] = DEFAULT_METHODS  # fmt: skip
    size: Annotated[str, one_of(SIZES), said(
        "policy.size", "of low-cost models on the device: small, large, or auto: large from 8,000 training rows on; "
        "ebm: additive models on sensor sets", page="training.md#train",
    )] = SIZES[0]  # fmt: skip
    effort: Annotated[str, one_of(tuple(EFFORTS)), said(
        "policy.effort", "how much training tries: quick (a first look), normal or thorough",
    )] = NORMAL.name  # fmt: skip
    quality: Annotated[Name | dict[str, Any] | None, Meta(extra={"noun": "the name of a measure or a table"}), said(
        "policy.quality", "the measure of policies: accuracy, balanced, F1, recall, log-loss, r2, ndcg",
        page="targets.md#what-an-error-costs", default="accuracy, r2, NDCG@5",
    )] = None  # fmt: skip
    class_weight: Annotated[Literal["balanced"] | None, said(
        "policy.class_weight", "balanced: the same as the quality of that name",
    )] = None  # fmt: skip
    limits: PolicyLimits = NO_LIMITS  # that every policy keeps
    index: IndexSettings = IndexSettings()  # of poly-dom and the methods beside it
    joint: ItemSettings = ItemSettings()  # of items of several parts

    @property
    def kind(self) -> Kind:
        """What is predicted."""
        return kind_named(self.task)

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in statements(Config):
            if one.table.startswith("cost") and isinstance(amount := getattr(self, one.field), float):
                check_kept(self._named(one), amount)
        if self.clock and self.unit != CLOCK_UNIT:
            raise InputError(
                f"the clock counts in {CLOCK_UNIT}, but the unit of costs is {str(self.unit)[:60]!r}; change one"
            )
        if self.clock and not self.per_request + self.per_byte + self.cloud_per_request:
            raise InputError(
                "by the clock a request costs its round trip, and none is declared; state in [cost.uplink] per_request "
                "how many ms it takes, or more than any budget if there is no cloud"
            )
        if self.clock and self.per_decision:
            raise InputError("by the clock a decision begins when it is asked for; remove [cost] per_decision")
        sized = next((s for s in self.sensors if isinstance(s.cost, tuple) and any(s.cost[1:])), None)
        if sized is not None and self.item_size is None:
            raise InputError(
                f"the cost of sensor {sized.name!r} depends on the item's size, but no column gives sizes; name it in "
                "[data] item_size"
            )
        names = [s.name for s in self.sensors]
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise InputError(f"the sensor {twice!r} is declared twice; rename one")
        measures = {"[cost.errors]": self.errors, "[policy] quality": self.quality}
        measures["[policy] class_weight"] = self.class_weight
        given = [name for name, value in measures.items() if value]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} both say what an error counts; keep one")
        if self.target_unit and self.kind.has_classes:
            raise InputError(f'[data] target_unit is the unit of values, not for task = "{self.task}"; remove it')
        if self.class_weight is not None:
            if not self.kind.has_classes:
                raise InputError(f'[policy] class_weight is for classes, not for task = "{self.task}"; remove it')
            msgspec.structs.force_setattr(self, "quality", self.class_weight)
            msgspec.structs.force_setattr(self, "class_weight", None)
        if not self.estimator:
            msgspec.structs.force_setattr(self, "estimator", self.kind.default_f0)
        labels = [str(label) for label in self.model_classes]
        if len(set(labels)) < len(self.model_classes):
            raise InputError(
                f"[hpc] classes is {str(list(self.model_classes))[:80]}; name each once, in the model's order"
            )
        try:
            json.dumps(self.params, allow_nan=False)  # they go into the manifest
        except (TypeError, ValueError) as error:
            raise InputError(f"[hpc.params] must be numbers, strings, arrays and tables: {error}") from error

    @property
    def bundle_name(self) -> str:
        """What bundles are called."""
        return self.file.stem if self.name is None else self.name

    @property
    def hpc_name(self) -> str:
        """What f0 is, in words."""
        names = (self.estimator,) if isinstance(self.estimator, str) else self.estimator
        return self.legacy_name or (" and ".join(names) if self.model is None else self.model.name)
