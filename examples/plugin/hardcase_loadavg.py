# SPDX-License-Identifier: Apache-2.0
"""A driver of a package of one's own: ``--sensors load:1`` reads how busy the machine has been for 1, 5 or 15 min."""

import os

from hardcase_edge.drivers.channel import Channel, Device
from hardcase_edge.errors import InputError

NOUN = "load average"
MATURITY, AGAINST = "tested", "machines with other numbers of cores are not comparable"
MINUTES = {"1": 0, "5": 1, "15": 2}


def find(name: str, root: str) -> Device:
    """The load of one of the three spans, a number of processes."""
    if name not in MINUTES:
        raise InputError(f"there is no {NOUN} of {name[:80]!r} minutes; use {', '.join(MINUTES)}")
    return Device(name, {"load": Channel("/", lambda: os.getloadavg()[MINUTES[name]])})
