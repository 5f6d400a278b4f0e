# SPDX-License-Identifier: Apache-2.0
"""The verb ``service``: the unit of a run, whose settings have been checked as ``run`` checks its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.files import write_whole
from ..operations.unit import program as program_of
from ..operations.unit import unit
from ..settings.config import RunConfig
from ..settings.run_toml import text_of
from ..settings.table import RUN_TOML
from .elsewhere import check_files, check_service

__all__ = ["unit_of"]


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
    check_service(run)
    if program is None:
        check_files(run, "", is_whole=False, remedy="put it there first")
    started = words if settings is None else ["run", "--config", RUN_TOML]
    command = [program or program_of(argv0), *started]
    text = unit(command, devices=devices, groups=groups, sensors=run.sensors, named=words)
    if settings is not None:
        write_whole(Path(settings), text_of(run).encode())
    return text
