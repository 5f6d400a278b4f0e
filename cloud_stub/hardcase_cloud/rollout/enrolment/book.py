# SPDX-License-Identifier: Apache-2.0
"""What an authority has issued and revoked, as a sequence of entries, and the rules by which a request is granted.

No file, no network and no clock: ``journal.py`` keeps the entries, and times are arguments in Unix seconds. A claim's
name begins with ``claim-``, and no device's does, because the sender of a request is known by its name alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hardcase_edge.errors import InputError
from hardcase_edge.fleet.identity.messages import BAD_CLAIM, BAD_NAME, REVOKED, TOO_OFTEN, is_claim
from hardcase_edge.link.wire import check_name

MOST_A_DAY = 4  # certificates that one device gets within a day
DAY_S = 86_400
Kind = Literal["server", "device", "claim", "revoked"]
KINDS = ("server", "device", "claim", "revoked")


@dataclass(frozen=True, slots=True)
class Entry:
    """A certificate that was issued, or the revocation of all certificates that a name had until then."""

    kind: Kind
    name: str
    at: int
    expires: int = 0
    serial: str = ""  # in hex
    key: str = ""  # SHA-256 of the public key's DER, in hex
    certificate: str = ""  # DER in Base64
    claim: str = ""  # of a device: the claim it came with
    uses: int = 0  # of a claim: how many devices it serves
    device: str = ""  # of a claim: the only device that it serves

    def to_json(self) -> dict[str, Any]:
        """What differs from an empty entry."""
        return {key: value for key, value in asdict(self).items() if value not in ("", 0)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Entry:
        """The entry of a line; ValueError or TypeError if it is none."""
        entry = cls(**values)
        numbers = (entry.at, entry.expires, entry.uses)
        texts = (entry.name, entry.serial, entry.key, entry.certificate, entry.claim, entry.device)
        if (
            entry.kind not in KINDS
            or not all(type(n) is int for n in numbers)
            or not all(type(t) is str for t in texts)
        ):
            raise ValueError("not an entry")
        return entry


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request is not granted: a status of the wire, and words."""

    status: int
    why: str


def check_device(name: str) -> str:
    """The name itself, if a device may have it.

    Raises
    ------
    InputError
        It is not a device id, or begins as a claim's.
    """
    if is_claim(check_name(name)):
        raise InputError(f"device id {name!r} begins like the name of a claim; choose another")
    return name


class Book:
    """All entries of an authority, in the order in which they were made."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self._of: dict[str, list[Entry]] = {}  # by name: its certificates since its last revocation
        self._uses: Counter[str] = Counter()  # by claim: the certificates that were exchanged for it
        self._revoked: dict[str, Entry] = {}  # by serial: the revocation
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries.append(entry)
        if entry.kind == "revoked":
            for gone in self._of.pop(entry.name, []):
                self._revoked[gone.serial] = entry
            return
        self._of.setdefault(entry.name, []).append(entry)
        self._uses[entry.claim] += bool(entry.claim)

    def live(self, name: str, now: int) -> list[Entry]:
        """A name's certificates that are neither revoked nor over."""
        return [entry for entry in self._of.get(name, []) if entry.expires > now]

    def revocation(self, entry: Entry) -> Entry | None:
        """The revocation of a certificate."""
        return self._revoked.get(entry.serial)

    def revoked(self, now: int) -> list[tuple[Entry, int]]:
        """Every certificate that is revoked and not over for a day, and when it was revoked."""
        issued = (entry for entry in self.entries if entry.serial in self._revoked)
        return [(e, self._revoked[e.serial].at) for e in issued if e.expires + DAY_S > now]

    def n_uses(self, claim: str) -> int:
        """How many certificates were exchanged for a claim."""
        return self._uses[claim]

    def grant(self, sender: str, name: str, key: str, now: int) -> Entry | Refused | None:
        """What becomes of a request: the certificate that was issued for it, a refusal, or None to issue one.

        Parameters
        ----------
        sender : the claim or the device that sent it, as the broker knows it
        name : the device for which the certificate shall be
        key : digest of the key, as of ``Entry.key``
        """
        try:
            check_device(name)
        except InputError as error:
            return Refused(BAD_NAME, str(error))
        return self._by_claim(sender, name, key, now) if is_claim(sender) else self._renewal(sender, name, key, now)

    def _by_claim(self, sender: str, name: str, key: str, now: int) -> Entry | Refused | None:
        claims = self.live(sender, now)
        if not claims or claims[0].kind != "claim":
            return Refused(BAD_CLAIM, f"{sender} is unknown, over or revoked")
        claim, own = claims[0], self.live(name, now)
        same = [entry for entry in own if entry.key == key and entry.claim == sender]
        if same:
            return same[-1]
        if claim.device not in ("", name):
            return Refused(BAD_NAME, f"{sender} is for {claim.device}, not for {name}")
        if own:
            return Refused(BAD_NAME, f"{name} has a certificate already")
        if self._uses[sender] >= claim.uses:
            return Refused(BAD_CLAIM, f"{sender} is used up")
        return None

    def _renewal(self, sender: str, name: str, key: str, now: int) -> Entry | Refused | None:
        if name != sender:
            return Refused(BAD_NAME, f"{sender} asks for the name {name}")
        own = [entry for entry in self.live(name, now) if entry.kind == "device"]
        if not own:
            return Refused(REVOKED, f"{name} has no certificate that could be renewed")
        same = [entry for entry in own if entry.key == key]
        if same:
            return same[-1]
        if sum(entry.at > now - DAY_S for entry in own) >= MOST_A_DAY:
            return Refused(TOO_OFTEN, f"{name} has got {MOST_A_DAY} certificates within a day")
        return None
