# SPDX-License-Identifier: Apache-2.0
"""The folder of an authority: its keys, what it has issued, and the files that a broker reads.

    DIR/private/devices.key, claims.key    the keys that sign, readable by their owner only
    DIR/issued.jsonl                       every certificate and revocation (``journal.py``)
    DIR/public/devices.pem, claims.pem     certificates of the two authorities, for devices and for claims
    DIR/public/crl.pem                     revoked certificates of both, for the broker's ``crlfile``
    DIR/server/cert.pem, key.pem           the broker's certificate and its key

There are two authorities, so that a claim opens the listener for claims and no other.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from hardcase_edge.base.files import check_private, read_bounded, remove_leftovers, sync_folder, write_new, write_whole
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.fleet.identity.folder import make_folders, put_claim, put_identity
from hardcase_edge.fleet.identity.messages import CLAIM

from .book import Book, Entry, Refused, check_device
from .certificates import (
    SKEW_S,
    Authority,
    issue,
    key_digest,
    key_pem,
    make_authority,
    make_crl,
    make_key,
    read_authority,
)
from .journal import Journal

AUTHORITY_DAYS, SERVER_DAYS, DEVICE_DAYS, CLAIM_DAYS = 7_300, 825, 365, 7.0
MAX_FILE_BYTES = 16_384
MAX_CRL_BYTES = 256 * 1024 * 1024
ROLES = ("devices", "claims")
_REMEDY = "name an authority of hardcase ca init"


class AuthorityFolder:
    """An authority that exists; ``now`` in its methods is Unix seconds.

    Raises
    ------
    InputError
        The folder is not an authority's, or others can read its keys.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._signers = {role: self._authority(role) for role in ROLES}
        self._journal = Journal(self.folder / "issued.jsonl")

    @classmethod
    def init(cls, folder: str | Path, name: str, now: int) -> AuthorityFolder:
        """Make an authority, whole or not at all, where nothing is.

        Raises
        ------
        InputError
            Something is there, the folder cannot be written, or the name is not one.
        """
        target = Path(folder).absolute()
        signers = {role: make_authority(f"{name} {role}", now=now, days=AUTHORITY_DAYS) for role in ROLES}
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{target} exists, and an authority is never overwritten; name another folder")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
            try:
                _fill(temporary, signers, now)
                temporary.chmod(0o755)
                os.replace(temporary, target)
                sync_folder(target.parent)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror}; name another folder") from error
        return cls(target)

    @property
    def certificate(self) -> bytes:
        """The certificate by which devices know the broker, and the broker devices, in PEM."""
        return self._signers["devices"].pem

    def read(self) -> Book:
        """All entries."""
        with self._journal.locked() as book:
            return book

    def server(self, hosts: Sequence[str], *, now: int, days: float = SERVER_DAYS) -> Path:
        """A certificate for a broker with these names and addresses; returns the folder of its files.

        The key stays if there is one, so that no moment has a certificate and a key that do not belong together.

        Raises
        ------
        InputError
            A host is not one, or the folder cannot be written.
        """
        folder = self.folder / "server"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror}; change its permissions") from error
        path = folder / "key.pem"
        if not path.exists():
            write_new(path, key_pem(make_key()), mode=0o600)
        _check_server_key(path)
        key = _public_half(path)
        by = self._signers["devices"]
        certificate = issue(by, key, hosts[0][:64], purpose="server", now=now, days=days, hosts=hosts)
        with self._journal.locked():
            self._append("server", hosts[0][:64], certificate, now)
        write_whole(folder / "cert.pem", certificate.public_bytes(Encoding.PEM))
        return folder

    def device(self, name: str, out: str | Path, *, now: int, days: float = DEVICE_DAYS) -> x509.Certificate:
        """An identity for a device's card: a key and its certificate, in a folder of the device's layout.

        Raises
        ------
        InputError
            The name is not a device's, it has a certificate, or the folder has something or cannot be written.
        """
        check_device(name)
        _check_empty(out)
        key = make_key()
        with self._journal.locked() as book:
            if live := book.live(name, now):
                raise InputError(
                    f"{name} has a {live[-1].kind}'s certificate until {_day(live[-1].expires)}; "
                    f"revoke it first: hardcase ca revoke {self.folder} {name}"
                )
            make_folders(Path(out).absolute())  # what cannot be put down is not issued
            certificate = self._issue_device(key.public_key(), name, now, days)
        put_identity(out, key_pem(key), certificate.public_bytes(Encoding.PEM), self.certificate)
        return certificate

    def claim(
        self, out: str | Path, *, now: int, days: float = CLAIM_DAYS, uses: int = 1, device: str = "", broker: str = ""
    ) -> Entry:
        """A claim for a card: a key and a certificate that devices exchange for their own, so many of them.

        Parameters
        ----------
        device : the only device that may come with it; "": any whose name is free
        broker : URL of the listener for claims; "": port 8885 of the device's broker

        Raises
        ------
        InputError
            The name is not a device's, or the folder has something or cannot be written.
        """
        if device:
            check_device(device)
        _check_empty(out)
        make_folders(Path(out).absolute())
        key, name = make_key(), CLAIM + secrets.token_hex(6)
        certificate = issue(self._signers["claims"], key.public_key(), name, purpose="client", now=now, days=days)
        with self._journal.locked():
            entry = self._append("claim", name, certificate, now, uses=uses, device=device)
        put_claim(out, key_pem(key), certificate.public_bytes(Encoding.PEM), self.certificate, broker)
        return entry

    def exchange(
        self, sender: str, name: str, key: EllipticCurvePublicKey, *, now: int, days: float = DEVICE_DAYS
    ) -> bytes | Refused:
        """The certificate (DER) for a request, old or new, which is in the journal when this returns; or a refusal.

        Raises
        ------
        InputError
            The journal cannot be read or written.
        """
        with self._journal.locked() as book:
            granted = book.grant(sender, name, key_digest(key), now)
            if isinstance(granted, Refused):
                return granted
            if granted is not None:
                return base64.b64decode(granted.certificate)
            claim = sender if sender != name else ""
            return self._issue_device(key, name, now, days, claim).public_bytes(Encoding.DER)

    def revoke(self, name: str, *, now: int) -> int:
        """Revoke every certificate of a device, claim or server, and write the list; returns how many there were.

        A second time writes the list again.

        Raises
        ------
        InputError
            Nothing was ever issued to that name, or a file cannot be written.
        """
        with self._journal.locked() as book:
            if not any(entry.name == name for entry in book.entries):
                raise InputError(f"nothing was issued to {name[:80]!r}; hardcase ca list {self.folder} has all names")
            live = book.live(name, now)
            if live:
                self._journal.append(Entry("revoked", name, now))
            self._write_crl(book, now)
        return len(live)

    # ------------------------------------------------------------ parts

    def _authority(self, role: str) -> Authority:
        key = self.folder / "private" / f"{role}.key"
        check_private(key, "authority's key")
        private = read_bounded(key, MAX_FILE_BYTES, "authority's key", remedy=_REMEDY)
        public = self.folder / "public" / f"{role}.pem"
        return read_authority(private, read_bounded(public, MAX_FILE_BYTES, "authority's certificate", remedy=_REMEDY))

    def _issue_device(
        self, key: EllipticCurvePublicKey, name: str, now: int, days: float, claim: str = ""
    ) -> x509.Certificate:
        certificate = issue(self._signers["devices"], key, name, purpose="client", now=now, days=days)
        self._append("device", name, certificate, now, claim=claim)
        return certificate

    def _append(
        self,
        kind: str,
        name: str,
        certificate: x509.Certificate,
        now: int,
        *,
        claim: str = "",
        uses: int = 0,
        device: str = "",
    ) -> Entry:
        key = certificate.public_key()
        assert isinstance(key, EllipticCurvePublicKey)
        entry = Entry(
            kind,  # type: ignore[arg-type]
            name,
            now,
            expires=int(certificate.not_valid_after_utc.timestamp()),
            serial=f"{certificate.serial_number:x}",
            key=key_digest(key),
            certificate=base64.b64encode(certificate.public_bytes(Encoding.DER)).decode(),
            claim=claim,
            uses=uses,
            device=device,
        )
        self._journal.append(entry)
        return entry

    def _write_crl(self, book: Book, now: int) -> None:
        path = self.folder / "public" / "crl.pem"
        number, began = _newest(path)
        at = max(began + 1, now - SKEW_S)  # OpenSSL takes the list that began last
        lists = _crls(self._signers, book, now, number=number + 1, at=at)
        remove_leftovers(path)
        write_whole(path, lists)


def _crls(signers: dict[str, Authority], book: Book, now: int, *, number: int, at: int) -> bytes:
    """The lists of both authorities in one file."""
    of: dict[str, list[tuple[int, int]]] = {role: [] for role in ROLES}
    for entry, when in book.revoked(now):
        of["claims" if entry.kind == "claim" else "devices"].append((int(entry.serial, 16), when))
    return b"".join(make_crl(signers[role], of[role], number=number, at=at) for role in ROLES)


def _newest(path: Path) -> tuple[int, int]:
    """The number of the list in a file, and when it begins."""
    try:
        crl = x509.load_pem_x509_crl(read_bounded(path, MAX_CRL_BYTES, "list", remedy="revoke again"))
        number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        return number, int(crl.last_update_utc.timestamp())
    except (HardcaseError, ValueError, x509.ExtensionNotFound):
        return int(time.time()), 0  # the list is gone: a number that none has had


def _fill(folder: Path, signers: dict[str, Authority], now: int) -> None:
    for name, mode in (("private", 0o700), ("public", 0o755)):
        (folder / name).mkdir(mode=mode)
    for role in ROLES:
        write_new(folder / "private" / f"{role}.key", key_pem(signers[role].key), mode=0o600)
        write_new(folder / "public" / f"{role}.pem", signers[role].pem)
    write_new(folder / "public" / "crl.pem", _crls(signers, Book(), now, number=1, at=now - 24 * SKEW_S))
    write_new(folder / "issued.jsonl", b"", mode=0o600)
    sync_folder(folder)


def _public_half(path: Path) -> EllipticCurvePublicKey:
    """The public half of a private key in a file.

    Raises
    ------
    InputError
        The file is not a private key on P-256 in PEM.
    """
    try:
        key = load_pem_private_key(read_bounded(path, MAX_FILE_BYTES, "key", remedy="remove it"), None).public_key()
    except (ValueError, TypeError) as error:
        raise InputError(f"key {path} is not readable PEM; remove it") from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise InputError(f"key {path} is not on the curve P-256; remove it")
    return key


def _check_server_key(path: Path) -> None:
    """Refuse a server's key that all users can read; the broker's group may."""
    if os.stat(path).st_mode & 0o007:
        raise InputError(f"server's key {path} can be read by all users; keep it to the broker: chmod o= {path}")


def _check_empty(folder: str | Path) -> None:
    """Refuse a place where something is.

    Raises
    ------
    InputError
        It is a file, or a folder with something in it.
    """
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists, and an identity is never overwritten; name another folder with --out")


def _day(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
