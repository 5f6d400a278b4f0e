# SPDX-License-Identifier: Apache-2.0
"""What a device believes about bundles: a chain of TUF roots, and the newest timestamp, snapshot and targets below it.

No I/O and no clock are here. ``Trust`` is what the trust file holds; ``updated`` gives its successor or raises an
error, and then nothing has changed. Versions never go down, and neither does the newest signed time, with which and
with the caller's clock everything that expires is compared: a device without a clock is right about all that its own
metadata prove. New keys for the timestamp alone lower that time again: the end that a root puts to a key counts more
than a time which that key has signed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...base.record import record
from ...base.sha256 import sha256
from ...errors import TrustError
from .metadata import Metadata, check_signatures, parse, seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MAX_ROOTS = 64  # in one update; a device that missed more yearly rotations takes them in two

Release = tuple[int, int]  # versions of root and targets, compared in this order


@record(frozen=True, slots=True)
class Trust:
    """The trusted metadata. ``floor`` is the newest signed time, in seconds since 1970; 0 if nobody signed one."""

    root: Metadata
    timestamp: Metadata | None = None
    snapshot: Metadata | None = None
    targets: Metadata | None = None
    floor: int = 0

    def to_bytes(self) -> bytes:
        """What the trust file holds."""
        files = {m.role: m.data.decode() for m in (self.root, self.timestamp, self.snapshot, self.targets) if m}
        return json.dumps({"floor": self.floor, **files}, sort_keys=True).encode()


def first_trust(root: bytes) -> Trust:
    """The trust that begins with a root, which whoever prepares a device vouches for.

    Raises
    ------
    TrustError
        The file is not a root that enough of its own keys have signed.
    """
    metadata = parse(root, "root")
    check_signatures(metadata, metadata.signed)
    return Trust(metadata)


def trust_from(data: bytes) -> Trust:
    """The trust in a trust file; every signature is checked again, and no expiry.

    Raises
    ------
    TrustError
        The file does not hold what ``Trust.to_bytes`` wrote.
    """
    try:
        entries = json.loads(data)
        files = {role: entries[role].encode() for role in entries if role != "floor"}
        floor, trust = int(entries["floor"]), first_trust(files.pop("root"))
        below = {role: parse(data, role) for role, data in files.items()}
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise TrustError("the store's trust file is not readable; write it again with store trust") from error
    for metadata in below.values():
        check_signatures(metadata, trust.root.signed)
    return Trust(trust.root, below.get("timestamp"), below.get("snapshot"), below.get("targets"), floor)


def updated(
    trust: Trust, roots: Sequence[bytes], timestamp: bytes, snapshot: bytes, targets: bytes, *, now: float
) -> Trust:
    """The trust after an update, which is taken whole or not at all.

    Parameters
    ----------
    roots : the roots that follow the trusted one, in the order of their versions; may be empty
    timestamp, snapshot, targets : the files
    now : seconds since 1970 by the device's clock, however wrong

    Raises
    ------
    TrustError
        A file is not what it should be, has too few signatures, has expired, or is older than a trusted one.
    """
    if len(roots) > MAX_ROOTS:
        raise TrustError(f"the update has {len(roots)} roots, more than {MAX_ROOTS}; take it in two parts")
    for data in roots:
        trust = _rotated(trust, parse(data, "root"))
    _check_time(trust.root, max(now, trust.floor))
    new_timestamp = _newer_timestamp(trust, parse(timestamp, "timestamp"))
    floor = max(trust.floor, seconds_of(new_timestamp.signed.get("issued", "1970-01-01T00:00:00Z")))
    new_snapshot = _named_by(new_timestamp, snapshot, trust.root)
    _check_entries(trust.snapshot, new_snapshot)
    new_targets = _named_by(new_snapshot, targets, trust.root)
    for metadata in (trust.root, new_timestamp, new_snapshot, new_targets):
        _check_time(metadata, max(now, floor))
    return Trust(trust.root, new_timestamp, new_snapshot, new_targets, floor)


def release_of(trust: Trust, bundle: bytes, *, now: float) -> Release:
    """The versions of root and targets that allow this bundle.

    Raises
    ------
    TrustError
        No trusted targets list these bytes, or what lists them has expired.
    """
    return release_for(trust, len(bundle), sha256(bundle).hex(), now=now)


def release_for(trust: Trust, size: int, digest: str, *, now: float) -> Release:
    """As ``release_of``, for a bundle of which only its bytes' number and their SHA-256 in hex are known yet.

    Raises
    ------
    TrustError
        No trusted targets list such a bundle, or what lists them has expired.
    """
    if trust.timestamp is None or trust.snapshot is None or trust.targets is None:
        raise TrustError("the store has a root and no targets yet; name the folder of the metadata with --metadata")
    for metadata in (trust.root, trust.timestamp, trust.snapshot, trust.targets):
        _check_time(metadata, max(now, trust.floor))
    for target in trust.targets.signed["targets"].values():
        if (target["length"], target["hashes"]["sha256"]) == (size, digest):
            return trust.root.version, trust.targets.version
    raise TrustError(
        f"targets {trust.targets.version} do not list the bundle {digest[:16]}; sign targets that list it, or put "
        "the one that they list"
    )


def _rotated(trust: Trust, root: Metadata) -> Trust:
    """The trust with the next root. What the new keys have not signed is forgotten, so that new keys end an attack.

    With a timestamp goes the newest signed time, which a thief of its key may have put beyond every expiry.
    """
    if root.version != trust.root.version + 1:
        raise TrustError(f"root {root.version} does not follow root {trust.root.version}; give every root in between")
    check_signatures(root, trust.root.signed)
    check_signatures(root, root.signed)

    def kept(metadata: Metadata | None) -> Metadata | None:
        if metadata is not None:
            try:
                check_signatures(metadata, root.signed)
            except TrustError:
                return None
        return metadata

    timestamp = kept(trust.timestamp)
    floor = trust.floor if timestamp is not None or trust.timestamp is None else 0
    return Trust(root, timestamp, kept(trust.snapshot), kept(trust.targets), floor)


def _newer_timestamp(trust: Trust, timestamp: Metadata) -> Metadata:
    """The timestamp, or the trusted one if both have the same version."""
    check_signatures(timestamp, trust.root.signed)
    if trust.timestamp is None:
        return timestamp
    _check_version("timestamp", timestamp.version, trust.timestamp.version)
    old, new = (m.signed["meta"]["snapshot.json"]["version"] for m in (trust.timestamp, timestamp))
    _check_version("snapshot", new, old)
    return trust.timestamp if timestamp.version == trust.timestamp.version else timestamp


_NEXT = {"timestamp": "snapshot", "snapshot": "targets"}


def _named_by(above: Metadata, data: bytes, root: Metadata) -> Metadata:
    """The file below this one, as this one describes it."""
    role = _NEXT[above.role]
    entry = above.signed["meta"][f"{role}.json"]
    has_length = entry.get("length", len(data)) == len(data)
    if not has_length or ("hashes" in entry and entry["hashes"]["sha256"] != sha256(data).hex()):
        raise TrustError(f"the {role} metadata are not those that the {above.role} names; copy them again")
    metadata = parse(data, role)
    check_signatures(metadata, root.signed)
    if metadata.version != entry["version"]:
        raise TrustError(f"the {above.role} names {role} {entry['version']}, not {metadata.version}; copy them again")
    return metadata


def _check_entries(old: Metadata | None, new: Metadata) -> None:
    """No file of the old snapshot is missing or older in the new one."""
    entries: Mapping[str, Any] = new.signed["meta"]
    for name, entry in old.signed["meta"].items() if old else ():
        if name not in entries:
            raise TrustError(f"snapshot {new.version} no longer names {name[:40]!r}; sign one that does")
        _check_version(name[:40], entries[name]["version"], entry["version"])


def _check_version(what: str, new: int, old: int) -> None:
    if new < old:
        raise TrustError(f"{what} {new} is older than {old}, which is trusted already; copy the newest metadata")


def _check_time(metadata: Metadata, now: float) -> None:
    """Expired from the second that it names on."""
    if metadata.expires <= now:
        raise TrustError(
            f"{metadata.role} {metadata.version} expired at {metadata.signed['expires']}; sign newer metadata, or set "
            "the device's clock if it is ahead"
        )
