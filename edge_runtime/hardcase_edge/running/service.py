# SPDX-License-Identifier: Apache-2.0
"""The verb ``service``: the unit of a run, whose arguments have been checked as ``run`` checks its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..operations.unit import program, unit
from .elsewhere import check_files, check_service

if TYPE_CHECKING:
    import argparse

__all__ = ["unit_of"]


def unit_of(run: argparse.Namespace, args: argparse.Namespace, argv0: str) -> str:
    """The text of the unit.

    Parameters
    ----------
    run : the arguments of ``run``
    args : those of ``service``
    argv0 : the program that runs now, which the unit starts unless ``args`` names another machine's

    Raises
    ------
    InputError
        An argument cannot be used, or a file that it names is not on this machine.
    """
    check_service(run)
    if args.program is None:
        check_files(run, "", is_whole=False, remedy="put it there first")
    command = [args.program or program(argv0), *args.run]
    return unit(command, devices=args.device, groups=args.group, sensors=run.sensors)
