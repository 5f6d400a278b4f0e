# SPDX-License-Identifier: Apache-2.0
"""What a slot's archive holds, unpacked beside it and compared at each start; a runtime is tried in a process.

    FOLDER/a/release.hcr      the archive of a slot
    FOLDER/a/unpacked         its files; whatever differs from the archive is thrown away and unpacked again

So a power cut while files are unpacked, or a damaged byte in one of them, costs the next start a second, and nothing
of it has to be flushed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from ...errors import StoreError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LOOK_S = 0.25
MOST_SHOWN = 160  # characters of what a failed command says
Outcome = tuple[bytes, str]  # what a command has printed, and why it failed; "" if it did not


def unpack(folder: Path, files: Mapping[str, bytes]) -> None:
    """Have exactly these files in a folder, and nothing else.

    Raises
    ------
    StoreError
        The folder cannot be written.
    """
    if _is_whole(folder, files):
        return
    try:
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}; free some space") from error
    if not _is_whole(folder, files):
        raise StoreError(f"{folder} reads back otherwise than it was written; replace the disk or card")


def _is_whole(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether the folder has these files alone, byte for byte, and no link."""
    found = set()
    for place, folders, names in os.walk(folder):
        if any(os.path.islink(os.path.join(place, name)) for name in (*folders, *names)):
            return False
        found |= {os.path.relpath(os.path.join(place, name), folder).replace(os.sep, "/") for name in names}
    if found != set(files):
        return False
    try:
        return all((folder / name).read_bytes() == data for name, data in files.items())
    except OSError:
        return False


def command_of(path: Sequence[str | Path], words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command line of ``hardcase-edge`` with these folders first among Python's, and its environment.

    Its bytecode goes to the folder that systemd keeps in memory for the service, and nowhere without one, so that no
    file that Python runs is one that nobody compares.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    holder = environment.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if holder:
        environment["PYTHONPYCACHEPREFIX"] = os.path.join(holder, "bytecode")
    else:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return [sys.executable, "-P", "-m", "hardcase_edge.cli", *words], environment


def try_command(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float, alive: Callable[[], object] = lambda: None
) -> Outcome:
    """Run a command for a limited time; ``alive`` is called about four times a second until it ends."""
    try:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return b"", f"it could not be tried: {one_line(error)}"
    end = time.monotonic() + limit_s
    with process:
        while True:
            try:
                out, said = process.communicate(timeout=LOOK_S)
                break
            except subprocess.TimeoutExpired:
                alive()
                if time.monotonic() > end:
                    process.kill()
                    process.communicate()
                    return b"", f"it was not done in {limit_s:g} s"
    if process.returncode == 0:
        return out, ""
    if process.returncode < 0:
        return b"", f"signal {-process.returncode} ended it on this {platform.machine()}"
    return b"", f"it failed: {' '.join(said.decode(errors='replace').split())[-MOST_SHOWN:]}"
