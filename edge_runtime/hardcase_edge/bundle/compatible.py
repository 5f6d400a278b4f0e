# SPDX-License-Identifier: Apache-2.0
"""Whether a bundle can take another one's place on a device: the same decision, from readings that the device gives.

What would break a device, or whoever reads its decisions, makes a bundle *another program*:

- another name, target, unit of cost, or kind of answers: other classes, in whatever order, or values, or items of parts
- a sensor that the bundle may buy and the device's bundle does not have
- the same sensor with other features, or in another order, because a plug-in gives them in that order; with a window of
  another length; with texts in place of numbers, or numbers in place of texts; with whole numbers in place of others

No difference is a sensor that is dropped, or listed and never bought; other costs, thresholds, texts of a category,
another f0, another order of the sensors, and a float of another size, or one in place of a whole number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base.escape import terminal
from ..base.record import record
from ..base.sha256 import sha256
from ..program.definition import Acquire, Forward
from ..program.inner import inner_sensors
from .file import unpack_bundle
from .manifest import Manifest

if TYPE_CHECKING:
    from ..program.definition import Program

OTHER_PROGRAM = "other program"  # what the reason of a refusal begins with
MOST_TOLD = 128  # sensors whose digests a device's facts hold
MOST_NAMED = 3  # of what a sentence lists
MOST_OF_NAME = 40  # characters of a name in a sentence
DIGITS = 8  # of a sensor's digest in the facts
WHOLE = "whole number"
KINDS = {"i32": WHOLE, "f32": "number", "f64": "number"}


@record(frozen=True, slots=True)
class Identity:
    """What of a bundle must stay the same for a device.

    Parameters
    ----------
    name, target, unit : of the manifest
    answers : in words, such as "the classes green, red"
    sensors : of each that a source serves, its features as (name, kind) in order, or (name, samples) of a window
    needed : those that the program may buy
    """

    name: str
    target: str
    unit: str
    answers: str
    sensors: dict[str, tuple[tuple[str, str], ...]]
    needed: tuple[str, ...]

    def told(self) -> dict[str, Any]:
        """What a device's facts say of it: name and target, and digests of what they are compared by."""
        digests = [_digest(name, features) for name, features in self.sensors.items()]
        is_told = len(digests) <= MOST_TOLD
        return {
            "name": self.name[:MOST_OF_NAME], "target": self.target[:MOST_OF_NAME], "is": self._decision,
            **({"sensors": "".join(sorted(digests))} if is_told else {}),
        }  # fmt: skip

    @property
    def _decision(self) -> str:
        return _hash(self.name, self.target, self.unit, self.answers)[:16]


def identity_of(manifest: Manifest, program: Program, *, is_joint: bool = False) -> Identity:
    """The identity of a bundle; ``is_joint``: it decides items of several parts."""
    inner = inner_sensors(program, manifest.features, manifest.sensors)
    bought = {s for node in program.nodes if isinstance(node, Acquire | Forward) for s in node.sensors}
    sensors: dict[str, tuple[tuple[str, str], ...]] = {}
    for k, name in enumerate(manifest.sensors):
        if name in inner:
            continue
        if name in manifest.windows:
            sensors[name] = ((f"window of {manifest.windows[name]} samples", ""),)
        else:
            sensors[name] = tuple(_feature(manifest, program, f) for f in program.sensors[k].features)
    kind = "values" if manifest.value is not None or not manifest.classes else "the classes "
    names = sorted(f"{label!r}" for label in manifest.classes)
    answers = ("items of several parts, " if is_joint else "") + kind + ", ".join(names)
    needed = tuple(name for k, name in enumerate(manifest.sensors) if k in bought and name in sensors)
    return Identity(manifest.name, manifest.target, manifest.unit, answers, sensors, needed)


def identity_in(data: bytes) -> Identity:
    """The identity of the bundle in these bytes, which is neither proved nor replayed. Raises ``BundleError``."""
    bundle = unpack_bundle(data, allow_joint=True)
    manifest = Manifest.from_json(bundle.manifest, bundle.program)
    return identity_of(manifest, bundle.program, is_joint=bundle.joint is not None)


def _feature(manifest: Manifest, program: Program, number: int) -> tuple[str, str]:
    name = manifest.features[number]
    return name, "text" if name in manifest.categories else KINDS[program.features[number].dtype]


def differences(new: Identity, old: Identity) -> tuple[str, ...]:
    """What makes a new bundle another program than the one that runs, in words; nothing if it can take its place.

    >>> old = Identity("pump", "state", "mJ", "the classes 'off', 'on'", {"heat": (("t", "number"),)}, ("heat",))
    >>> new = Identity("wine", "state", "mJ", "the classes 'off', 'on'", {"acid": (("ph", "number"),)}, ("acid",))
    >>> differences(new, old)
    ("its name is 'wine', and 'pump' runs here", "the sensor 'acid' is not here")
    >>> differences(old, old)
    ()
    """
    out = [
        f"its {what} is {_short(ours)}, and {_short(theirs)} runs here"
        for what, ours, theirs in (
            ("name", new.name, old.name), ("target", new.target, old.target), ("unit of cost", new.unit, old.unit),
        )
        if ours != theirs
    ]  # fmt: skip
    if new.answers != old.answers:
        out.append(f"it answers {_cut(new.answers)}, and here {_cut(old.answers)}")
    missing = [name for name in new.needed if name not in old.sensors]
    if missing:
        out.append(f"the sensor {_listed(missing)} is not here")
    for name in new.needed:
        why = "" if name in missing else _why_not_served(new.sensors[name], old.sensors[name])
        if why:
            out.append(f"the sensor {_short(name)} {why}")
    return tuple(out)


def _why_not_served(new: tuple[tuple[str, str], ...], old: tuple[tuple[str, str], ...]) -> str:
    ours, theirs = [name for name, _ in new], [name for name, _ in old]
    if ours != theirs:
        return f"gives {_cut(', '.join(ours))}, and here {_cut(', '.join(theirs))}"
    for (name, kind), (_, before) in zip(new, old, strict=True):
        if kind != before and ("text" in (kind, before) or kind == WHOLE):
            return f"gives a {kind} as {_short(name)}, and here a {before}"
    return ""


def differences_told(new: Identity, told: object) -> tuple[str, ...]:
    """As ``differences``, by what a device's facts say of its bundle; nothing where they do not say it.

    >>> old = Identity("pump", "state", "mJ", "the classes 'off', 'on'", {"heat": (("t", "number"),)}, ("heat",))
    >>> new = Identity("pump", "state", "mJ", "the classes 'off', 'on'", {"acid": (("ph", "number"),)}, ("acid",))
    >>> differences_told(new, old.told())
    ("the sensor 'acid' is not there, or with other features",)
    >>> differences_told(new, {"is": 7}), differences_told(new, None), differences_told(old, old.told())
    ((), (), ())
    """
    if not isinstance(told, dict) or not isinstance(told.get("is"), str):
        return ()
    out = []
    if told["is"] != new._decision:
        pairs = [("name", new.name), ("target", new.target)]
        other = [(what, x, told.get(what)) for what, x in pairs if told.get(what) != x[:MOST_OF_NAME]]
        out += [f"its {what} is {_short(x)}, and {_short(str(y))} runs there" for what, x, y in other]
        if not other:
            out.append("its answers or its unit of cost are not those of the bundle that runs there")
    sensors = told.get("sensors")
    if isinstance(sensors, str):
        there = {sensors[k : k + DIGITS] for k in range(0, len(sensors), DIGITS)}
        missing = [name for name in new.needed if _digest(name, new.sensors[name]) not in there]
        if missing:
            out.append(f"the sensor {_listed(missing)} is not there, or with other features")
    return tuple(out)


def _digest(name: str, features: tuple[tuple[str, str], ...]) -> str:
    """Of a sensor; whole and other numbers are alike in it, because the one may take the other's place."""
    return _hash(name, *[part for name, kind in features for part in (name, kind.removeprefix("whole "))])[:DIGITS]


def _hash(*words: str) -> str:
    return sha256(b"".join([f"{len(word)} {word}".encode("utf-8", "replace") for word in words])).hex()


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(map(_short, names[:MOST_NAMED])) + (f" (and {more} more)" if more > 0 else "")


def _short(name: str) -> str:
    return f"'{_cut(name)}'"


def _cut(text: str) -> str:
    return terminal(text if len(text) <= MOST_OF_NAME else f"{text[: MOST_OF_NAME - 3]}...")
