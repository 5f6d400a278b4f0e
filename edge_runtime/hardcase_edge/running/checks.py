# SPDX-License-Identifier: Apache-2.0
"""The settings of ``run``, checked without opening a sensor or a connection, and the parts that they ask for.

``run`` checks its own by this before it does anything; ``service`` and ``hardcase flash`` check by it what shall run
elsewhere (``service.py``). Whatever is checked is checked by the code that uses it, or by the table of settings.
``PARTS`` alone names the parts of a run (``device.surroundings.Part``), so that no module is imported for nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import HardcaseError, InputError
from ..settings.config import RunConfig, changed
from ..settings.table import DEFAULTS, FILES, flag_of
from ..settings.values import BUDGET_FILE, OUTBOX_FOLDER, parse_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..device.machine import RuntimeConfig
    from ..fleet.diagnosis.fault import Fault
    from ..fleet.store.trial import Rules

PARTS = {  # modules, each with the settings that ask for it, in the order in which they are made and told of decisions
    ".fleet.outbox.opening": ("publish", "audit", "outbox", "outbox_drop", "outbox_days", "outbox_rate"),
    ".fleet.update.air": ("store", "metered"),
    ".more.audits.companion": ("audit",),
    ".more.drift.companion": ("drift", "on_broken"),
    ".more.servo.companion": ("budget_per_hour", "battery", "until", "max_forward_rate"),
    ".fleet.operations.discovery": ("home_assistant", "home_assistant_remove"),
    ".fleet.operations.scrape": ("metrics", "metrics_file"),
    ".more.sinks.companion": ("sink",),
}
ON_TRIAL = frozenset({".more.audits.companion"})  # a bundle on trial asks for it, too, where there is a broker


def anchored(config: RunConfig) -> RunConfig:
    """These settings with absolute names of all files, so that a plug-in that changes the folder moves none of them."""
    names = {name: value for name in FILES if (value := getattr(config, name)) is not None}
    if config.store is None:
        names["outbox_folder"] = config.outbox_folder or OUTBOX_FOLDER
        names["budget_file"] = config.budget_file or BUDGET_FILE
    return changed(config, **{name: os.path.abspath(value) for name, value in names.items()})


def loop_of(config: RunConfig) -> RuntimeConfig:
    """The settings of the loop.

    Raises
    ------
    InputError
        One is out of range.
    """
    from ..device.machine import RuntimeConfig

    return RuntimeConfig(
        budget=config.budget,
        deadline_ms=config.deadline_ms,
        interval_s=config.interval,
        count=config.count,
        item_size=config.item_size,
        strict_range=config.strict_range,
        coin_seed=config.coin_seed,
    )


def rules_of(config: RunConfig) -> Rules:
    """What a bundle on trial must do.

    Raises
    ------
    InputError
        A rule is out of range.
    """
    from ..fleet.store.trial import Rules

    share = parse_share(config.trial_audit_share, "--trial-audit-share")
    longest = max(config.trial_decisions, config.trial_audits / share)
    deadline_s = min(1e7, max(3_600.0, 3 * longest * config.interval)) if config.trial_s is None else config.trial_s
    return Rules(decisions=config.trial_decisions, deadline_s=deadline_s, audits=config.trial_audits)


def asked(config: RunConfig, *, is_trial: bool = False) -> Iterator[Any]:
    """The modules of the parts that these settings ask for; ``is_trial``: a bundle is on trial, with a broker."""
    for name, keys in PARTS.items():
        is_set = any(getattr(config, key) != getattr(DEFAULTS, key) for key in keys)
        if is_set or (is_trial and name in ON_TRIAL):
            yield import_module(name, "hardcase_edge")


def check_one_part(config: RunConfig) -> None:
    """Refuse the settings that items of several parts do not have, and say why.

    Raises
    ------
    InputError
        One of them is set.
    """
    reasons = [pair for module in asked(config) for pair in getattr(module, "ONE_PART", {}).items()]
    flags = {flag_of(key): why for key, why in reasons if getattr(config, key) is not None}
    if config.record == "senml":
        flags["--record senml"] = "a pack of SenML has one answer"
    for flag, why in flags.items():
        raise InputError(f"this bundle decides items of several parts: leave out {flag}, because {why}")


def check_settings(config: RunConfig, *, is_here: bool = True) -> None:
    """Refuse settings with which no run starts, whatever the machine and the bundle.

    ``is_here``: whether the run is one of this process, with its environment.

    Raises
    ------
    InputError
        A setting is out of range, is of another form, or stands without another that it needs.
    """
    from ..sensors.specs import check_specs, timeout_s_of

    if (config.bundle is None) == (config.store is None):
        raise InputError("name either a bundle or a store with --store")
    loop_of(config)
    timeout_s_of(config.sensor_timeout_ms)
    check_specs(config.sensors, items=config.items)
    if config.store is not None:
        rules_of(config)
    for module in asked(config):
        if hasattr(module, "check"):
            module.check(config)
    _check_link(config, is_here=is_here)


def faults_of_settings(config: RunConfig) -> list[Fault]:
    """Why no run starts with these settings, for ``doctor``; empty if one may."""
    from ..fleet.diagnosis.fault import Fault

    try:
        check_settings(config)
    except HardcaseError as error:
        return [Fault.of(error, "run")]
    return []


def _check_link(config: RunConfig, *, is_here: bool) -> None:
    if config.device_id:
        from ..link.wire import check_device_id

        check_device_id(config.device_id)
    if config.broker is None:
        return
    from ..link.address import parse_address

    environment = os.environ if is_here else dict[str, str]()
    if config.identity is not None and config.cert is not None:
        raise InputError("--identity and --cert both name a certificate; name one of them")
    certificate = config.cert or config.identity
    parse_address(config.broker, ca=config.ca, cert=certificate, key=config.key, environment=environment)
