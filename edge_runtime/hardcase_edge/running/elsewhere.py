# SPDX-License-Identifier: Apache-2.0
"""What keeps a service on another machine from starting: its arguments, the files that they name, its bundle.

``service`` asks this of the unit that it prints, and ``hardcase flash`` of a device that nobody will be near, whose
files it lays out below a folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HardcaseError, InputError
from .arguments import check_arguments, config_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ..bundle.load import Loaded

__all__ = ["STATE", "check_files", "check_on", "check_service"]

STATE = "/var/lib/hardcase"  # where the unit starts
MODULES = "usr/local/lib/hardcase"  # where the flashed command looks for them first
WRITABLE = ("/var/lib/hardcase", "/run/hardcase", "/tmp", "/var/tmp")  # for the service alone


def check_service(args: argparse.Namespace) -> None:
    """Refuse arguments of ``run`` with which no service starts, whatever the machine and the bundle.

    Raises
    ------
    InputError
        ``run`` refuses them, or would read standard input, which a service has none of.
    """
    check_arguments(args, is_here=False)
    if flag := next((flag for flag, name in _files(args) if name in ("-", "/dev/stdin")), ""):
        raise InputError(f"{flag} reads standard input, and a service has none; name a file")


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
