# SPDX-License-Identifier: Apache-2.0
"""The arguments of ``run``, checked without opening a sensor or a connection.

``run`` checks its own by this before it does anything, ``service`` those of the unit that it prints, and ``hardcase
flash`` those of a device that nobody is near: there also the files, which are looked for among what is put there, and
all that only the bundle tells. Whatever is checked is checked by the code that uses it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HardcaseError, InputError
from ..outbox.flags import check as check_outbox
from ..outbox.flags import parse_share

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ..bundle.load import Loaded
    from ..device.device import RuntimeConfig
    from ..diagnosis.fault import Fault
    from ..store.trial import Rules

__all__ = [
    "STATE", "check_arguments", "check_files", "check_on", "config_of", "faults_of_arguments", "rules_of",
]  # fmt: skip

STATE = "/var/lib/hardcase"  # where the unit starts
MODULES = "usr/local/lib/hardcase"  # where the flashed command looks for them first
WRITABLE = ("/var/lib/hardcase", "/run/hardcase", "/tmp", "/var/tmp")  # for the service alone
STDIN = ("-", "/dev/stdin")


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
    _check_budgets(args)
    _check_link(args, is_here=is_here)
    _check_watchers(args)
    if not is_here and (flag := next((flag for flag, name in _files(args) if name in STDIN), "")):
        raise InputError(f"{flag} reads standard input, and a service has none; name a file")


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

    environment = {} if is_here else {"environment": dict[str, str]()}
    if args.identity is not None and args.cert is not None:
        raise InputError("--identity and --cert both name a certificate; name one of them")
    parse_address(args.broker, ca=args.ca, cert=args.cert or args.identity, key=args.key, **environment)


def _check_watchers(args: argparse.Namespace) -> None:
    if args.home_assistant is not None or args.home_assistant_remove is not None:
        from ..operations.discovery import checked_prefix

        if args.broker is None:
            raise InputError("Home Assistant hears of a device from its broker; name it with --broker")
        checked_prefix(args.home_assistant or args.home_assistant_remove)
    if args.metrics is not None or args.metrics_file is not None:
        from ..operations.scrape import check_name, checked_address

        if args.metrics is not None:
            checked_address(args.metrics, is_public=args.metrics_public)
        if args.metrics_file is not None:
            check_name(args.metrics_file)


# ---------------------------------------------------------------- on another machine


def check_files(args: argparse.Namespace, root: str, *, is_whole: bool, remedy: str) -> None:
    """Refuse files that a service names and that are not there.

    Parameters
    ----------
    root : the folder that stands for "/"; empty: that itself
    is_whole : whether all that the device will have is there; otherwise nobody looks below ``STATE``

    Raises
    ------
    InputError
        One is missing.
    """
    for flag, name in _files(args):
        path = absolute(name)
        if (is_whole or not path.startswith(f"{STATE}/")) and not os.path.exists(f"{root}{path}"):
            raise InputError(f"{flag} needs {path}, which is not there; {remedy}")


def check_on(args: argparse.Namespace, loaded: Loaded, root: Path) -> None:
    """Refuse what keeps a run of this bundle from starting on a machine that has the files below a folder.

    Raises
    ------
    HardcaseError
        The bundle, a file, a module or the identity is not for these arguments.
    """
    import argparse

    there = argparse.Namespace(**vars(args))
    for name in ("ca", "cert", "key", "identity", "store"):
        if (value := getattr(args, name)) is not None:
            setattr(there, name, f"{root}{absolute(value)}")
    try:
        _check_bundle(args, loaded, root)
        if args.broker is not None:
            from ..base.clock import Clock
            from ..link.address import tls_context
            from .connecting import link_config

            tls_context(link_config(there, Clock())[0].connection.address)
    except HardcaseError as error:
        raise InputError(str(error).replace(str(root), "")) from error
    for flag, name in (("--outbox-folder", args.outbox_folder), ("--budget-file", args.budget_file)):
        if name is not None and not f"{absolute(name)}/".startswith(tuple(f"{folder}/" for folder in WRITABLE)):
            raise InputError(f"{flag} is {name}, which the service may not write; name a place below {STATE}")
    if args.metrics_file is not None and os.path.dirname(absolute(args.metrics_file)) not in WRITABLE:
        raise InputError(f"--metrics-file is {args.metrics_file}, which the service cannot write; use /run/hardcase")


def _check_bundle(args: argparse.Namespace, loaded: Loaded, root: Path) -> None:
    from ..base.clock import Clock
    from ..sensors.bank import wanted_of
    from ..sensors.csv_replay import Replay
    from ..sensors.specs import check_specs, kinds_of

    config_of(args).check_size(loaded)
    wanted, replay = wanted_of(loaded.machine.program, loaded.manifest), Replay
    if loaded.joint is not None:
        from ..device.joint import check_flags
        from ..device.parts import NO_PARTS, PartReplay

        check_flags(args)
        wanted, replay = [w for s, w in enumerate(wanted) if s not in loaded.joint.inner], PartReplay
        if args.items is None and "replay" not in kinds_of(args.sensors):
            raise InputError(NO_PARTS)
    folders = [root / MODULES, root / STATE.lstrip("/")]
    check_specs(
        args.sensors, wanted, items=args.items, local=lambda name: f"{root}{absolute(name)}", folders=folders,
        replay=replay,
    )  # fmt: skip
    from .budgeting import plan_of

    plan_of(args, loaded.manifest, Clock())


def absolute(name: str) -> str:
    """The path of a file that a service names, which starts in ``STATE``.

    >>> absolute("ca.pem"), absolute("/etc/../ca.pem")
    ('/var/lib/hardcase/ca.pem', '/ca.pem')
    """
    return os.path.normpath(os.path.join(STATE, name))


def _files(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The files that a run reads, with the flags that name them."""
    for name in ("bundle", "trust", "ca", "cert", "key", "identity"):
        if (value := getattr(args, name)) is not None:
            yield (name if name == "bundle" else f"--{name}"), value
    for spec in args.sensors:
        for text in (spec, spec.partition("=")[2]):
            kind, _, rest = text.partition(":")
            if kind in ("replay", "senml") and rest:
                yield "--sensors", rest
                break
