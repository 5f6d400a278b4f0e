# SPDX-License-Identifier: Apache-2.0
"""How many messages a second each device may send: a token bucket for each, and nothing for those that keep within it.

A flood must be told from work before it costs any: what is beyond the limit is dropped unread and unanswered, because
to answer a flood would delay all others.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_DEVICES = 65_536  # buckets; the one that was used longest ago is forgotten first, that is full again


class Rates:
    """Token buckets; times are seconds on the caller's clock.

    Parameters
    ----------
    per_s : messages that a device may send in a second
    burst : messages that it may send at once

    >>> rates = Rates(per_s=10, burst=3)
    >>> [rates.allows("loud", 0.0) for _ in range(5)]
    [True, True, True, False, False]
    >>> rates.allows("quiet", 0.0), rates.allows("loud", 0.05), rates.allows("loud", 0.1)
    (True, False, True)
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when a device's bucket will be full again

    def allows(self, device: str, now: float) -> bool:
        """Whether a message of this device may pass now; if so, it is counted."""
        full_at = self._full_at.get(device, now)
        full_at = (full_at if full_at > now else now) + 1 / self._per_s
        if full_at - now > self._burst / self._per_s + 1e-9:
            return False
        self._full_at[device] = full_at
        self._full_at.move_to_end(device)
        if len(self._full_at) > MAX_DEVICES:
            self._full_at.popitem(last=False)
        return True
