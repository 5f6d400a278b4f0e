# SPDX-License-Identifier: Apache-2.0
"""Two sensors as bad drivers have them: ``x`` hangs once and never gives Python's lock back, ``vib`` crashes."""

from __future__ import annotations

import os
import re

HANGS_AT = 40  # readings: after the trial of the first bundle has passed
n_readings = 0


def read(sensor: str) -> float:
    """A reading of ``x``; of ``vib`` there is none."""
    global n_readings
    if sensor != "x":
        os.abort()
    n_readings += 1
    if n_readings == HANGS_AT and not os.path.exists("has-hung"):
        open("has-hung", "x").close()
        print("card_sensors: this reading hangs", flush=True)
        re.match("(a+)+b", "a" * 100)  # for longer than anybody waits, and no other thread runs meanwhile
    return 3.0
