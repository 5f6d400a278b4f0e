# SPDX-License-Identifier: Apache-2.0
"""The manifest: a bundle's names, units, HPC, claims and provenance, checked field by field.

A program has no names, only indices; the manifest gives them names for people, sources and status messages.
docs/SPEC-bundle-v1.md section 3 lists the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.record import field, record
from ..errors import BundleError
from ..program.definition import Forward, Program
from ..program.inner import COIN, MEMORY, inner_sensors
from ..program.limits import CLOCK_UNIT, MAX_NAME
from ..program.window import WINDOW_FEATURES
from .evidence import Ranges, Without, branches_of, ranges_of, without_of, without_to_json

if TYPE_CHECKING:
    from .monitors import Monitors
    from .prices import Prices
    from .value import Value

Label = str | int | float
MAX_CATEGORIES = 200  # texts of one feature; more are names of rows rather than categories
OPTIONAL = {  # keys that a manifest has only where they hold something
    "atypical", "categories", "clock", "monitors", "prices", "ranges", "value", "without",
}  # fmt: skip


@record(frozen=True, slots=True)
class Manifest:
    """Names, units and claims of one bundle.

    Parameters
    ----------
    name : str
        Name of the decision, for people and status messages.
    unit : str
        Unit of cost, such as "mJ".
    features, sensors : tuple of str
        One name per feature and per sensor of the program, in its order.
    windows : dict of str to int
        Sensors that give a window of samples, with its length; their features are ``window.WINDOW_FEATURES``.
    classes : tuple of str, int or float
        The label of each class index; empty for a program whose answers are values.
    target : str
        Name of what is predicted.
    hpc : str
        SHA-256 of the model that answers forwarded cases, in hex; empty if the program never forwards.
    claims : dict
        What the exporter measured: accuracy, cost and forward rate, on named rows.
    trained : dict
        Provenance: hash of the data, seed, method, parameters, versions.
    without : dict
        Measured confidences of decisions that wanted sensors in vain, as ``evidence`` has them; may be empty.
    ranges : tuple
        By feature, the lowest and the highest reading of the training rows, None where unknown; or empty.
    categories : dict of str to tuple of str
        Features whose readings are texts, with the texts in the order of their codes, from 0.
    value : Value or None
        The scale of a program of values; older bundles have none, and their results are printed as they are.
    clock : bool
        Whether decisions go by the clock: the unit of cost is ms, and what sensors really take is spent.
    monitors : Monitors or None
        What readings of the field are compared with; None: nothing.
    prices : Prices or None
        The thresholds that running budgets may move; None: none may be moved.
    atypical : tuple of int
        The nodes that compare the score of atypical cases with a threshold; may be empty.
    """

    name: str
    unit: str
    features: tuple[str, ...]
    sensors: tuple[str, ...]
    classes: tuple[Label, ...]
    target: str = "target"
    hpc: str = ""
    windows: dict[str, int] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    trained: dict[str, Any] = field(default_factory=dict)
    without: Without = field(default_factory=dict)
    ranges: Ranges = ()
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    value: Value | None = None
    clock: bool = False
    monitors: Monitors | None = None
    prices: Prices | None = None
    atypical: tuple[int, ...] = ()

    @property
    def shipped(self) -> int | None:
        """The level of the prices at which the thresholds are the program's own; None of a bundle without prices."""
        return None if self.prices is None else self.prices.shipped

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain JSON values, which ``from_json`` reads."""
        from dataclasses import asdict  # imported here, because no device writes a manifest

        ranges = [None if pair is None else list(pair) for pair in self.ranges]
        categories = {name: list(texts) for name, texts in self.categories.items()}
        value = None if self.value is None else self.value.to_json()
        prices = None if self.prices is None else self.prices.to_json()
        changed = {"without": without_to_json(self.without), "ranges": ranges, "categories": categories, "value": value}
        changed["monitors"] = None if self.monitors is None else self.monitors.to_json()
        changed["prices"] = prices
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in (asdict(self) | changed).items()}
        return {k: v for k, v in plain.items() if v or k not in OPTIONAL}

    @classmethod
    def from_json(cls, data: dict[str, Any], program: Program) -> Manifest:
        """The manifest in these JSON values, checked against its program.

        Raises
        ------
        BundleError
            A key is missing, unknown, of the wrong type, or does not fit the program.
        """
        keys = set(cls.__match_args__)
        if not keys - OPTIONAL <= set(data) <= keys:
            wrong_keys = sorted((set(data) ^ keys) - (OPTIONAL - set(data)))
            raise BundleError(
                f"the manifest has missing or unknown keys: {', '.join(wrong_keys)[:200]}; export it again"
            )
        for key in ("name", "unit", "target", "hpc"):
            if not isinstance(data[key], str) or len(data[key]) > MAX_NAME:
                raise BundleError(f"the manifest's {key} is not a string of at most {MAX_NAME} characters")
        features = _names(data["features"], len(program.features), "features")
        sensors = _names(data["sensors"], len(program.sensors), "sensors")
        classes = data["classes"]
        if not isinstance(classes, list) or len(classes) != program.n_classes:
            raise BundleError(f"the manifest does not name the program's {program.n_classes} classes; export it again")
        if not all(type(c) in (str, int, float) for c in classes) or len(set(classes)) != len(classes):
            raise BundleError("the class labels in the manifest are not distinct strings or numbers")
        hpc = data["hpc"]
        if hpc and (len(hpc) != 64 or set(hpc) - set("0123456789abcdef")):
            raise BundleError("the manifest's hpc is not a SHA-256 in lower-case hex")
        if not hpc and any(isinstance(node, Forward) for node in program.nodes):
            raise BundleError("the program forwards, but the manifest names no HPC; export the bundle with its HPC")
        inner = inner_sensors(program, features, sensors)
        if COIN in inner:
            from ..stream.coin import coin_of  # imported here, because few bundles have one

            coin_of(program, features, sensors)
        if MEMORY in inner:
            from ..stream.layout import layout_of

            layout_of(program, features, sensors)
        windows = data["windows"]
        if not isinstance(windows, dict) or not all(type(n) is int and 2 <= n <= 1_000_000 for n in windows.values()):
            raise BundleError("the manifest's windows do not map sensors to numbers of samples, 2 to 1000000")
        if data.get("clock", True) is not True or ("clock" in data and data["unit"] != CLOCK_UNIT):
            raise BundleError(f"the manifest's clock is not true with the unit {CLOCK_UNIT}; export the bundle again")
        lengths = {name: len(s.features) for name, s in zip(sensors, program.sensors, strict=True)}
        for name in windows:
            if lengths.get(name) != len(WINDOW_FEATURES) or name in inner:
                raise BundleError(
                    f"window {name[:40]!r} in the manifest is not a sensor of {len(WINDOW_FEATURES)} features"
                )
        for key in ("claims", "trained"):
            if not isinstance(data[key], dict):
                raise BundleError(f"the manifest's {key} is not a JSON object")
        return cls(
            name=data["name"],
            unit=data["unit"],
            features=features,
            sensors=sensors,
            classes=tuple(classes),
            target=data["target"],
            hpc=hpc,
            windows=dict(windows),
            claims=data["claims"],
            trained=data["trained"],
            without=without_of(data["without"], program) if "without" in data else {},
            ranges=ranges_of(data["ranges"], program) if "ranges" in data else (),
            categories=_categories(data, program, features, [sensors.index(name) for name in windows]),
            value=_value(data["value"], program) if "value" in data else None,
            clock="clock" in data,
            monitors=_monitors(data["monitors"], program) if "monitors" in data else None,
            prices=_prices(data["prices"], program) if "prices" in data else None,
            atypical=branches_of(data["atypical"], program) if "atypical" in data else (),
        )


def _monitors(value: object, program: Program) -> Monitors:
    from .monitors import monitors_of  # imported here, because most bundles have none, and a start is measured

    return monitors_of(value, program)


def _value(value: object, program: Program) -> Value:
    from .value import value_of  # imported here, because programs of classes have none

    return value_of(value, program)


def _prices(value: object, program: Program) -> Prices:
    from .prices import prices_of  # imported here, because few devices move thresholds

    return prices_of(value, program)


def _names(value: object, count: int, what: str) -> tuple[str, ...]:
    ok = isinstance(value, list) and len(value) == count and all(isinstance(x, str) and x for x in value)
    if not ok or not isinstance(value, list) or len(set(value)) != count:
        raise BundleError(f"the manifest's {what} are not {count} distinct names")
    if any(len(x) > MAX_NAME for x in value):
        raise BundleError(f"a name in the manifest's {what} is longer than {MAX_NAME} characters")
    return tuple(value)


def _categories(
    data: dict[str, Any], program: Program, features: tuple[str, ...], windows: list[int]
) -> dict[str, tuple[str, ...]]:
    """The texts of each category; a category is an i32 of no window."""
    if "categories" not in data:
        return {}
    lists = data["categories"]
    if not isinstance(lists, dict) or not lists:
        raise BundleError("the manifest's categories do not map features to lists of texts; export it again")
    in_windows = {f for s in windows for f in program.sensors[s].features}
    free = {features[f]: program.features[f] for f in range(len(features)) if f not in in_windows}
    out = {}
    for name, texts in lists.items():
        feature = free.get(name)
        if feature is None or feature.dtype != "i32":
            raise BundleError(f"category {name[:40]!r} in the manifest is not a feature of whole numbers")
        if not isinstance(texts, list) or len(texts) > MAX_CATEGORIES:
            raise BundleError(f"category {name[:40]!r} in the manifest is not a list of at most {MAX_CATEGORIES} texts")
        out[name] = _names(texts, len(texts), f"texts of {name[:40]!r}")
        if not texts or any(text != text.strip() for text in texts):
            raise BundleError(f"category {name[:40]!r} in the manifest has no text, or one with spaces around it")
    return out
