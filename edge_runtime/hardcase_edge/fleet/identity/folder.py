# SPDX-License-Identifier: Apache-2.0
"""A device's identity on the disk: every file is written once, and a pointer says which certificate the broker knows.

    FOLDER/0001/key.pem        the private key, readable by its owner only
    FOLDER/0001/ca.pem         the authority that signs the broker's certificate
    FOLDER/0001/request.der    the request for a certificate; an image-time identity has none
    FOLDER/0001/cert.pem       the certificate; while it is missing, the request is open
    FOLDER/current             the number of the identity that a broker has accepted last
    FOLDER/claim/              key.pem, cert.pem and ca.pem of a claim, and broker, the URL of its listener

A renewal is a new number. It becomes the current one when the broker has accepted it; until then the old one serves.
Wherever the power is cut, the current identity is what it was, and an open request goes out again with the same key.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...base.files import check_private, read_bounded, remove_leftovers, sync_folder, write_whole
from ...base.record import record
from ...errors import HardcaseError, InputError
from .der import Facts, from_pem, read_certificate, read_request, to_pem
from .exchange import plan
from .keys import check_issued, make_key, make_request

MAX_FILE_BYTES = 16_384
MAX_NUMBERS = 9_999
FILES = ("cert.pem", "key.pem", "request.der", "ca.pem", "broker")  # in the order in which they are removed
_FILE = re.compile(r"current|(?:\d{4}|claim)/(?:cert\.pem|key\.pem|request\.der|ca\.pem|broker)", re.ASCII)
_REMEDY = "put a new identity or claim there: hardcase ca device, or hardcase ca claim"


@record(frozen=True, slots=True)
class Identity:
    """A certificate, whose facts have been read, and where its files are."""

    folder: Path
    facts: Facts

    @property
    def number(self) -> int:
        """Its number; 0 for a claim."""
        return int(self.folder.name) if self.folder.name.isdecimal() else 0

    @property
    def cert(self) -> Path:
        """The certificate's file."""
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        """The key's file."""
        return self.folder / "key.pem"

    @property
    def ca(self) -> Path:
        """The file of the authority that signs the broker's certificate."""
        return self.folder / "ca.pem"


@record(frozen=True, slots=True)
class Held:
    """What there is in a folder."""

    current: Identity | None
    pending: Identity | None
    claim: Identity | None

    @property
    def has_any(self) -> bool:
        """Whether a device can come to a broker with it."""
        return (self.current or self.pending or self.claim) is not None

    def step(self, now: float) -> str:
        """What to do next, as of ``exchange.plan``."""
        current, pending, claim = [
            None if one is None else one.facts for one in (self.current, self.pending, self.claim)
        ]
        return plan(current, pending, claim, now)


@record(frozen=True, slots=True)
class Open:
    """A request that waits for its certificate."""

    number: int
    request: bytes


class Identities:
    """What an identity folder holds. The folder may be missing; only ``begin`` makes it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def held(self) -> Held:
        """All of it."""
        return Held(self.current(), self.pending(), self.claim())

    def current(self) -> Identity | None:
        """The identity that a broker has accepted last; None if there is none that can be read."""
        try:
            number = int(read_bounded(self.folder / "current", 16, "pointer", remedy=_REMEDY).strip() or b"0")
            return self._read(self._numbered(number)) if number > 0 else None
        except (HardcaseError, ValueError):
            return None

    def pending(self) -> Identity | None:
        """The newest identity that no broker has accepted yet, newer than the current one."""
        current = self.current()
        for number in reversed(self._numbers()):
            if current is not None and number <= current.number:
                return None
            try:
                return self._read(self._numbered(number))
            except InputError:  # an open request, or a damaged file
                continue
        return None

    def claim(self) -> Identity | None:
        """The claim, if there is one that can be read."""
        try:
            return self._read(self.folder / "claim")
        except InputError:
            return None

    def claim_broker(self) -> str:
        """The URL of the listener for claims; "" if the claim does not name one."""
        path = self.folder / "claim" / "broker"
        if not path.exists():
            return ""
        text = read_bounded(path, MAX_FILE_BYTES, "claim's broker", remedy=_REMEDY)
        return text.decode("utf-8", errors="replace").strip()

    def check(self) -> None:
        """Refuse private keys that others can read.

        Raises
        ------
        InputError
            There is such a key.
        """
        for key in self.folder.glob("*/key.pem"):
            check_private(key, "device's key")

    def begin(self, device: str, ca: Path) -> Open:
        """The open request for this device's certificate; a new key and request where there is none.

        Parameters
        ----------
        device : the name for which the certificate shall be
        ca : file of the authority that signs the broker's certificate, which is copied

        Raises
        ------
        InputError
            openssl is missing or fails, or the folder cannot be written.
        """
        numbers, current = self._numbers(), self.current()
        newest = numbers[-1] if numbers else 0
        if newest > (current.number if current else 0):
            path = self._numbered(newest) / "request.der"
            if path.exists() and not (self._numbered(newest) / "cert.pem").exists():
                request = read_bounded(path, MAX_FILE_BYTES, "certificate request", remedy=_REMEDY)
                if read_request(request)[0] == device:
                    return Open(newest, request)
        authority = read_bounded(ca, MAX_FILE_BYTES, "certificate authority", remedy=_REMEDY)
        folder = self._numbered(newest + 1)
        if newest >= MAX_NUMBERS:
            raise InputError(f"{self.folder} has had {MAX_NUMBERS} identities; {_REMEDY}")
        make_folders(self.folder, folder)
        _put(folder / "key.pem", make_key())
        _put(folder / "ca.pem", authority)
        request = make_request(folder / "key.pem", device)
        _put(folder / "request.der", request)
        return Open(newest + 1, request)

    def finish(self, number: int, certificate: bytes) -> Identity:
        """Write the certificate (DER) that belongs to a request, once.

        Raises
        ------
        InputError
            The authority has not signed it, or the folder cannot be written: the request stays open.
        """
        path = self._numbered(number) / "cert.pem"
        if not path.exists():
            pem = to_pem(certificate)
            check_issued(pem, path.with_name("ca.pem"))
            _put(path, pem)
        return self._read(path.parent)

    def accept(self, identity: Identity) -> None:
        """Point to an identity that a broker has accepted; remove those before the one that it replaces, and the claim.

        Raises
        ------
        InputError
            The folder cannot be written: the pointer is what it was.
        """
        old = self.current()
        if old is not None and old.number == identity.number:
            return
        remove_leftovers(self.folder / "current")
        write_whole(self.folder / "current", b"%d\n" % identity.number)
        keep = {identity.number, old.number if old else identity.number}
        for number in self._numbers():
            if number < identity.number and number not in keep:
                _remove(self._numbered(number))
        if (self.folder / "claim").is_dir():
            _remove(self.folder / "claim")

    # ------------------------------------------------------------ parts

    def _numbered(self, number: int) -> Path:
        return self.folder / f"{number:04d}"

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return sorted(int(name) for name in names if len(name) == 4 and name.isascii() and name.isdecimal())

    def _read(self, folder: Path) -> Identity:
        identity = _read_certificate(folder)
        _check_pair(identity)  # with a damaged key it would be tried for ever, and no other asked for
        return identity


def _read_certificate(folder: Path) -> Identity:
    pem = read_bounded(folder / "cert.pem", MAX_FILE_BYTES, "certificate", remedy=_REMEDY)
    return Identity(folder, read_certificate(from_pem(pem)))


def is_file_of_identity(name: str) -> bool:
    """Whether a relative path is that of a file in an identity folder.

    >>> [is_file_of_identity(name) for name in ("current", "0001/key.pem", "claim/broker", "key.pem", "0001/x")]
    [True, True, True, False, False]
    """
    return _FILE.fullmatch(name) is not None


def read_files(folder: str | Path, now: float) -> dict[str, bytes]:
    """The files of an identity folder, by their relative paths, for another machine.

    Parameters
    ----------
    now : seconds since 1970, by which certificates have ended

    Raises
    ------
    InputError
        The folder holds something else, or nothing by which a device could come to a broker.
    """
    root, files = Path(folder), dict[str, bytes]()
    try:
        paths = [path for entry in sorted(root.iterdir()) for path in (entry, *sorted(entry.glob("*")))]
    except OSError as error:
        raise InputError(f"the identity {folder} cannot be read: {error.strerror}; {_REMEDY}") from error
    for path in paths:
        name = path.relative_to(root).as_posix()
        if path.is_dir() and (name == "claim" or is_file_of_identity(f"{name}/key.pem")):
            continue
        if not is_file_of_identity(name) or not path.is_file():
            raise InputError(f"{path} is not of an identity; name a folder as hardcase ca device or ca claim makes it")
        if path.name == "key.pem":
            check_private(path, "device's key")
        files[name] = read_bounded(path, MAX_FILE_BYTES, "file of the identity", remedy=_REMEDY)
    held = Identities(root).held()
    if not held.has_any:
        for path in sorted(root.glob("*/cert.pem")):
            try:
                one = _read_certificate(path.parent)
            except InputError:
                continue
            _check_pair(one)  # says what is wrong
        raise InputError(f"the identity {folder} has no certificate that can be read; {_REMEDY}")
    there = [one for one in (held.current, held.pending, held.claim) if one is not None]
    if all(one.facts.ends <= now for one in there):
        raise InputError(f"the identity {folder} has ended: no broker accepts its certificate; {_REMEDY}")
    return files


def _check_pair(identity: Identity) -> None:
    """Refuse a certificate whose key or authority cannot be used, as TLS does when a device connects."""
    from ...link.address import Address, tls_context

    ca, cert, key = identity.ca, identity.cert, identity.key
    if missing := [path for path in (ca, key) if not path.is_file()]:
        raise InputError(f"{missing[0]} is missing; {_REMEDY}")
    tls_context(Address(host="broker", port=1, is_tls=True, ca=ca, cert=cert, key=key))


def put_identity(folder: str | Path, key: bytes, cert: bytes, ca: bytes) -> None:
    """Write an image-time identity, all PEM, into a folder that is new.

    Raises
    ------
    InputError
        The folder cannot be written.
    """
    identities = Identities(folder)
    place = identities.folder / "0001"
    make_folders(identities.folder, place)
    for name, data in (("key.pem", key), ("ca.pem", ca), ("cert.pem", cert)):
        _put(place / name, data)
    write_whole(identities.folder / "current", b"1\n")


def put_claim(folder: str | Path, key: bytes, cert: bytes, ca: bytes, broker: str = "") -> None:
    """Write a claim, all PEM, and the URL of its listener, into a folder that is new.

    Raises
    ------
    InputError
        The folder cannot be written.
    """
    root = Path(folder).absolute()
    place = root / "claim"
    make_folders(root, place)
    for name, data in (("key.pem", key), ("ca.pem", ca), ("cert.pem", cert)):
        _put(place / name, data)
    if broker:
        _put(place / "broker", f"{broker}\n".encode())


def make_folders(root: Path, *below: Path) -> None:
    """Make the folders that are missing, and have their names on the disk, for their owner only.

    Raises
    ------
    InputError
        One cannot be made.
    """
    try:
        for folder in (*reversed(root.parents), root, *below):
            if not folder.exists():
                folder.mkdir(mode=0o700 if folder.is_relative_to(root) else 0o777)
                sync_folder(folder.parent)
    except OSError as error:
        raise InputError(f"{root} cannot be written: {error.strerror}; name another folder") from error


def _put(path: Path, data: bytes) -> None:
    """Write a file that is not there, readable by its owner only."""
    if path.exists():
        raise InputError(f"{path} exists, and an identity is never overwritten; {_REMEDY}")
    write_whole(path, data, mode=0o600)


def _remove(folder: Path) -> None:
    """Remove an identity or a claim, its certificate first, so that what a power cut leaves is none."""
    try:
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        for left in folder.glob(".*"):  # temporary files of ``write_whole``
            left.unlink()
        folder.rmdir()
    except OSError as error:
        raise InputError(f"{folder} cannot be removed: {error.strerror}; remove it by hand") from error
