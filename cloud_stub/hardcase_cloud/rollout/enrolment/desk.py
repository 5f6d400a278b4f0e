# SPDX-License-Identifier: Apache-2.0
"""The desk: turns messages with certificate requests into replies, without network or clock.

It looks at lengths first, then checks that a request is signed by its own key, then asks the authority, which has its
answer on the disk before the desk returns it. Messages that break a rule are counted and dropped.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from hardcase_edge.errors import WireError
from hardcase_edge.fleet.identity.messages import ISSUED, Enrolled, pack_enrolled, sender_of_topic, unpack_enrol

from .book import Refused
from .certificates import read_request
from .folder import DEVICE_DAYS, AuthorityFolder


class Desk:
    """Answers for one authority.

    Parameters
    ----------
    authority : AuthorityFolder
    days : for which a device's certificate holds

    Attributes
    ----------
    counters : Counter
        ``issued`` (repeated requests included), ``refused``, and the messages dropped: ``malformed``, ``oversized``.
    last : str
        What became of the last message, in words.
    """

    def __init__(self, authority: AuthorityFolder, days: float = DEVICE_DAYS) -> None:
        self._authority, self._days = authority, days
        self.counters: Counter[str] = Counter()
        self.last = ""

    def receive(self, topic: str, payload: bytes, now: int) -> tuple[str, bytes] | None:
        """The sender to answer, and the reply's bytes; None if the message was dropped.

        Parameters
        ----------
        topic : on which the message came, which the broker vouches for
        now : Unix seconds

        Raises
        ------
        InputError
            The journal cannot be read or written: nothing was issued.
        """
        try:
            sender, request = sender_of_topic(topic), unpack_enrol(payload)
            certificate_request = read_request(request)
        except WireError as error:
            self.counters[error.reason] += 1
            self.last = str(error)
            return None
        answer = self._authority.exchange(
            sender, certificate_request.name, certificate_request.key, now=now, days=self._days
        )
        digest = hashlib.sha256(request).digest()
        if isinstance(answer, Refused):
            self.counters["refused"] += 1
            self.last = answer.why
            return sender, pack_enrolled(Enrolled(answer.status, digest))
        self.counters["issued"] += 1
        self.last = f"a certificate for {certificate_request.name}, asked for by {sender}"
        return sender, pack_enrolled(Enrolled(ISSUED, digest, answer))
