# SPDX-License-Identifier: Apache-2.0
"""The arguments of ``run``, checked without opening a sensor or a connection.

``run`` checks its own by this before it does anything; ``service`` and ``hardcase flash`` check by it what shall run
elsewhere (``elsewhere.py``). Whatever is checked is checked by the code that uses it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..drift.flags import FORWARD
from ..errors import HardcaseError, InputError
from ..outbox.flags import FOLDER, parse_share
from ..outbox.flags import check as check_outbox
from ..servo.flags import BUDGET_FILE

if TYPE_CHECKING:
    import argparse

    from ..device.device import RuntimeConfig
    from ..diagnosis.fault import Fault
    from ..store.trial import Rules

__all__ = ["anchor", "check_arguments", "config_of", "faults_of_arguments", "rules_of"]

FILES = ("bundle", "store", "trust", "ca", "cert", "key", "identity", "metrics_file", "outbox_folder", "budget_file")


def anchor(args: argparse.Namespace) -> None:
    """Make the names of all files of a run absolute, so that a plug-in that changes the folder moves none of them."""
    if args.store is None:
        args.outbox_folder, args.budget_file = args.outbox_folder or FOLDER, args.budget_file or BUDGET_FILE
    for name in FILES:
        if (value := getattr(args, name)) is not None:
            setattr(args, name, os.path.abspath(value))


def config_of(args: argparse.Namespace) -> RuntimeConfig:
    """The settings of the loop.

    Raises
    ------
    InputError
        One is out of range.
    """
    from ..device.device import RuntimeConfig

    return RuntimeConfig(
        budget=args.budget,
        deadline_ms=args.deadline_ms,
        interval_s=args.interval,
        count=args.count,
        item_size=args.item_size,
        strict_range=args.strict_range,
        coin_seed=args.coin_seed,
    )


def rules_of(args: argparse.Namespace) -> Rules:
    """What a bundle on trial must do.

    Raises
    ------
    InputError
        A rule is out of range.
    """
    from ..store.trial import Rules

    share = parse_share(args.trial_audit_share, "--trial-audit-share")
    longest = max(args.trial_decisions, args.trial_audits / share)
    deadline_s = min(1e7, max(3_600.0, 3 * longest * args.interval)) if args.trial_s is None else args.trial_s
    return Rules(decisions=args.trial_decisions, deadline_s=deadline_s, audits=args.trial_audits)


def check_arguments(args: argparse.Namespace, *, is_here: bool = True) -> None:
    """Refuse arguments of ``run`` with which no run starts, whatever the machine and the bundle.

    ``is_here``: whether the run is one of this process, with its environment.

    Raises
    ------
    InputError
        An argument is out of range, is of another form, or stands without another that it needs.
    """
    from ..sensors.specs import check_specs, timeout_s_of

    if (args.bundle is None) == (args.store is None):
        raise InputError("name either a bundle or a store with --store")
    config_of(args)
    timeout_s_of(args.sensor_timeout_ms)
    check_specs(args.sensors, items=args.items)
    if args.store is not None:
        rules_of(args)
    if args.metered is not None:
        from ..update.metered import parse_metered

        parse_metered(args.metered)
        if args.store is None or args.broker is None:
            raise InputError("--metered needs --store and --broker: it pauses updates from the one into the other")
    check_outbox(args)
    if args.on_broken is not None and args.drift is None:
        raise InputError("--on-broken needs --drift, which tests the promise")
    if args.on_broken == FORWARD and not args.audit:
        raise InputError(f"--on-broken {FORWARD} needs --broker and --audit, by which f0 tests the promise")
    _check_budgets(args)
    _check_link(args, is_here=is_here)
    _check_watchers(args)


def faults_of_arguments(args: argparse.Namespace) -> list[Fault]:
    """Why no run starts with these arguments, for ``doctor``; empty if one may."""
    from ..diagnosis.fault import Fault

    try:
        check_arguments(args)
    except HardcaseError as error:
        return [Fault.of(error, "run")]
    return []


def _check_budgets(args: argparse.Namespace) -> None:
    if (args.budget_per_hour, args.battery, args.until, args.max_forward_rate) == (None, None, None, None):
        return
    from ..servo.flags import date_of, is_asked

    is_asked(args)
    if args.until is not None:
        date_of(args.until)
    if args.max_forward_rate is not None:
        parse_share(args.max_forward_rate, "--max-forward-rate")


def _check_link(args: argparse.Namespace, *, is_here: bool) -> None:
    if args.device_id:
        from ..link.wire import check_device_id

        check_device_id(args.device_id)
    if args.broker is None:
        return
    from ..link.address import parse_address

    environment = os.environ if is_here else dict[str, str]()
    if args.identity is not None and args.cert is not None:
        raise InputError("--identity and --cert both name a certificate; name one of them")
    parse_address(args.broker, ca=args.ca, cert=args.cert or args.identity, key=args.key, environment=environment)


def _check_watchers(args: argparse.Namespace) -> None:
    if args.home_assistant is not None or args.home_assistant_remove is not None:
        from ..operations.discovery import checked_prefix

        if args.broker is None:
            raise InputError("Home Assistant hears of a device from its broker; name it with --broker")
        for prefix in (args.home_assistant, args.home_assistant_remove):
            if prefix is not None:
                checked_prefix(prefix)
    if args.metrics is not None or args.metrics_file is not None:
        from ..operations.scrape import check_name, checked_address

        if args.metrics is not None:
            checked_address(args.metrics, is_public=args.metrics_public)
        if args.metrics_file is not None:
            check_name(args.metrics_file)
