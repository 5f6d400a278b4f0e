# SPDX-License-Identifier: Apache-2.0
"""The energy of instructions, from what a data sheet says that a processor draws: a model, where nothing was measured.

An instruction counts as two cycles. The manual of the Cortex-M3 (Arm DDI 0337, table 3.1) has one for arithmetic, two
for a load and two to four for a branch that is taken. So the truth may be half or twice as much.
"""

from __future__ import annotations

import re

from ...base.record import record
from ...errors import InputError

CYCLES = 2  # of an instruction
MAX_INSTRUCTIONS = 10**12
OWN = re.compile(r"([\d.]{1,12})V,([\d.]{1,12})mA,([\d.]{1,12})MHz", re.ASCII)


@record(frozen=True, slots=True)
class Processor:
    """What a processor draws while it computes, and who says so."""

    core: str
    volts: float
    milliamperes: float
    megahertz: float
    source: str

    def joules(self, instructions: float) -> float:
        """The energy of so many instructions.

        >>> round(PROCESSORS["nrf52840"].joules(1_000_000), 12)
        0.000309375
        """
        return instructions * CYCLES * self.nanojoules * 1e-9

    @property
    def nanojoules(self) -> float:
        """Of a cycle."""
        return self.volts * self.milliamperes / self.megahertz


PROCESSORS = {  # typical values at 25 degrees, of code that runs from flash
    "atmega328p": Processor("AVR", 5.0, 5.2, 8.0, "Atmel 8271J, table 29-12"),
    "cc2340r2": Processor("Cortex-M0+", 3.0, 2.6, 48.0, "Texas Instruments SWRS282, CoreMark, DC/DC"),
    "nrf52840": Processor("Cortex-M4F", 3.0, 3.3, 64.0, "Nordic nRF52840 PS, CoreMark, DC/DC"),
    "stm32l100": Processor("Cortex-M3", 3.6, 9.6, 32.0, "ST DocID024295, table 15"),
}


def processor_of(text: str) -> Processor:
    """One of ``PROCESSORS``, or one's own as ``3.0V,3.3mA,64MHz``.

    Raises
    ------
    InputError
        It is neither.
    """
    if text in PROCESSORS:
        return PROCESSORS[text]
    match = OWN.fullmatch(text)
    try:
        volts, milliamperes, megahertz = (float(number) for number in (match.groups() if match else ()))
        if min(volts, milliamperes, megahertz) > 0:
            return Processor("own", volts, milliamperes, megahertz, "stated by you")
    except ValueError:
        pass
    raise InputError(f"processor {text[:80]!r} is unknown; use {', '.join(PROCESSORS)} or such as 3.0V,3.3mA,64MHz")
