# SPDX-License-Identifier: Apache-2.0
"""Keeps a running device's identity: gets the first one by a claim, renews it in time, and has the link show it.

A thread of its own asks ``exchange.plan`` what to do next. Meanwhile the device decides, alone while it has no
identity.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from ...errors import HardcaseError, InputError
from ...link.certificates import Certificates, Pair
from .enrol import broker_of_claims, enrol, over_link
from .exchange import CLAIM, RENEW, TRY, retry_after
from .folder import Identities, Identity

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...link.link import Link

LOOK_S = 3_600.0  # how often to look whether a renewal is due
POLL_S = 1.0
CLAIM_S = 30.0  # for an exchange with a claim


class Keeper:
    """The keeper of an identity folder.

    Parameters
    ----------
    folder : the identity folder, with an identity or a claim
    broker : URL of the device's broker
    device_id : the device's name; "": that of its certificate
    fallback_id : the name that a device takes which has neither
    ca : authority of the broker's certificate; None: the identity's
    clock : by which certificates expire and are renewed
    note : takes lines for people

    Attributes
    ----------
    device_id : str
    ca : Path
    certificates : Certificates

    Raises
    ------
    InputError
        The folder has neither an identity nor a claim, others can read its keys, or its name is another.
    """

    def __init__(
        self,
        folder: str | Path,
        broker: str,
        *,
        device_id: str = "",
        fallback_id: str,
        ca: str | Path | None = None,
        clock: Clock,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._identities, self._broker, self._ca, self._note = Identities(folder), broker, ca, note
        self._clock = clock
        self._identities.check()
        held = self._identities.held()
        first = held.current or held.pending or held.claim
        if first is None:
            raise InputError(
                f"{self._identities.folder} has no identity; put one there with hardcase ca device or hardcase ca claim"
            )
        own = held.current or held.pending
        if own is not None and device_id not in ("", own.facts.name):
            raise InputError(
                f"--device-id is {device_id}, but the certificate is for {own.facts.name}; name one device"
            )
        self.device_id = own.facts.name if own is not None else device_id or fallback_id
        self.ca = Path(ca) if ca is not None else first.ca
        self.certificates = Certificates(_pair(held.current) if held.current is not None else None, self._accepted)
        if held.pending is not None:
            self.certificates.offer(_pair(held.pending))

    def start(self, link: Link, wait_s: float) -> None:
        """Start to connect as soon as there is an identity, and keep it from then on.

        wait_s : as in ``Link.start``
        """
        has_own = self._identities.current() is not None or self._identities.pending() is not None
        if has_own:
            link.start(wait_s)
        threading.Thread(target=self._run, args=(link, has_own), name="hardcase-identity", daemon=True).start()

    # ------------------------------------------------------------ the thread

    def _run(self, link: Link, is_started: bool) -> None:
        n_failed = 0
        while not link.is_stopped:
            try:
                trouble = self._step(link)
            except HardcaseError as error:
                trouble = str(error)
            if not is_started and self._identities.pending() is not None:
                link.start()
                is_started = True
            n_failed = n_failed + 1 if trouble else 0
            if trouble:
                self._note(f"the device's certificate: {' '.join(trouble.split())[:300]}")
            _sleep(retry_after(n_failed) * SystemRandom().uniform(0.5, 1.0) if trouble else LOOK_S, link)

    def _step(self, link: Link) -> str:
        """Do what is next; returns why it did not succeed, or nothing."""
        held = self._identities.held()
        current, pending, claim, step = held.current, held.pending, held.claim, held.step(self._clock.now())
        if step == TRY and pending is not None:
            self._show(pending, link)
        elif step == CLAIM and claim is not None:
            url = broker_of_claims(self._identities, self._broker)
            identity = enrol(
                self._identities, claim, self.device_id, url, ca=self._ca, wait_s=CLAIM_S, clock=self._clock
            )
            self._show(identity, link)
        elif step == RENEW and current is not None:
            if not link.is_connected:
                return "it has to be renewed, and the broker is away"
            renewed = over_link(self._identities, current, link)
            if isinstance(renewed, str):
                return f"it could not be renewed: {renewed}"
            self._show(renewed, link)
        return ""

    def _show(self, identity: Identity, link: Link) -> None:
        """Have the next connection show a new identity, and make that connection now."""
        if not self.certificates.is_trying:
            self.certificates.offer(_pair(identity))
            link.reconnect()

    def _accepted(self, pair: Pair) -> None:
        """The broker has accepted it; on the connection's thread."""
        try:
            pending = self._identities.pending()
            if pending is not None and pending.cert == pair.cert:
                self._identities.accept(pending)
                self._note(f"the broker has accepted the certificate of {pending.facts.name}")
        except HardcaseError as error:  # the disk: the next start tries it again
            self._note(str(error))


def _pair(identity: Identity) -> Pair:
    return Pair(identity.cert, identity.key)


def _sleep(seconds: float, link: Link) -> None:
    until = time.monotonic() + seconds
    while not link.is_stopped and time.monotonic() < until:
        time.sleep(POLL_S)
