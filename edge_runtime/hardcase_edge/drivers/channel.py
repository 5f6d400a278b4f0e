# SPDX-License-Identifier: Apache-2.0
"""A device that Linux knows, with its channels by name, each of which reads one number in a stated unit.

A driver is a module, of this room or of another package, with ``find(name, root)``, which gives the device of that
name, NOUN, what messages call it, and MATURITY, AGAINST and SAID (of devices, channels and readings), as
docs/sensors.md has them. It may have ``check(name)``, which refuses a name that no machine can have, and what a unit of
systemd must allow: DEVICE_FILES, the files below /dev that the driver opens, and GROUP, who may open them. CASE is what
it is tried with: a spec of one number, the file below ``root`` that it reads, and what stands there if it works, and
what if it does not.
Readings are in the units of SenML (RFC 8428, section 12.1): SI without prefixes, degrees Celsius as ``Cel``, relative
humidity in percent as ``%RH``. ``root`` is the folder under which ``/sys`` and ``/usr`` are looked up; it is ``/``, and
only callers in Python, such as tests, name another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..base.record import record
from ..errors import InputError

if TYPE_CHECKING:
    from types import ModuleType

SHARED = {"__init__", "channel", "senml", "sysfs"}  # the modules of this room that are no drivers
MAX_CHANNELS = 64  # of one spec
HOOK = "drivers"


def _drivers() -> tuple[str, ...]:
    folder = os.path.dirname(__file__)
    try:
        modules = {file.removesuffix(".py") for file in os.listdir(folder) if file.endswith(".py")}
    except OSError:  # Python runs a card's archive as it is
        from pkgutil import iter_modules

        modules = {module.name for module in iter_modules([folder])}
    return tuple(sorted(modules - SHARED))


DRIVERS = _drivers()  # the names of the other modules, which are the kinds of specs


def nothing_to_close() -> None:
    """What a device without open files does when it is closed."""


@record(frozen=True, slots=True)
class Channel:
    """One number that can be read: its unit, and a function that may block, or raise OSError or SensorError."""

    unit: str
    read: Callable[[], float]


@record(frozen=True, slots=True)
class Device:
    """A device by the name that a spec gave it, and its channels by every name that they have."""

    name: str
    channels: Mapping[str, Channel]
    close: Callable[[], None] = nothing_to_close


def is_driver(kind: str) -> bool:
    """Whether a spec's kind is a driver: of this room, or of another package by the hook ``hardcase.drivers``.

    A module of that name comes first, as in ``MODULE:FUNCTION``; only without one is the hook asked, because reading
    the entry points of a small device's packages takes as long as half of its start.
    """
    if kind in DRIVERS:
        return True
    if not kind or os.path.exists(f"{kind}.py") or _has_module(kind):
        return False
    from ..hooks import hooked

    return kind in hooked(HOOK)


def _has_module(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):  # of a name that no module can have
        return False


def driver_of(kind: str) -> ModuleType:
    """The module of a driver, imported when a run first names it.

    Raises
    ------
    InputError
        It is of another package, and cannot be loaded.
    """
    from importlib import import_module

    if kind in DRIVERS:
        return import_module(f".{kind}", __package__)
    from types import ModuleType as Module

    from ..hooks import hooked, load_hook

    found: ModuleType = load_hook(hooked(HOOK)[kind], Module, "NOUN", "find")
    return found


def choose(kind: str, text: str, features: Iterable[str], root: str) -> tuple[Device, list[Channel]]:
    """The device and the channels that a spec names, one for each feature of the sensor.

    Parameters
    ----------
    kind : one of ``DRIVERS``
    text : ``DEVICE`` or ``DEVICE/CHANNEL,CHANNEL``; without channels, those named as the features, or the only one
    features : names of the sensor's features
    root : see above

    Raises
    ------
    InputError
        This machine has no such device, the device no such channel, or there is not one channel for each feature.
    """
    driver, wanted = driver_of(kind), list(features)
    try:
        device, listed = driver.find(text, root), ""  # a device's name may hold a slash
    except InputError:
        name, slash, listed = text.rpartition("/")
        if not slash:
            raise
        device = driver.find(name, root)
    channels = device.channels
    if listed:
        names = listed.split(",", MAX_CHANNELS)
    elif len(wanted) == 1 and len({id(channel) for channel in channels.values()}) == 1:
        names = [next(iter(channels))]
    else:
        names = wanted
    if len(names) != len(wanted):
        raise InputError(f"{driver.NOUN} {device.name[:80]!r} gives {len(names)} numbers, {len(wanted)} are needed")
    for name in names:
        if name not in channels:
            there = ", ".join(sorted(channels)) or "none"
            raise InputError(f"{driver.NOUN} {device.name[:80]!r} has no channel {name[:80]!r}; it has: {there[:200]}")
    return device, [channels[name] for name in names]
