# SPDX-License-Identifier: Apache-2.0
"""The settings of ``run``, checked without opening a sensor or a connection.

``run`` checks its own by this before it does anything; ``service`` and ``hardcase flash`` check by it what shall run
elsewhere (``service.py``). Whatever is checked is checked by the code that uses it, or by the table of settings.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import HardcaseError, InputError
from ..settings.config import RunConfig, changed
from ..settings.table import DEFAULTS, check_values
from ..settings.values import BUDGET_FILE, FORWARD, OUTBOX_FOLDER, parse_share

if TYPE_CHECKING:
    from ..device.device import RuntimeConfig
    from ..fleet.diagnosis.fault import Fault
    from ..fleet.store.trial import Rules

__all__ = ["anchored", "check_settings", "faults_of_settings", "loop_of", "rules_of"]

FILES = ("bundle", "store", "trust", "ca", "cert", "key", "identity", "metrics_file", "outbox_folder", "budget_file")


def anchored(config: RunConfig) -> RunConfig:
    """The same, with absolute names of all files, so that a plug-in that changes the folder moves none of them."""
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
    from ..device.device import RuntimeConfig

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
    _check_updates(config)
    _check_outbox(config)
    _check_drift(config)
    _check_budgets(config)
    _check_link(config, is_here=is_here)
    _check_watchers(config)


def faults_of_settings(config: RunConfig) -> list[Fault]:
    """Why no run starts with these settings, for ``doctor``; empty if one may."""
    from ..fleet.diagnosis.fault import Fault

    try:
        check_settings(config)
    except HardcaseError as error:
        return [Fault.of(error, "run")]
    return []


def _check_updates(config: RunConfig) -> None:
    if config.metered is not None:
        from ..fleet.update.metered import parse_metered

        parse_metered(config.metered)
        if config.store is None or config.broker is None:
            raise InputError("--metered needs --store and --broker: it pauses updates from the one into the other")


def _check_outbox(config: RunConfig) -> None:
    is_asked = bool(config.publish or config.outbox or config.audit)
    if is_asked and config.broker is None:
        raise InputError("--publish, --audit and --outbox need a broker; name one with --broker")
    check_values(config, ("outbox_rate", "outbox_days"))
    if config.outbox_rate != DEFAULTS.outbox_rate and not is_asked:
        raise InputError("--outbox-rate needs --publish, --audit or --outbox, which make the records that it limits")
    is_kept_otherwise = (config.outbox_days, config.outbox_drop) != (DEFAULTS.outbox_days, DEFAULTS.outbox_drop)
    if not config.outbox and is_kept_otherwise:
        raise InputError("--outbox-days and --outbox-drop need --outbox, which keeps records")
    check_values(config, [key for key in ("audit", "outbox", "publish") if getattr(config, key)])


def _check_drift(config: RunConfig) -> None:
    if config.on_broken is not None and config.drift is None:
        raise InputError("--on-broken needs --drift, which tests the promise")
    if config.on_broken == FORWARD and not config.audit:
        raise InputError(f"--on-broken {FORWARD} needs --broker and --audit, by which f0 tests the promise")


def _check_budgets(config: RunConfig) -> None:
    if (config.budget_per_hour, config.battery, config.until, config.max_forward_rate) != (None, None, None, None):
        from ..more.servo.companion import check_budgets

        check_budgets(config)


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


def _check_watchers(config: RunConfig) -> None:
    if config.home_assistant is not None or config.home_assistant_remove is not None:
        from ..fleet.operations.discovery import checked_prefix

        if config.broker is None:
            raise InputError("Home Assistant hears of a device from its broker; name it with --broker")
        for prefix in (config.home_assistant, config.home_assistant_remove):
            if prefix is not None:
                checked_prefix(prefix)
    if config.metrics is not None or config.metrics_file is not None:
        from ..fleet.operations.scrape import check_name, checked_address

        if config.metrics is not None:
            checked_address(config.metrics, is_public=config.metrics_public)
        if config.metrics_file is not None:
            check_name(config.metrics_file)
