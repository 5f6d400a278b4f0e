# SPDX-License-Identifier: Apache-2.0
"""The exchange of a request for a certificate, and when the next one is due: machines without I/O and without a clock.

    an exchange    sends its request every ``RESEND_S`` seconds, under one digest, until a reply ends it
    a plan         what a device does next: come with its claim, renew its certificate, or wait

Times are Unix seconds in a plan, and any seconds that only rise in an exchange.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...base.sha256 import sha256
from ...errors import InputError, WireError
from .der import read_certificate, read_request
from .messages import ISSUED, REFUSALS, pack_enrol, unpack_enrolled

if TYPE_CHECKING:
    from .der import Facts

RESEND_S = 3.0
RETRY_FIRST_S, RETRY_MOST_S = 5.0, 3_600.0  # pauses after exchanges that failed; a link shortens them at random
MOST_DOUBLINGS = 10  # by then the pause is its longest
CLAIM, RENEW, TRY, WAIT = "claim", "renew", "try", "wait"


class Exchange:
    """One request and the reply that ends it.

    Parameters
    ----------
    request : the certificate request, DER

    Attributes
    ----------
    certificate : bytes
        What came, DER, once it has: for the name and the key of the request. Empty before.
    digest : bytes
        SHA-256 of the request, by which its reply is known.
    refusal : str
        Why the authority refuses, in words; empty if it does not.
    counters : Counter
        Replies that were dropped: ``malformed``, ``oversized``, ``unknown`` (to another request), ``other`` (for
        another name or key), ``late`` (after the end).

    Raises
    ------
    InputError
        The request cannot be read.
    """

    def __init__(self, request: bytes) -> None:
        self._name, self._key = read_request(request)
        self._payload = pack_enrol(request)
        self.digest = sha256(request)
        self._next_at: float | None = None
        self.certificate = b""
        self.refusal = ""
        self.counters: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether a reply has ended it."""
        return bool(self.certificate or self.refusal)

    def due(self, now: float) -> bytes | None:
        """The message to send now; None if it is too early or over."""
        if self.is_over or (self._next_at is not None and now < self._next_at):
            return None
        self._next_at = now + RESEND_S
        return self._payload

    def unsent(self) -> None:
        """Note that the message could not be sent: it is due again at once."""
        self._next_at = None

    def receive(self, payload: bytes) -> None:
        """Take a reply: it ends the exchange, or it is counted and dropped."""
        try:
            reply = unpack_enrolled(payload)
        except WireError as error:
            self.counters[error.reason] += 1
            return
        if reply.digest != self.digest:
            self.counters["unknown"] += 1
        elif self.is_over:
            self.counters["late"] += 1
        elif reply.status != ISSUED:
            self.refusal = REFUSALS[reply.status]
        else:
            self._take(reply.certificate)

    def _take(self, der: bytes) -> None:
        try:
            facts = read_certificate(der)
        except InputError:
            self.counters["malformed"] += 1
            return
        if facts.name == self._name and facts.key == self._key and facts.begins < facts.ends:
            self.certificate = der
        else:
            self.counters["other"] += 1


def plan(current: Facts | None, pending: Facts | None, claim: Facts | None, now: float) -> str:
    """What to do next.

    Parameters
    ----------
    current, pending, claim : the certificate in use, one that no broker has accepted yet, and the claim's
    now : by the device's clock, which may be wrong: then a renewal comes too early, or the broker refuses too late

    Returns
    -------
    str
        ``TRY`` the pending one; come with the ``CLAIM``; ``RENEW``, from two thirds of a certificate's life on; or
        ``WAIT``.

    Examples
    --------
    >>> from .der import Facts
    >>> own = Facts("pi-1", 0, 300, b"")
    >>> [plan(own, None, None, now) for now in (0, 199, 200, 1_000)]
    ['wait', 'wait', 'renew', 'renew']
    >>> plan(None, None, Facts("claim-1", 0, 9, b""), 0), plan(None, own, None, 0), plan(None, None, None, 0)
    ('claim', 'try', 'wait')
    >>> [plan(own, None, Facts("claim-1", begins, 9, b""), 0) for begins in (0, 1)]  # a newer claim is somebody's wish
    ['wait', 'claim']
    """
    if pending is not None:
        return TRY
    if claim is not None and (current is None or claim.begins > current.begins):
        return CLAIM
    if current is None:
        return WAIT
    return RENEW if 3 * (now - current.begins) >= 2 * (current.ends - current.begins) else WAIT


def retry_after(n_failed: int) -> float:
    """Seconds until the next exchange after so many in a row that failed.

    >>> [retry_after(n) for n in (1, 2, 3, 20, 2_000)]  # 2,000: offline for two months
    [5.0, 10.0, 20.0, 3600.0, 3600.0]
    """
    return min(RETRY_MOST_S, RETRY_FIRST_S * 2.0 ** min(n_failed - 1, MOST_DOUBLINGS))
