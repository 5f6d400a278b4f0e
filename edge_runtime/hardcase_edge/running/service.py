# SPDX-License-Identifier: Apache-2.0
"""The verb ``service``: the unit of a run, whose arguments have been checked as ``run`` checks its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..base.files import write_whole
from ..operations.unit import program, unit
from ..settings.run_toml import RUN_TOML
from .elsewhere import check_files, check_service

if TYPE_CHECKING:
    import argparse

__all__ = ["unit_of"]


def unit_of(run: argparse.Namespace, args: argparse.Namespace, argv0: str, settings: str) -> str:
    """The text of the unit. With ``--config``, the settings are written there, and the unit names their file.

    Parameters
    ----------
    run : the arguments of ``run``
    args : those of ``service``
    argv0 : the program that runs now, which the unit starts unless ``args`` names another machine's
    settings : the text of a ``run.toml`` with the arguments of ``run``

    Raises
    ------
    InputError
        An argument cannot be used, a file that it names is not on this machine, or the settings cannot be written.
    """
    check_service(run)
    if args.program is None:
        check_files(run, "", is_whole=False, remedy="put it there first")
    words = args.run if args.config is None else ["run", "--config", RUN_TOML]
    command = [args.program or program(argv0), *words]
    text = unit(command, devices=args.device, groups=args.group, sensors=run.sensors, named=args.run)
    if args.config is not None:
        write_whole(Path(args.config), settings.encode())
    return text
