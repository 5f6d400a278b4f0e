# SPDX-License-Identifier: Apache-2.0
"""``hardcase.load``: load a bundle as a device does, and decide cases from readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from hardcase_edge.bundle import load as _load
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.value import to_result
from hardcase_edge.device.lines import LineMaker
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_micro
from hardcase_edge.sensors.items import item_of
from hardcase_edge.sensors.values import code_of, codes_of
from hardcase_edge.session.drive import drive
from hardcase_edge.stream.coin import Toss, coin_of
from hardcase_edge.stream.layout import layout_of
from hardcase_edge.stream.memory import Memory

from .arguments import names_checked

MAX_BUDGET = 1e12  # in the bundle's unit, as for ``hardcase-edge run``

Reply = Any  # a label, or (label, confidence from 0 to 1)


@dataclass(frozen=True)
class Decided:
    """One decision.

    label : class of the case, as in training; of a bundle of values the value, in the target's unit
    confidence : probability that the label is right, from 0 to 1, or that the value is no further from the truth than
        f0's usually are; None if nobody measured it without ``failed`` and
        ``unpaid``
    route : "local", "cloud" or "degraded" (forwarded without a reply, or answered here without a sensor)
    cost : metered cost, in the bundle's unit
    sensors : names of the bought sensors, in the bundle's order
    failed : names of the sensors that it wanted and that failed
    unpaid : names of the sensors that it wanted and that the budget did not allow
    interval : of a value: where the truth lies with a probability of 90 %; None if nobody measured it
    coin : of a bundle that mixes two policies: 1 if the draw took the dearer one, 0 if it took the cheaper one
    """

    label: Any
    confidence: float | None
    route: str
    cost: float
    sensors: tuple[str, ...]
    failed: tuple[str, ...] = ()
    unpaid: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None
    coin: int | None = None

    @property
    def value(self) -> Any:
        """The ``label`` of a bundle of values."""
        return self.label


@names_checked
def load(path: str | Path, *, trust: str | Path | None = None, coin_seed: int | None = None) -> Loaded:
    """Load a bundle as a device does: signature, checksum, proof and golden cases come first.

    Parameters
    ----------
    path : of the ``.hcb`` file
    trust : a public key; without that key's signature the bundle is then refused
    coin_seed : of a bundle that mixes two policies by a coin: 0 to 2^64 - 1, which gives the same draws each time;
        without it they come from the system's randomness

    Raises
    ------
    InputError, BundleError
        The file cannot be read, or must not be used.

    Examples
    --------
    >>> import hardcase
    >>> device = hardcase.load("tests/golden/v1.hcb")
    >>> device.sensors
    ('sensor 0', 'sensor 1', 'sensor 2')
    """
    return Loaded(load_bundle(path, trust=trust), coin_seed)


def budget_of(budget: Any) -> int | None:
    """A budget in micro-units; None if there is none.

    Raises
    ------
    InputError
        It is not a cost.
    """
    is_number = hasattr(budget, "__float__") and not isinstance(budget, bool)
    if budget is not None and not (is_number and 0 <= budget <= MAX_BUDGET):  # a comparison with NaN is false
        raise InputError(f"budget is {str(budget)[:40]}, a cost from 0 to {MAX_BUDGET:g} is expected")
    return None if budget is None else to_micro(budget)


class Loaded:
    """A bundle that has passed every check.

    Attributes
    ----------
    sensors, features : names
    classes : labels; empty for a bundle of values
    unit : of costs
    categories : the texts of each feature that takes text, in the order of their codes

    A bundle that holds labels of a stream remembers its cases: they are windows of one stream, in the order of the
    calls, until ``forget``. Load the bundle once for each stream.
    """

    def __init__(self, loaded: _load.Loaded, coin_seed: int | None = None) -> None:
        self._loaded = loaded
        self._lines = LineMaker(loaded)
        manifest = loaded.manifest
        self.sensors, self.features = tuple(manifest.sensors), tuple(manifest.features)
        self.classes, self.unit = tuple(manifest.classes), manifest.unit
        self.categories = dict(manifest.categories)
        self._layout = layout_of(loaded.machine.program, self.features, self.sensors)
        self._memory = None if self._layout is None else Memory(loaded.machine.program, self._layout)
        self._coin, self._toss = coin_of(loaded.machine.program, self.features, self.sensors), Toss(coin_seed)
        self._inner = {self.sensors[x.sensor] for x in (self._layout, self._coin) if x is not None}
        self._codes = dict(zip(self.features, codes_of(manifest, range(len(self.features))), strict=False))

    def forget(self) -> None:
        """Empty the memory, as a restart does: the next case is the first window of a stream."""
        if self._memory is not None:
            self._memory.forget()

    def decide(
        self,
        readings: Mapping[str, Any],
        *,
        ask: Callable[[dict[str, Any]], Reply | None] | None = None,
        budget: float | None = None,
        windows: int = 1,
        item_size: int = 1,
    ) -> Decided:
        """Decide one case; only the sensors that the policy asks for are looked at and paid.

        Parameters
        ----------
        readings : numbers by feature, or a sequence of numbers by sensor; texts where the bundle has categories. None
            or NaN is missing, as is an unknown text, and a sensor of which nothing is given has failed
        ask : the cloud: from the readings that a request carries, by feature, with codes in place of texts, to a label
            (or a value) or a pair of it and a confidence, or None if there is no reply. Without it there is no cloud,
            and hard cases are answered locally
        budget : largest cost of this decision, in the bundle's unit
        windows : of a bundle for streams, how many windows after the case before this one is; more than 1 if some were
            missed
        item_size : size of the case's item, on which the costs of sensors may depend

        Raises
        ------
        InputError
            A name is neither a feature nor a sensor, or one of an inner sensor's, a sensor has another number of
            readings, text is given for a number, the budget is not a cost, the item is larger than the bundle has costs
            for, or the reply is not one of the classes, or not a finite number where values are answered.
        """
        by_feature = self._by_feature(readings)
        item = item_of(item_size, None, self._loaded.bundle.program.max_item_size)
        if item.fault:
            raise InputError(item.fault)
        if not isinstance(windows, Integral) or windows < 1:
            raise InputError(f"{str(windows)[:40]} windows have passed; give a whole number from 1")
        memory, coin = self._memory, self._coin
        draw = 0 if coin is None else self._toss()
        program, names = self._loaded.bundle.program, self.features

        def read(asked: tuple[int, ...]) -> dict[int, list[Any] | None]:
            features = {s: [names[f] for f in program.sensors[s].features] for s in asked}
            read_values = {
                s: [by_feature.get(n) for n in own] if by_feature.keys() & own else None for s, own in features.items()
            }
            if memory is not None:
                memory.see(read_values)
                read_values |= {s: memory.read() for s in asked if s == memory.layout.sensor}
            if coin is not None and coin.sensor in asked:
                read_values[coin.sensor] = [draw]
            return read_values

        def reply(_: object) -> tuple[int, int] | None:
            answer = ask({names[f]: by_feature.get(names[f]) for f in program.uplink.features}) if ask else None
            return None if answer is None else self._reply(answer)

        micro = budget_of(budget)
        if memory is not None:
            memory.begin(int(windows))
        session = self._loaded.machine.session(cloud=ask is not None, budget=micro, item_size=item.size or 1)
        end = drive(session, read, reply)
        if memory is not None:
            memory.end(end.result)
        line = self._lines.line(end, 0.0)
        interval = line.get("interval")
        return Decided(
            label=line["label"] if "label" in line else line["value"],
            confidence=line["confidence"],
            route=line["route"],
            cost=line["cost"],
            sensors=tuple(line["sensors"]),
            failed=tuple(line["failed"]),
            unpaid=tuple(line.get("unpaid", ())),
            interval=None if interval is None else tuple(interval),
            coin=None if coin is None else int(draw < coin.below),
        )

    def _by_feature(self, readings: Mapping[str, Any]) -> dict[str, Any]:
        program = self._loaded.bundle.program
        out: dict[str, Any] = {}
        if not isinstance(readings, Mapping):
            raise InputError(f"readings is {type(readings).__name__}; give a dict of readings by feature or sensor")
        for name, reading in readings.items():
            if str(name).partition(".")[0] in self._inner:
                raise InputError(f"{name!r} is filled by the bundle's own {str(name).partition('.')[0]}; leave it out")
            if not isinstance(reading, str) and (isinstance(reading, Sequence) or hasattr(reading, "__len__")):
                if name not in self.sensors:
                    raise InputError(f"{name!r} is not a sensor; sensors are {', '.join(self.sensors[:20])}")
                features = program.sensors[self.sensors.index(name)].features
                if len(reading) != len(features):
                    raise InputError(f"sensor {name!r} gives {len(reading)} readings, {len(features)} are expected")
                names = [self.features[f] for f in features]
                out.update({n: self._reading(n, value) for n, value in zip(names, reading, strict=True)})
            elif name in self.features:
                out[name] = self._reading(name, reading)
            else:
                raise InputError(f"{name!r} is not a feature; features are {', '.join(self.features[:20])}")
        return out

    def _reading(self, feature: str, value: Any) -> Any:
        """A plain number, or the code of a text; None where it is missing."""
        plain = value.item() if hasattr(value, "item") else value
        codes = self._codes.get(feature)
        if codes:
            return code_of(codes, plain)
        if isinstance(plain, str):
            raise InputError(f"feature {feature!r} takes a number, not the text {plain[:40]!r}")
        return None if plain is None or plain != plain else plain

    def _reply(self, answer: Reply) -> tuple[int, int]:
        label, confidence = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, 1.0)
        try:
            basis_points = round(10_000 * min(max(float(confidence), 0.0), 1.0))
        except (TypeError, ValueError) as error:
            told = str(confidence)[:40]
            raise InputError(f"ask replied the confidence {told!r}, not a number from 0 to 1") from error
        value = self._loaded.manifest.value
        if value is not None:
            try:
                return to_result(label, value.steps), basis_points
            except (TypeError, ValueError) as error:
                raise InputError(f"ask replied {label!r}, which is not a finite number") from error
        if label not in self.classes:
            classes = ", ".join(map(str, self.classes[:20]))
            raise InputError(f"ask replied {label!r}, which is not a class; classes are {classes}")
        return self.classes.index(label), basis_points
