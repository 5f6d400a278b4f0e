# SPDX-License-Identifier: Apache-2.0
"""Devices whose requests have made the HPC hang: each may do so once, and then keeps away longer each time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Suspects"]

MAX_SUSPECTS = 4096
FIRST_PAUSE_S, LAST_PAUSE_S = 60.0, 3600.0  # after the second call that hangs; doubles up to the last
FORGET_S = 4 * LAST_PAUSE_S  # a device that has caused no hang for so long begins anew


@dataclass(slots=True)
class _Suspect:
    n_hangs: int = 0
    last: float = 0.0  # when the last call hung, seconds
    pause_s: float = 0.0


class Suspects:
    """What is known of the devices that made a call hang; times are seconds on the caller's clock.

    >>> suspects = Suspects()
    >>> suspects.hung("pi-1", 0.0)
    >>> suspects.is_barred("pi-1", 1.0)
    False
    >>> suspects.hung("pi-1", 1.0)
    >>> suspects.is_barred("pi-1", 60.0), suspects.is_barred("pi-1", 62.0)
    (True, False)
    """

    def __init__(self) -> None:
        self._suspects: OrderedDict[str, _Suspect] = OrderedDict()

    def hung(self, device: str, now: float) -> None:
        """Note that a call with this device's request alone did not return in time."""
        suspect = self._suspects.get(device)
        if suspect is None or now - suspect.last > FORGET_S:
            suspect = self._suspects[device] = _Suspect()
        self._suspects.move_to_end(device)
        suspect.n_hangs += 1
        suspect.last = now
        if suspect.n_hangs > 1:
            suspect.pause_s = min(LAST_PAUSE_S, max(FIRST_PAUSE_S, 2 * suspect.pause_s))
        if len(self._suspects) > MAX_SUSPECTS:
            self._suspects.popitem(last=False)

    def is_known(self, device: str) -> bool:
        """Whether this device has made a call hang."""
        return device in self._suspects

    def is_barred(self, device: str, now: float) -> bool:
        """Whether this device's requests are refused unasked."""
        suspect = self._suspects.get(device)
        return suspect is not None and now < suspect.last + suspect.pause_s
