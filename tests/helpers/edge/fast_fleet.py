# SPDX-License-Identifier: Apache-2.0
"""A fleet's metadata whose signatures are digests, for simulations that check millions of them."""

from __future__ import annotations

import hashlib
import json
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from hardcase_cloud.rollout.updates.offer import _offer
from hardcase_edge.fleet.store import metadata
from hardcase_edge.fleet.store.metadata import canonical
from hardcase_edge.fleet.store.repository import Files
from hardcase_edge.fleet.update import messages
from hardcase_edge.fleet.update.messages import Offer

__all__ = ["FastFleet", "fast_signatures"]

FAR = "2090-01-01T00:00:00Z"


def digest(message: bytes, public: bytes) -> bytes:
    return hashlib.sha512(public + message).digest()


@contextmanager
def fast_signatures():
    """Signatures are what ``FastFleet`` makes; all else of the metadata is as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "is_signed", lambda message, signature, public: signature == digest(message, public))
        patch.setattr("hardcase_cloud.rollout.updates.offer.CHUNK_BYTES", messages.MIN_CHUNK_BYTES)
        yield


@dataclass
class FastFleet:
    """One key for each role, and every root so far."""

    rng: random.Random
    keys: dict[str, bytes] = field(default_factory=dict)
    roots: list[bytes] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        self.keys = {role: self.rng.randbytes(32) for role in metadata.ROLES}
        self._root([self.keys["root"]])

    def rotate(self, role: str) -> None:
        """A next root with a new key for a role."""
        old = self.keys["root"]
        self.keys[role] = self.rng.randbytes(32)
        self._root([old, self.keys["root"]])

    def _root(self, signers: list[bytes]) -> None:
        keys = {
            k.hex(): {"keytype": "ed25519", "scheme": "ed25519", "keyval": {"public": k.hex()}}
            for k in self.keys.values()
        }
        roles = {role: {"keyids": [k.hex()], "threshold": 1} for role, k in self.keys.items()}
        self.roots.append(self._sign("root", len(self.roots) + 1, signers, keys=keys, roles=roles))

    def _sign(self, role: str, version: int, signers: list[bytes], **more: Any) -> bytes:
        signed = {"_type": role, "spec_version": "1.0.31", "version": version, "expires": FAR, **more}
        message = canonical(signed)
        signatures = [{"keyid": k.hex(), "sig": digest(message, k).hex()} for k in dict.fromkeys(signers)]
        return json.dumps({"signatures": signatures, "signed": signed}).encode()

    def offer(self, bundle: bytes) -> tuple[Offer, tuple[int, int]]:
        """The next version, whose targets list this bundle, as an offer with its release."""
        self.version += 1
        n, key = self.version, self.keys
        listed = {"length": len(bundle), "hashes": {"sha256": hashlib.sha256(bundle).hexdigest()}}
        targets = self._sign("targets", n, [key["targets"]], targets={"x.hcb": listed})
        snapshot = self._sign("snapshot", n, [key["snapshot"]], meta={"targets.json": {"version": n}})
        timestamp = self._sign("timestamp", n, [key["timestamp"]], meta={"snapshot.json": {"version": n}})
        files = Files(tuple(self.roots[-8:]), timestamp, snapshot, targets)
        return _offer(bundle, files, b""), (len(self.roots), n)
