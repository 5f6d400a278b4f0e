# SPDX-License-Identifier: Apache-2.0
"""What starts a slot that has a release: the device's own runtime, which no update replaces.

It has counted the start of a trial on the disk before anything of the release is executed. It unpacks the slot's
archive, tries a new runtime in a process of its own, and then becomes that runtime, whose settings are the slot's. The
new process runs this slot and no other: where the next one is to run, it becomes the device's own runtime again, which
chooses. ``HARDCASE_LAUNCH`` says so in its environment; docs/SPEC-store-v1.md, section 9, is normative.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from ...base.files import write_whole
from ...base.record import record
from ...base.toml import parse_toml, toml_text
from ...errors import InputError, StoreError, one_line
from ..release.archive import read_archive
from ..release.content import AUTHORITY, DEVICE_KEYS, SETTINGS, unpacked_files
from ..release.unpacked import command_of, try_command, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ...settings.config import RunConfig
    from ..store.folder import Started, Store

VARIABLE = "HARDCASE_LAUNCH"
TRY_S = 60.0  # for the imports, the bundle's golden cases and the settings on the slowest device
PYTHON = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")  # what a slot has of its own


@record(frozen=True, slots=True)
class Launch:
    """Whose child this process is."""

    slot: str
    sha256: str  # of what was offered for it
    command: tuple[str, ...]  # of the device's own runtime
    environment: dict[str, str | None]  # of that, as far as it differs; None: not there


@record(frozen=True, slots=True)
class Plan:
    """The command that this process becomes when its files are closed."""

    command: list[str]
    environment: dict[str, str]

    def begin(self) -> NoReturn:
        """Become it.

        Raises
        ------
        StoreError
            The system refuses it.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            os.execve(self.command[0], self.command, self.environment)
        except OSError as error:
            raise StoreError(f"{self.command[0]} cannot be started: {one_line(error)}; install Python again") from error


def launched() -> Launch | None:
    """What has started this process; None: a user or systemd. Its children do not hear of it.

    Raises
    ------
    StoreError
        The environment says something else than ``plan_for`` writes there.
    """
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return None
    try:
        value = json.loads(text)
        own = {name: value["environment"][name] for name in PYTHON}
        return Launch(str(value["slot"]), str(value["sha256"]), tuple(map(str, value["command"])), own)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{VARIABLE} is not readable; start hardcase-edge without it") from error


def launched_by(launch: Launch) -> Plan:
    """Becoming the device's own runtime again, which starts what the store has then."""
    environment = {name: value for name, value in os.environ.items() if name not in PYTHON}
    environment |= {name: value for name, value in launch.environment.items() if value is not None}
    return Plan(list(launch.command), environment)


def plan_for(
    config: RunConfig, words: Sequence[str] | None, store: Store, started: Started, alive: Callable[[], object]
) -> tuple[Plan | None, str]:
    """Unpack what a slot has and, if it is on trial, try it.

    Parameters
    ----------
    config : the device's own settings
    words : of the command ``run``; None: a function runs, and no command
    alive : called about four times a second meanwhile

    Returns
    -------
    tuple of Plan or None, and str
        What this process becomes; None: the slot has a bundle alone, and this process runs it. And why the slot cannot
        be run; "" if it can.

    Raises
    ------
    HardcaseError
        The slot cannot be read, or a function and no command asks.
    """
    content = store.content_of(started.name)
    if not content.archive:
        return None, ""
    if words is None:
        raise StoreError(
            f"slot {started.name} has a release, which the command hardcase-edge run starts, and no function"
        )
    folder = store.folder / started.name / "unpacked"
    archive = read_archive(content.archive, f"the archive of slot {started.name}")
    files = unpacked_files(archive)
    own = {name: os.environ.get(name) for name in PYTHON}
    path = [str(folder), *([own["PYTHONPATH"]] if own["PYTHONPATH"] else [])]
    try:
        unpack(folder, files)
        own_words = _words(config, words, folder, files)
    except (StoreError, InputError) as error:  # a full disk must not keep the other slot from running
        return None, f"its files cannot be put down: {error}"
    command, environment = command_of(path, own_words)
    if started.slot.state == "trial":
        for tried in (["verify", str(started.path), "--json"], ["service", "--program", "/hardcase-edge", *own_words]):
            reason = try_command(command_of(path, tried)[0], environment, TRY_S, alive)[1]
            if reason:
                version = archive.manifest["runtime"]
                return None, f"hardcase-edge {version} with {tried[0]}: {reason}" if version else reason
    factory = [sys.executable, "-P", "-m", "hardcase_edge.cli", *words]
    launch = {"slot": started.name, "sha256": started.slot.sha256, "command": factory, "environment": own}
    return Plan(command, {**environment, VARIABLE: json.dumps(launch)}), ""


def _words(config: RunConfig, words: Sequence[str], folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """The words of ``run`` for a slot: by its settings, with what is the device's own, or by the device's words."""
    authority = {"ca": str(folder / AUTHORITY)} if AUTHORITY in files else {}
    if SETTINGS not in files:
        return [*words, *(["--ca", authority["ca"]] if authority else [])]
    own = {key: getattr(config, key) for key in (*DEVICE_KEYS, "ca") if getattr(config, key) is not None}
    given = parse_toml("run.toml", files[SETTINGS])
    text = toml_text({**own, **given, **{key: own[key] for key in DEVICE_KEYS if key in own}, **authority}).encode()
    path = folder.with_name("run.toml")
    if not path.exists() or path.read_bytes() != text:
        write_whole(path, text)
    return ["run", "--config", str(path)]
