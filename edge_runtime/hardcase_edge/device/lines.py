# SPDX-License-Identifier: Apache-2.0
"""The lines of decisions: what a device says of each, and as what: an object of JSON, or a pack of SenML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.escape import json_line
from ..bundle.evidence import atypical_in, reported, sensors_sent, unpaid_that_count
from ..errors import InputError
from ..program.cost import to_unit

if TYPE_CHECKING:
    from ..bundle.load import Loaded
    from ..session.actions import Decision
    from ..session.session import Session


class LineMaker:
    """Says of a bundle's decisions what ``record_keys`` lists, for devices, fleets and ``hardcase.load`` alike.

    Attributes
    ----------
    sent : frozenset of int
        The sensors of which a request carries a reading.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._manifest, self._program = loaded.manifest, loaded.machine.program
        self._counting = unpaid_that_count(self._program, self._manifest.atypical)
        self.sent = sensors_sent(self._program)

    def line(
        self, decision: Decision, elapsed_s: float, outside: Sequence[str] = (), session: Session | None = None
    ) -> dict[str, Any]:
        """The line of a decision, but for its time ``t``; ``session`` has made it, and is asked how atypical it is."""
        names, program = self._manifest.sensors, self._program
        branches = self._manifest.atypical
        atypical = None if session is None else atypical_in(decision, session, program, branches)
        route, confidence = self.reported(decision)
        return {
            **self.answer(decision),
            "confidence": None if confidence is None else confidence / 10_000,
            "route": route,
            "cost": to_unit(decision.cost),
            "sensors": [names[s] for s in decision.sensors],
            "failed": [names[s] for s in decision.failed],
            **({"unpaid": [names[s] for s in decision.unpaid]} if decision.unpaid else {}),
            "out_of_range": outside,
            **({} if atypical is None else {"atypical": atypical}),
            "latency_ms": round(elapsed_s * 1000, 3),
        }

    def reported(self, decision: Decision) -> tuple[str, int | None]:
        """The route and the confidence (basis points) to report; None: nobody measured the confidence."""
        return reported(decision, self._manifest.without, self._counting, self.sent)

    def answer(self, decision: Decision) -> dict[str, Any]:
        """The class as ``label``, or ``value`` and ``interval``; of an older bundle of values the bare result."""
        classes, value = self._manifest.classes, self._manifest.value
        if value is not None:
            interval = value.interval_of(decision, self._counting)
            return {"value": value.of(decision.result), "interval": interval and list(interval)}
        return {"label": classes[int(decision.result)] if classes else decision.result}


def line_format(name: str, device_id: str | None) -> Callable[[Mapping[str, Any]], str]:
    """The function that makes a line of a decision.

    Parameters
    ----------
    name : "json" or "senml"
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
