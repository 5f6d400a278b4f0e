# SPDX-License-Identifier: Apache-2.0
"""What a device does with the messages of an update: one transfer at a time, from an offer to a slot that is ready.

    offer  --> allowed, newer, not refused before --> a transfer, in place of an older one
    chunk  --> checked and written, or counted and dropped
    whole  --> the checks of ``store put``, and then the store --> ready, or refused for good, also by killed checks
    timer  --> chunks are asked for, unless the hours are metered and nobody has asked for an install

It has no clock, no thread and no network: its owner calls ``handle`` with each message, ``connected`` on each new
connection, and ``act`` after either and when ``due`` seconds have passed. Nothing that goes wrong here touches what
runs. Offers cost signatures, so one is looked at each ``OFFER_S``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...base.record import record
from ...base.sha256 import sha256
from ...bundle.compatible import OTHER_PROGRAM
from ...errors import BundleError, HardcaseError, SignatureError, StoreError, TrustError, WireError
from ..store.metadata import parse
from ..store.slots import DAMAGED, NAMES, is_known
from ..store.trust import Trust, release_for, trust_from, updated
from .incoming import MOST_TRIES, Refused
from .messages import CHUNK, OFFER, kind_of, pack_fetch, unpack_chunk, unpack_offer
from .transfer import SILENT_S, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..store.folder import Store
    from .incoming import Incoming
    from .messages import Offer
    from .metered import Metered

OFFER_S = 1.0  # at least, between two offers: a check of metadata takes a quarter of that on the slowest device
RETRY_S, MOST_RETRY_S = 60.0, 3_600.0  # after a full disk or a false offer; doubles each time
METERED_S = 60.0  # how often to see whether the metered hours are over


class Updater:
    """One device's updates.

    Parameters
    ----------
    store : Store
    incoming : Incoming
        The store's folder for what is on its way.
    send : publishes a fetch; returns whether it went out
    key : path of the public key that must have signed every bundle, or None
    metered : hours in which nothing is fetched, or None
    wall : seconds since 1970 by the device's clock
    floor : seconds since 1970 that have passed for certain; what expires is compared with the later one of the two
    note : called with each line that a user should read

    Attributes
    ----------
    counters : Counter
        Chunks ``written``, and messages dropped: ``malformed``, ``oversized``, ``wrong``, ``double``, ``other_offer``
        (chunks), ``early``, ``refused`` (offers); ``unwritten`` (the disk), ``damaged`` (whole, with another digest).
    is_ready : bool
        Whether a new bundle waits in the store for its trial.
    """

    def __init__(
        self,
        store: Store,
        incoming: Incoming,
        send: Callable[[bytes], bool],
        *,
        wall: Callable[[], float],
        floor: Callable[[], float] = lambda: 0.0,
        key: str | Path | None = None,
        metered: Metered | None = None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.is_ready = False
        self._store, self._incoming, self._send = store, incoming, send
        self._wall, self._floor = wall, floor
        self._key, self._metered, self._note = key, metered, note
        self._transfer: Transfer | None = None
        self._is_asked = False  # somebody wants the transfer now, whatever the hours
        self._authority = Authority()
        self._offer_at = self._retry_at = float("-inf")  # before which no offer is looked at, and nothing is tried
        self._retry_s = RETRY_S
        self._refused = Refused()

    # ------------------------------------------------------------ events

    def handle(self, now: float, payload: bytes) -> None:
        """One message; ``now`` is seconds of any clock that only rises."""
        try:
            kind = kind_of(payload)
            if kind == CHUNK:
                self._chunk(now, payload)
            elif kind == OFFER:
                self._offer(now, unpack_offer(payload))
            else:
                self.counters["malformed"] += 1
        except WireError as error:
            self.counters[error.reason] += 1

    def connected(self) -> None:
        """A new connection is up."""
        if self._transfer is not None:
            self._transfer.connected()

    def install(self) -> None:
        """Somebody asks for what is on its way: metered hours do not hold it up any more."""
        if self.is_paused and self._transfer is not None:
            self._is_asked = True
            self._note(f"bundle {self._transfer.offer.sha256.hex()[:16]} is fetched in metered hours, as was asked for")

    def act(self, now: float) -> None:
        """Ask for chunks, or finish a bundle that is whole."""
        transfer = self._transfer
        if transfer is None or now < self._retry_at:
            return
        if transfer.is_whole:
            self._finish(now, transfer)
        elif not self.is_paused:
            wanted = transfer.wanted(now)
            if wanted and not self._send(pack_fetch(transfer.name, wanted)):
                transfer.connected()  # they are to be asked for again
                self._retry_at = now + SILENT_S

    def due(self, now: float) -> float | None:
        """Seconds until ``act`` has something to do; None if only a message changes that."""
        if self._transfer is None:
            return None
        if now < self._retry_at:
            return self._retry_at - now
        if self.is_paused:
            return METERED_S
        return self._transfer.due(now)

    @property
    def is_paused(self) -> bool:
        """Whether the hours are metered, and nobody has asked for the transfer all the same."""
        trust = self._authority.trust
        floor = max(self._floor(), trust.floor if trust else 0)
        return self._metered is not None and not self._is_asked and self._metered.is_on(self._wall(), floor)

    def _now(self) -> float:
        return max(self._wall(), self._floor())

    def facts(self) -> dict[str, Any]:
        """What is on its way, for the device's status; nothing if nothing is."""
        if self._transfer is not None:
            offer = self._transfer.offer
            state = "paused" if self.is_paused else "loading"
            digits = {"sha256": offer.sha256.hex(), "have": self._transfer.n_here, "of": offer.n_chunks}
            return {"update": {"state": state, **digits}}
        refused = self._refused
        return {"update": {"state": "refused", "sha256": refused.sha256, "reason": refused.reason}} if refused.sha256 \
            else {}  # fmt: skip

    # ------------------------------------------------------------ an offer

    def _offer(self, now: float, offer: Offer) -> None:
        if now < self._offer_at or self.is_ready:
            self.counters["early"] += 1
            return
        self._offer_at = now + OFFER_S
        transfer = self._transfer
        if transfer is not None and transfer.offer == offer:  # its sender has perhaps forgotten what we asked for
            transfer.connected()
            return
        try:
            authority = self._allowed(offer)
            if authority is not None:
                self._begin(offer, authority)
        except HardcaseError as error:
            self.counters["refused" if isinstance(error, SignatureError) else "unwritten"] += 1
            self._note(f"an offer of bundle {offer.sha256.hex()[:16]} is not taken: {error}")

    def _allowed(self, offer: Offer) -> Authority | None:
        """What allows an offer that is to be taken; None if there is nothing to do."""
        store = self._store
        authority = authorised(offer, store.slots(), store.trust(), has_key=self._key is not None, now=self._now())
        if authority.is_known:  # perhaps it waits in the store for its trial
            self._trust(authority)
            slots = store.slots()
            self.is_ready = bool(slots.ready) and slots[slots.ready].sha256 == offer.sha256.hex()
            return None
        if self._transfer is not None and authority.release < self._authority.release:
            return None
        self._refused = self._incoming.refused()
        refused = self._refused
        is_meant = offer.replaces and refused.reason.startswith(OTHER_PROGRAM)
        if refused.sha256 == offer.sha256.hex() and authority.release <= refused.release and not is_meant:
            return None
        return authority

    def _begin(self, offer: Offer, authority: Authority) -> None:
        self._trust(authority)
        try:
            have = self._incoming.begin(offer)
        finally:
            if self._incoming.offer is None:
                self._transfer = None
        self._transfer, self._authority, self._retry_at = Transfer(offer, have), authority, float("-inf")
        self._is_asked = False
        self._note(f"fetching bundle {offer.sha256.hex()[:16]}, {offer.size} bytes, {len(have)}/{offer.n_chunks} here")

    def _trust(self, authority: Authority) -> None:
        """Write newer metadata now, so that nobody can go back behind them."""
        if authority.trust is not None and (data := authority.trust.to_bytes()) != self._store.trust():
            self._store.write_trust(data)

    # ------------------------------------------------------------ chunks

    def _chunk(self, now: float, payload: bytes) -> None:
        chunk = unpack_chunk(payload)
        transfer = self._transfer
        reason = "other_offer" if transfer is None else transfer.arrived(now, chunk)
        if transfer is None or reason:
            self.counters[reason] += 1
            return
        try:
            self._incoming.write(chunk.index, chunk.data)
        except HardcaseError as error:
            self._try_later(now, str(error))
            return
        transfer.wrote(chunk.index)
        self.counters["written"] += 1

    def _try_later(self, now: float, why: str) -> None:
        self.counters["unwritten"] += 1
        self._note(f"{why}; the update waits {self._retry_s:g} s")
        self._retry_at = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, MOST_RETRY_S)

    # ------------------------------------------------------------ the whole bundle

    def _finish(self, now: float, transfer: Transfer) -> None:
        from ..store.receive import take

        offer, authority = transfer.offer, self._authority
        try:
            data = self._incoming.read()
            if sha256(data) != offer.sha256:
                self._incoming.clear()
                self._give_up(now, "damaged", "its bytes have another digest than the offer said")
                return
            if self._incoming.tries(sha := offer.sha256.hex()) >= MOST_TRIES:
                raise BundleError(f"the process has ended {MOST_TRIES} times while it checked the bundle")
            self._incoming.begin_check(sha, authority.release)
            slot = take(
                self._store, data, offer.signature, key=self._key, trust=authority.trust, now=self._now(),
                replaces=offer.replaces,
            )  # fmt: skip
        except SignatureError as error:  # the offer's fault, or the time's, and perhaps not the bundle's
            self._incoming.end_check()
            self._give_up(now, "refused", str(error))
            return
        except BundleError as error:
            self._refuse(offer, authority, error)
            return
        except HardcaseError as error:
            self._incoming.end_check()
            self._try_later(now, str(error))
            return
        self._incoming.end_check()
        self._incoming.clear()
        self._transfer, self._retry_s = None, RETRY_S
        if slot:
            self.is_ready = True
            self._note(f"bundle {offer.sha256.hex()[:16]} is in slot {slot}, and its trial begins")

    def _refuse(self, offer: Offer, authority: Authority, error: BundleError) -> None:
        """The bundle itself cannot be used here: not to be fetched again."""
        self.counters["refused"] += 1
        self._refused = Refused(offer.sha256.hex(), authority.release, str(error))
        self._incoming.refuse(self._refused)
        self._incoming.end_check()
        self._incoming.clear()
        self._transfer = None
        self._note(f"bundle {offer.sha256.hex()[:16]} is refused: {error}")

    def _give_up(self, now: float, counter: str, why: str) -> None:
        """End a transfer; what is here stays for a better offer, which is looked at after a pause that grows."""
        self.counters[counter] += 1
        self._transfer = None
        self._offer_at = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, MOST_RETRY_S)
        self._note(f"the update is given up: {why}; no offer is looked at for {self._offer_at - now:g} s")


# Whether a device may take an offer: the signed metadata in it say so, before a byte of the bundle comes.
#
# A store with a root believes its metadata alone, whoever has sent them. A store without one has no versions: it takes
# an offer only if the device names a key, whose signature of the bundle is checked when the bundle is whole. A bundle
# that has failed its trial here is not taken again, unless newer targets list it.


if TYPE_CHECKING:
    from ..store.slots import Slots
    from .messages import Offer

Release = tuple[int, int]


@record(frozen=True, slots=True)
class Authority:
    """What allows an offer."""

    release: Release = (0, 0)
    trust: Trust | None = None  # with the metadata of the offer; None: the store has no root
    is_known: bool = False  # the store has the bundle already, and its metadata alone may be news


def authorised(offer: Offer, slots: Slots, trust: bytes | None, *, has_key: bool, now: float) -> Authority:
    """What allows an offer.

    Parameters
    ----------
    trust : what the trust file holds; None if there is none
    has_key : whether the device names a key that must have signed every bundle
    now : seconds since 1970, with which what expires is compared; never before a time that has passed for certain

    Raises
    ------
    SignatureError
        Nobody whom the device trusts allows this bundle; a ``TrustError`` if the metadata do not.
    StoreError
        The bundle is older than the store's, or has failed here.
    """
    if has_key and not offer.signature:
        raise SignatureError("the offer has no signature, and this device takes signed bundles only; offer its .sig")
    if trust is not None:
        authority = _by_metadata(offer, trust_from(trust), now)
    elif slots.newest > (0, 0):
        raise TrustError("the store trusts no root any more; give it one with hardcase-edge store trust")
    elif not has_key:
        raise SignatureError("this device trusts nobody; begin with store trust, or name a key with --trust")
    else:
        authority = Authority()
    sha, release = offer.sha256.hex(), authority.release
    if is_known(slots, sha):
        return Authority(release, authority.trust, is_known=True)
    if release < slots.newest:
        raise StoreError(f"the offer has release {_dotted(release)}, and the store has had {_dotted(slots.newest)}")
    bad = [slots[n] for n in NAMES if slots[n].state == "bad" and slots[n].reason != DAMAGED]
    if any(slot.sha256 == sha and release <= slot.release for slot in bad):
        raise StoreError("the offered bundle has failed here; sign newer targets to have it tried again")
    return authority


def _by_metadata(offer: Offer, trust: Trust, now: float) -> Authority:
    if offer.timestamp:
        roots = [data for data in offer.roots if parse(data, "root").version > trust.root.version]
        trust = updated(trust, roots, offer.timestamp, offer.snapshot, offer.targets, now=now)
    return Authority(release_for(trust, offer.size, offer.sha256.hex(), now=now), trust)


def _dotted(release: Release) -> str:
    return ".".join(map(str, release))
