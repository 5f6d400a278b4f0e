# SPDX-License-Identifier: Apache-2.0
"""The device side of hardcase: decide locally and forward only the hard cases to the cloud.

Needs the standard library, and paho-mqtt where there is a broker. The names below are imported when they are first
used, so that a device imports only what it runs.

    from hardcase_edge import drive, load_bundle

    session = load_bundle("model.hcb").machine.session(cloud=False)
    decision = drive(session, read_sensors, lambda request: None)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bundle.load import load_bundle
    from .device.device import Device
    from .errors import (
        BundleError,
        BundleVersionError,
        HardcaseError,
        InputError,
        LinkError,
        ProgramError,
        SessionError,
        SignatureError,
    )
    from .session.drive import drive
    from .session.session import Session

__all__ = [
    "BundleError",
    "BundleVersionError",
    "Device",
    "HardcaseError",
    "InputError",
    "LinkError",
    "ProgramError",
    "Session",
    "SessionError",
    "SignatureError",
    "drive",
    "load_bundle",
]

__version__ = "0.1.0"

_HOMES = {
    "Device": "device.device",
    "Session": "session.session",
    "drive": "session.drive",
    "load_bundle": "bundle.load",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a name of ``__all__`` from its module and keep it here (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f".{_HOMES.get(name, 'errors')}", __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
