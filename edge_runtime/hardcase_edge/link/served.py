# SPDX-License-Identifier: Apache-2.0
"""Whether any worker serves the f0 of the bundle that runs, as far as requests have heard.

A worker of another f0 says so in a reply (status 3), which ends no request: where both f0 are served, the right reply
comes, too. Only a request that ends without one says that nobody serves its f0.
"""

from __future__ import annotations

from typing import Any

MOST_OPEN = 4  # requests that are remembered: one that is live and one aside, and those just before
DIGITS = 12  # of a digest in a line


class Served:
    """What is known of one f0; its owner holds a lock around each call.

    Parameters
    ----------
    hpc : SHA-256 of the f0

    Attributes
    ----------
    n_unserved : int
        Requests that ended without a reply although a worker of another f0 spoke; 0 once a worker of this one has.

    >>> served = Served(bytes(32))
    >>> served.heard(b"one", bytes([255] * 32))
    >>> served.ended(b"one", is_answered=False)
    'no worker serves f0 000000000000 of this bundle, but one serves ffffffffffff: start a worker of the first'
    >>> served.ended(b"two", is_answered=False), served.n_unserved
    ('', 1)
    >>> served.ended(b"three", is_answered=True), served.n_unserved, served.facts()
    ('', 0, {})
    """

    __slots__ = ("_has_answered", "_has_told", "_heard", "_hpc", "_other", "n_unserved")

    def __init__(self, hpc: bytes) -> None:
        self._hpc = hpc
        self._heard: tuple[tuple[bytes, bytes], ...] = ()  # ids of requests, and the f0 that replied
        self._other = b""
        self._has_answered = self._has_told = False
        self.n_unserved = 0

    def heard(self, id_: bytes, other: bytes) -> None:
        """A worker of another f0 has replied to this request."""
        self._heard = (*self._heard, (id_, other))[-MOST_OPEN:]

    def ended(self, id_: bytes, *, is_answered: bool) -> str:
        """This request is over; returns the line to log, or ""."""
        if is_answered:
            self._has_answered, self._has_told, self.n_unserved = True, False, 0
            return ""
        other = next((hpc for heard, hpc in self._heard if heard == id_), b"")
        if not other:
            return ""
        self._other = other
        self.n_unserved += not self._has_answered
        line, self._has_told = "" if self._has_told else self.why, True
        return line

    @property
    def why(self) -> str:
        """What is wrong, in words."""
        ours, other = self._hpc.hex()[:DIGITS], self._other.hex()[:DIGITS]
        return f"no worker serves f0 {ours} of this bundle, but one serves {other}: start a worker of the first"

    def unserved(self) -> tuple[int, str]:
        """``n_unserved``, and what is wrong, in words."""
        return self.n_unserved, self.why

    def facts(self) -> dict[str, Any]:
        """For the facts: what is asked, and what is served in its place; nothing while that is not so."""
        if not self._has_told:
            return {}
        return {"f0": {"asked": self._hpc.hex(), "served": self._other.hex(), "unserved": self.n_unserved}}
