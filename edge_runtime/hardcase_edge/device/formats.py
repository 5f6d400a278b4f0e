# SPDX-License-Identifier: Apache-2.0
"""The formats of decision lines: an object of JSON with all keys, or a pack of SenML (``--record``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base.escape import json_line
from ..errors import InputError

__all__ = ["FORMATS", "line_format"]

FORMATS = ("json", "senml")


def line_format(name: str, device_id: str | None) -> Callable[[Mapping[str, Any]], str]:
    """The function that makes a line of a decision.

    Parameters
    ----------
    name : one of ``FORMATS``
    device_id : the device's id, which names are made of in SenML; None: the machine's own

    Raises
    ------
    InputError
        The id is not one, or it is needed and this machine has none that lasts.
    """
    if name == "json":
        return json_line
    from ..drivers.senml import pack_of_decision
    from ..link.identity import MACHINE_ID, default_id
    from ..link.wire import check_device_id

    device, is_lasting = (check_device_id(device_id), True) if device_id else default_id()
    if not is_lasting:
        raise InputError(f"SenML needs a name for this device that lasts, and {MACHINE_ID} is missing; use --device-id")
    return lambda decision: json_line(pack_of_decision(decision, device))
