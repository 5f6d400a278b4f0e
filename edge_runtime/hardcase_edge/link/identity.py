# SPDX-License-Identifier: Apache-2.0
"""The name that a device has among all devices of a broker, if its user gives it none."""

from __future__ import annotations

import os
import re

from ..base.sha256 import sha256
from .wire import check_device_id

MACHINE_ID = "/etc/machine-id"  # written once by systemd or dbus when a machine is set up
MAX_MACHINE_ID_BYTES = 256
_NAMESPACE = b"hardcase device id\0"  # so that the digest reveals nothing about the machine's id to others who use it
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")


def default_id(path: str = MACHINE_ID, host: str = "") -> tuple[str, bool]:
    """The host's name and 8 hex digits, and whether this machine will get the same ones next time.

    The digits come from the machine's id, because many hosts have the same name; without such an id they are random.

    >>> default_id("/nowhere", host="raspberrypi.local")  # doctest: +ELLIPSIS
    ('raspberrypi-...', False)
    """
    name = _FORBIDDEN.sub("-", (host or os.uname().nodename).split(".")[0])[:55].lstrip("._-") or "device"
    machine = _machine_id(path)
    digits = sha256(_NAMESPACE + machine).hex()[:8] if machine else os.urandom(4).hex()
    return check_device_id(f"{name}-{digits}"), bool(machine)


def _machine_id(path: str) -> bytes:
    """The machine's id; empty if it has none, or none yet."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_MACHINE_ID_BYTES).strip()
    except OSError:
        return b""
    return b"" if text == b"uninitialized" else text
