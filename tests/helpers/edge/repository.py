# SPDX-License-Identifier: Apache-2.0
"""A fleet's signed metadata as python-tuf makes them, and python-tuf's own verdict on an update."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.ngclient._internal.trusted_metadata_set import TrustedMetadataSet
from tuf.ngclient.config import EnvelopeType

from hardcase_edge.fleet.store.metadata import canonical
from hardcase_edge.fleet.store.trust import Trust

NOW = datetime(2030, 1, 1, tzinfo=UTC).timestamp()


class Files(NamedTuple):
    """What one update consists of."""

    roots: list[bytes]
    timestamp: bytes
    snapshot: bytes
    targets: bytes


def time_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Repository:
    """Three root keys of which two must sign, and a key for each other role."""

    def __init__(self) -> None:
        self.root_keys = [CryptoSigner.generate_ed25519() for _ in range(3)]
        self.keys = {role: CryptoSigner.generate_ed25519() for role in ("timestamp", "snapshot", "targets")}
        self.root = Root(version=1, expires=time_of(NOW + 1e8), consistent_snapshot=False)
        for key in self.root_keys:
            self.root.add_key(key.public_key, "root")
        for role, key in self.keys.items():
            self.root.add_key(key.public_key, role)
        self.root.roles["root"].threshold = 2
        self.roots = [self.sign(self.root, *self.root_keys[:2])]
        self.version = 0
        self.timestamp_expires = NOW + 1e6
        self.issued: float | None = None

    @staticmethod
    def sign(signed, *signers: CryptoSigner) -> bytes:
        metadata = Metadata(signed)
        for signer in signers:
            metadata.sign(signer, append=True)
        return metadata.to_bytes()

    def publish(self, *bundles: bytes) -> Files:
        """The next version, whose targets list these bundles."""
        self.version += 1
        return self.files(self.version, *bundles)

    def files(self, version: int, *bundles: bytes) -> Files:
        """An update of this version, with all roots after the first."""
        later = time_of(NOW + 1e7)
        names = {f"{k}.hcb": TargetFile.from_data(f"{k}.hcb", b, ["sha256"]) for k, b in enumerate(bundles)}
        targets = self.sign(Targets(version=version, expires=later, targets=names), self.keys["targets"])
        meta = MetaFile.from_data(version, targets, ["sha256"])
        snapshot = self.sign(
            Snapshot(version=version, expires=later, meta={"targets.json": meta}), self.keys["snapshot"]
        )
        extra = {} if self.issued is None else {"issued": time_of(self.issued).strftime("%Y-%m-%dT%H:%M:%SZ")}
        timestamp = Timestamp(
            version=version,
            expires=time_of(self.timestamp_expires),
            snapshot_meta=MetaFile.from_data(version, snapshot, ["sha256"]),
            unrecognized_fields=extra,
        )
        return Files(self.roots[1:], self.sign(timestamp, self.keys["timestamp"]), snapshot, targets)

    def named(self, *bundles: bytes) -> dict[str, bytes]:
        """The next version by the names of its files, all roots among them."""
        _, *newest = self.publish(*bundles)
        roots = {f"{k}.root.json": root for k, root in enumerate(self.roots, 1)}
        return roots | dict(zip(("timestamp.json", "snapshot.json", "targets.json"), newest, strict=True))

    def write(self, folder: Path, *bundles: bytes) -> Path:
        """The next version as files of a folder."""
        folder.mkdir(exist_ok=True)
        for name, data in self.named(*bundles).items():
            (folder / name).write_bytes(data)
        return folder

    def rotate(self, role: str = "timestamp") -> None:
        """A next root with a new key for the role, or, for "root", in place of the first root key."""
        old = self.root_keys[0] if role == "root" else self.keys[role]
        new = CryptoSigner.generate_ed25519()
        self.root.revoke_key(old.public_key.keyid, role)
        self.root.add_key(new.public_key, role)
        self.root.version += 1
        signers = [*self.root_keys, new] if role == "root" else self.root_keys[:2]
        if role == "root":
            self.root_keys[0] = new
        else:
            self.keys[role] = new
        self.roots.append(self.sign(self.root, *signers))


def tuf_accepts(trust: Trust, files: Files, now: float = NOW) -> bool:
    """Whether python-tuf's client takes this update where the device trusts that."""
    try:
        trusted = TrustedMetadataSet(trust.root.data, EnvelopeType.METADATA)
        trusted.reference_time = time_of(max(now, trust.floor))
        for data in files.roots:
            trusted.update_root(data)
        _load_old(trusted.update_timestamp, trust.timestamp)
        new = Metadata[Timestamp].from_bytes(files.timestamp).signed.version
        if trusted.get("timestamp") is None or trusted.timestamp.version != new:
            trusted.update_timestamp(files.timestamp)
        _load_old(trusted.update_snapshot, trust.snapshot)
        if trusted.get("snapshot") is None or trusted.snapshot.version != trusted.timestamp.snapshot_meta.version:
            trusted.update_snapshot(files.snapshot)
        trusted.update_targets(files.targets)
    except (RepositoryError, RuntimeError, ValueError):
        return False
    return True


def _load_old(update, old) -> None:
    """Load what is trusted, if it still is: new keys may not have signed it, and it may have expired."""
    if old is not None:
        with contextlib.suppress(RepositoryError):
            update(old.data)


def signed_again(data: bytes, *signers: CryptoSigner, signed: Any = None, **changes: Any) -> bytes:
    """A file with other values, or another signed part, signed by these keys alone."""
    part = json.loads(data)["signed"] | changes if signed is None else signed
    signatures = [signer.sign(canonical(part)) for signer in signers]
    entries = [{"keyid": s.keyid, "sig": s.signature} for s in signatures]
    return json.dumps({"signed": part, "signatures": entries}).encode()
