# SPDX-License-Identifier: Apache-2.0
"""Whether a device may take an offer: the signed metadata in it say so, before a byte of the bundle comes.

A store with a root believes its metadata alone, whoever has sent them. A store without one has no versions: it takes an
offer only if the device names a key, whose signature of the bundle is checked when the bundle is whole. A bundle that
has failed its trial here is not taken again, unless newer targets list it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.record import record
from ...errors import SignatureError, StoreError, TrustError
from ..store.metadata import parse
from ..store.slots import NAMES, is_known
from ..store.trust import Trust, release_for, trust_from, updated

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
    if any(slots[n].state == "bad" and slots[n].sha256 == sha and release <= slots[n].release for n in NAMES):
        raise StoreError("the offered bundle has failed here; sign newer targets to have it tried again")
    return authority


def _by_metadata(offer: Offer, trust: Trust, now: float) -> Authority:
    if offer.timestamp:
        roots = [data for data in offer.roots if parse(data, "root").version > trust.root.version]
        trust = updated(trust, roots, offer.timestamp, offer.snapshot, offer.targets, now=now)
    return Authority(release_for(trust, offer.size, offer.sha256.hex(), now=now), trust)


def _dotted(release: Release) -> str:
    return ".".join(map(str, release))
