# SPDX-License-Identifier: Apache-2.0
"""The verb ``service``: the unit of a run, and what keeps it from starting: its settings, their files, its bundle.

``service`` checks the unit that it prints in this way, and ``hardcase flash`` that of a device that nobody will be
near, whose files it lays out below a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.files import write_whole
from ..errors import HardcaseError, InputError
from ..settings.config import RunConfig, changed
from ..settings.run_toml import text_of
from ..settings.table import FILES, READ, RUN_TOML, flag_of
from .checks import check_one_part, check_settings, loop_of

if TYPE_CHECKING:
    from ..bundle.load import Loaded

STATE = "/var/lib/hardcase"  # where the unit starts
MODULES = "usr/local/lib/hardcase"  # where the flashed command looks for them first
WRITABLE = (STATE, "/run/hardcase", "/tmp", "/var/tmp")  # for the service alone


def unit_of(
    run: RunConfig, words: Sequence[str], *, program: str | None, argv0: str, settings: str | None,
    devices: Sequence[str], groups: Sequence[str],
) -> str:  # fmt: skip
    """The text of the unit. With a file for the settings, they are written there, and the unit names that file.

    Parameters
    ----------
    run : the settings
    words : of the command that the unit starts
    program : of another machine, which the unit starts; None: ``argv0``, the program that runs now
    settings : the file to write
    devices, groups : what the service may open below /dev, as of ``unit``

    Raises
    ------
    InputError
        A setting cannot be used, a file that it names is not on this machine, or the file cannot be written.
    """
    from ..fleet.operations.unit import program as program_of
    from ..fleet.operations.unit import unit

    check_service(run)
    if program is None:
        check_files(run, "", is_whole=False, remedy="put it there first")
    started = words if settings is None else ["run", "--config", RUN_TOML]
    command = [program or program_of(argv0), *started]
    text = unit(command, devices=devices, groups=groups, sensors=run.sensors, named=words)
    if settings is not None:
        write_whole(Path(settings), text_of(run).encode())
    return text


def check_service(config: RunConfig) -> None:
    """Refuse arguments of ``run`` with which no service starts, whatever the machine and the bundle.

    Raises
    ------
    InputError
        ``run`` refuses them, or would read standard input, which a service has none of.
    """
    check_settings(config, is_here=False)
    if flag := next((flag for flag, name in _files(config) if name in ("-", "/dev/stdin")), ""):
        raise InputError(f"{flag} reads standard input, and a service has none; name a file")


def check_files(config: RunConfig, root: str, *, is_whole: bool, remedy: str) -> None:
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
    for flag, name in _files(config):
        path = absolute(name)
        if (is_whole or not path.startswith(f"{STATE}/")) and not os.path.exists(f"{root}{path}"):
            raise InputError(f"{flag} needs {path}, which is not there; {remedy}")


def check_on(config: RunConfig, loaded: Loaded, root: Path) -> None:
    """Refuse what keeps a run of this bundle from starting on a machine that has the files below a folder.

    Raises
    ------
    HardcaseError
        The bundle, a file, a module or the identity is not for these arguments.
    """

    named = {name: value for name in FILES if (value := getattr(config, name)) is not None}
    there = changed(config, **{name: f"{root}{absolute(value)}" for name, value in named.items()})
    try:
        _check_bundle(config, loaded, root)
        if config.broker is not None:
            from ..base.clock import Clock
            from ..link.address import tls_context
            from .connecting import OwnId, link_config

            tls_context(link_config(there, OwnId(), Clock())[0].connection.address)
    except HardcaseError as error:
        raise InputError(str(error).replace(str(root), "")) from error
    for flag, name in (("--outbox-folder", config.outbox_folder), ("--budget-file", config.budget_file)):
        if name is not None and not f"{absolute(name)}/".startswith(tuple(f"{folder}/" for folder in WRITABLE)):
            raise InputError(f"{flag} is {name}, which the service may not write; name a place below {STATE}")
    if config.metrics_file is not None and os.path.dirname(absolute(config.metrics_file)) not in WRITABLE:
        raise InputError(f"--metrics-file is {config.metrics_file}, which the service cannot write; use /run/hardcase")


def _check_bundle(config: RunConfig, loaded: Loaded, root: Path) -> None:
    from ..base.clock import Clock
    from ..sensors.bank import wanted_of
    from ..sensors.csv_replay import Replay
    from ..sensors.specs import check_specs, kinds_of

    loop_of(config).check_fits(loaded)
    wanted, replay = wanted_of(loaded.machine.program, loaded.manifest), Replay
    if loaded.joint is not None:
        from ..device.parts import NO_PARTS, PartReplay

        check_one_part(config)
        wanted, replay = [w for s, w in enumerate(wanted) if s not in loaded.joint.inner], PartReplay
        if config.items is None and "replay" not in kinds_of(config.sensors):
            raise InputError(NO_PARTS)
    folders = [root / MODULES, root / STATE.lstrip("/")]
    check_specs(
        config.sensors, wanted, items=config.items, local=lambda name: f"{root}{absolute(name)}", folders=folders,
        replay=replay,
    )  # fmt: skip
    from ..more.servo.companion import plan_of

    plan_of(config, loaded, Clock())


def absolute(name: str) -> str:
    """The path of a file that a service names, which starts in ``STATE``.

    >>> absolute("ca.pem"), absolute("/etc/../ca.pem")
    ('/var/lib/hardcase/ca.pem', '/ca.pem')
    """
    return os.path.normpath(os.path.join(STATE, name))


def _files(config: RunConfig) -> Iterator[tuple[str, str]]:
    """The files that a run reads, with the flags that name them."""
    for name, access in FILES.items():
        if access == READ and (value := getattr(config, name)) is not None:
            yield flag_of(name), value
    from ..sensors.specs import tails_of

    for spec in config.sensors:
        for text in (spec, *tails_of(spec)):
            kind, _, rest = text.partition(":")
            if kind in ("replay", "senml") and rest:
                yield "--sensors", rest
                break
