# SPDX-License-Identifier: Apache-2.0
"""The table of a run's settings, beside their types in ``config.py``: help, words and check of each key.

The flags of the command line, the keys of ``run.toml`` and the check of each value are made from it. What two keys ask
of each other is checked by the part that they belong to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base.record import record
from ..drivers.channel import DRIVERS
from .config import RunConfig
from .values import (
    ACT,
    ALARM,
    BUDGET_FILE,
    FORWARD,
    OLDEST_FIRST,
    OUTBOX_FOLDER,
    SAMPLE,
    WATCH,
    check_days,
    check_energy,
    check_hourly,
    check_rate,
    parse_bytes,
    parse_date,
    parse_share,
    parse_which,
)  # fmt: skip

RUN_TOML = "/etc/hardcase/run.toml"  # where flashing puts it
DEFAULTS = RunConfig()
TYPES = {"int": int, "float": float, "str": str, "bool": bool, "tuple[str, ...]": list}
READ, WRITTEN = "read", "written"


@record(frozen=True, slots=True)
class Setting:
    """One key of a run: ``help`` may name the ``{default}``."""

    key: str
    help: str
    metavar: str | None = None
    words: tuple[str, ...] = ()  # those that it takes; none: any
    flag_value: str | None = None  # the value of its flag without one; None: the flag needs one
    check: Callable[[Any, str], object] | None = None  # called with the value and the flag
    names: str = ""  # a file or folder that the run reads or writes: READ or WRITTEN

    @property
    def type(self) -> type:
        """Of the value; of a key that may be repeated, ``list``."""
        return TYPES[RunConfig.__annotations__[self.key].removesuffix(" | None")]


_PREFIX = ("PREFIX", (), "homeassistant")

SOURCES = (
    Setting(
        "sensors",
        f"[NAME=]replay:FILE.csv, senml:FILE, MODULE:FUNCTION, KIND:DEVICE ({', '.join(DRIVERS)}) or "
        "NAME=none; repeatable",
        "SPEC",
    ),
    Setting("items", "gives items with a size and a budget of their own", "MODULE:FUNCTION"),
    Setting("sensor_timeout_ms", "when a read counts as failed (default {default})"),
    Setting(
        "isolate",
        "run each sensor's MODULE:FUNCTION in a process of its own, which is killed at the time limit",
    ),
)
GROUPS: Mapping[str, tuple[Setting, ...]] = {
    "the store": (
        Setting("store", "run the store's good bundle, or the one on trial", "FOLDER", names=WRITTEN),
        Setting("trial_decisions", "number after which a trial has passed (default {default})"),
        Setting(
            "trial_s",
            "seconds after which a trial has failed (default: 3600, or three times the intervals it needs)",
        ),
        Setting(
            "trial_audits", "answers of f0 to local decisions that a trial waits for, 0 for none (default {default})",
            "N",
        ),
        Setting(
            "trial_audit_share", "share of the local decisions about which f0 is asked until then (default {default})",
            "SHARE",
        ),
        Setting("metered", "hours of the day in which no update is fetched (default: none)", "HH:MM-HH:MM"),
    ),
    "the cloud": (
        Setting("broker", "mqtt://, mqtts://, ws:// or wss:// and host:port (default: alone)", "URL"),
        Setting("ca", "PEM file of the authorities that may sign the broker's certificate", names=READ),
        Setting("cert", "PEM file of this device's certificate", names=READ),
        Setting("key", "PEM file of the certificate's private key", names=READ),
        Setting(
            "identity", "the device's own certificate, or a claim (default: identity of the store)", "FOLDER",
            names=READ,
        ),
        Setting("device_id", "this device's name in topics (default: host and machine)", "ID"),
        Setting("deadline_ms", "how long to wait for the cloud (default {default})"),
    ),
    "decisions for the cloud": (
        Setting(
            "publish",
            "send decisions to the broker: all, changes (of the answer or of failed sensors), or a sample such as 1% "
            "(default: none; with --outbox, all)",
            "WHICH", check=parse_which,
        ),
        Setting(
            "audit", "send the readings of this share of local decisions to be checked, such as 1%", "SHARE",
            check=parse_share,
        ),
        Setting("outbox", "keep what is not stored yet on the disk, such as 64M", "BYTES", check=parse_bytes),
        Setting(
            "outbox_folder", f"where (default: outbox in the folder of --store, otherwise {OUTBOX_FOLDER})", "FOLDER",
            names=WRITTEN,
        ),
        Setting(
            "outbox_drop",
            "which records to drop when it is full: the oldest, or all but an even sample (default {default})",
            words=(OLDEST_FIRST, SAMPLE),
        ),
        Setting(
            "outbox_days", "after which a record is dropped unsent (default {default})", "DAYS", check=check_days,
        ),
        Setting("outbox_rate", "most records sent in a second (default {default})", "N", check=check_rate),
    ),
    "running budgets": (
        Setting(
            "budget_per_hour",
            "what decisions may cost in an hour, in the bundle's unit; the bundle's thresholds move to keep to it",
            "COST", check=check_hourly,
        ),
        Setting(
            "battery", "energy for decisions until --until; --interval stretches where it falls behind", "MWH",
            check=check_energy,
        ),
        Setting("until", "date, or date and time in UTC, such as 2027-03-31T06:00", "DATE", check=parse_date),
        Setting(
            "max_forward_rate", "the highest share of decisions that ask the cloud, such as 5%", "SHARE",
            check=parse_share,
        ),
        Setting(
            "budget_file",
            "what is left, kept over restarts (default: budget.json in the folder of --store, otherwise "
            f"{BUDGET_FILE})",
            "FILE", names=WRITTEN,
        ),
    ),
    "the decisions": (
        *SOURCES,
        Setting("strict_range", "a sensor with a reading outside the range that training saw has failed"),
        Setting("budget", "highest cost of a decision, in the bundle's unit"),
        Setting("interval", "seconds between decisions (default: no pause)"),
        Setting("record", "format of a decision's line (default {default})", words=("json", "senml")),
        Setting("count", "number of decisions after which to end"),
        Setting("item_size", "size of the items, for costs that depend on it (default {default})"),
        Setting("coin_seed", "of a bundle that mixes two policies: makes its draws repeatable", "N"),
    ),
    "drift": (
        Setting(
            "drift",
            "test the bundle's promise with each audit, watch readings for drift and for sensors that fail slowly; "
            "act: also do without such a sensor where that is better (default: neither)",
            words=(WATCH, ACT),
        ),
        Setting(
            "on_broken",
            "what to do when audits show that the bundle's promise is broken: report it, or also forward more "
            f"(default {ALARM})",
            words=(ALARM, FORWARD),
        ),
    ),
    "who watches": (
        Setting("metrics", "serve Prometheus metrics there, such as 127.0.0.1:9101", "IP:PORT"),
        Setting("metrics_public", "allow an address that other machines can reach"),
        Setting("metrics_file", "write them for node_exporter every 15 s", "FILE.prom", names=WRITTEN),
        Setting("sink", "give each decision to an installed sink, too; repeatable", "NAME[=ARGUMENT]"),
        Setting("home_assistant", "show the device to Home Assistant", *_PREFIX),
        Setting("home_assistant_remove", "remove it there", *_PREFIX),
    ),
}  # fmt: skip
OWN = (
    Setting(
        "bundle", "the .hcb file; with --trust, its signature is read from BUNDLE.sig; none with --store", names=READ
    ),
    Setting("trust", "Ed25519 public key (PEM) that must have signed the bundle", "KEY", names=READ),
)
SETTINGS = {setting.key: setting for group in (*GROUPS.values(), OWN) for setting in group}
FILES = {setting.key: setting.names for group in (OWN, *GROUPS.values()) for setting in group if setting.names}


def flag_of(key: str) -> str:
    """The flag of a key; the bundle's file has none, and is named as it is.

    >>> flag_of("sensor_timeout_ms")
    '--sensor-timeout-ms'
    """
    return key if key == "bundle" else f"--{key.replace('_', '-')}"


def declare(parser: argparse._ActionsContainer, settings: Iterable[Setting], *, only_given: bool) -> None:
    """Declare the flags of settings; with ``only_given``, what the words leave out is not in what is parsed."""
    for setting in settings:
        default = getattr(DEFAULTS, setting.key)
        about: dict[str, Any] = {"default": argparse.SUPPRESS if only_given else None if default == () else default}
        about["help"] = setting.help.replace("{default}", str(default)).replace("%", "%%")
        if setting.type is bool:
            about["action"] = "store_true"
        else:
            about |= {"metavar": setting.metavar, "choices": setting.words or None}
        if setting.type is list:
            about["action"] = "append"
        elif setting.type in (int, float):
            about["type"] = setting.type
        if setting.flag_value is not None:
            about |= {"nargs": "?", "const": setting.flag_value}
        if setting.key == "bundle":
            about["nargs"] = "?"
        parser.add_argument(flag_of(setting.key), **about)


def check_values(config: RunConfig, keys: Iterable[str]) -> None:
    """Refuse a value of these keys that its own check refuses, whatever the others are.

    Raises
    ------
    InputError
        One is out of range, or of another form.
    """
    for key in keys:
        check, value = SETTINGS[key].check, getattr(config, key)
        if check is not None and value is not None:
            check(value, flag_of(key))
