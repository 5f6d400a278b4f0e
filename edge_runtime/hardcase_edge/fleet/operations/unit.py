# SPDX-License-Identifier: Apache-2.0
"""The systemd unit of a device, ``hardcase-edge.service``: the file beside this module, with a command filled in.

``hardcase-edge service run ...`` prints it. The command's words are quoted as systemd reads them, so that no argument
becomes a setting of the unit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ...drivers.channel import driver_of, is_driver
from ...errors import InputError
from ...sensors.specs import kinds_of

NAME = "hardcase-edge.service"
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_STRANGE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # controls, and bytes that are not UTF-8
_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
HOMES = ("/home/", "/root/", "/run/user/")  # what ProtectHome= of systemd.exec(5) hides


def unit(
    command: Sequence[str], *, devices: Sequence[str] = (), groups: Sequence[str] = (), sensors: Sequence[str] = (),
    named: Sequence[str] = (),
) -> str:  # fmt: skip
    """The text of the unit.

    Parameters
    ----------
    command : the program's absolute path and its arguments
    devices : files below /dev that a sensor needs, which the unit hides otherwise
    groups : groups of users that such files belong to, such as ``i2c``
    sensors : specs of sensors; what their drivers need is let in, too
    named : other words that may name files in somebody's home, such as those of a run.toml

    Raises
    ------
    InputError
        A word, a device or a group cannot stand in a unit.

    Examples
    --------
    >>> text = unit(["/usr/bin/hardcase-edge", "run", "a b.hcb", "--sensors", "100%=none"])
    >>> [line for line in text.splitlines() if line.startswith("ExecStart=")]
    ['ExecStart=/usr/bin/hardcase-edge run "a b.hcb" --sensors "100%%=none"']
    """
    if not command or not command[0].startswith("/"):
        raise InputError(f"the program {' '.join(command[:1])!r} is not an absolute path; name one with --program")
    drivers = [driver_of(kind) for kind in sorted(kinds_of(sensors)) if is_driver(kind)]
    lines = [f"DeviceAllow={driver.DEVICE_FILES} rw" for driver in drivers if hasattr(driver, "DEVICE_FILES")]
    groups = [*groups, *(d.GROUP for d in drivers if hasattr(d, "GROUP") and d.GROUP not in groups)]
    for device in devices:
        if not re.fullmatch(r"/dev/[A-Za-z0-9/_.-]{1,200}", device) or ".." in device:
            raise InputError(f"{device[:80]!r} is not a file below /dev; name the file that the sensor opens")
        lines.append(f"DeviceAllow={device} rw")
    for group in groups:
        if not _GROUP.fullmatch(group):
            raise InputError(f"{group[:80]!r} is not the name of a group; correct its spelling")
    if groups:
        lines += [f"SupplementaryGroups={' '.join(groups)}", "PrivateUsers=no"]  # which would hide the groups
    if any(word.startswith(HOMES) for word in (*command, *named)):
        lines.append("ProtectHome=read-only")
    template = (Path(__file__).parent / NAME).read_text(encoding="utf-8")
    extra = "".join(f"{line}\n" for line in ["", "# What this device needs besides.", *lines]) if lines else ""
    return template.replace("@DEVICES@\n", extra + "\n").replace("@EXEC@", " ".join(map(_quoted, command)))


def program(argv0: str) -> str:
    """The absolute path of the program that runs now; "" if nobody can tell.

    >>> program("cli.py")
    ''
    """
    path = os.path.abspath(argv0)
    return path if os.path.basename(path) == "hardcase-edge" and os.access(path, os.X_OK) else ""


def _quoted(word: str) -> str:
    """A word as ``ExecStart`` reads it back: specifiers and variables doubled, and quotes where they are needed."""
    if _STRANGE.search(word):
        raise InputError(f"the argument {word[:80]!r} holds a control character, or is not UTF-8; leave that out")
    doubled = word.replace("%", "%%").replace("$", "$$")
    if _PLAIN.fullmatch(doubled):
        return doubled
    escaped = doubled.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
