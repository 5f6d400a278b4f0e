# SPDX-License-Identifier: Apache-2.0
"""A repository of TUF 1.0 metadata in a folder, with its private keys: begun, signed again, and given new keys.

    FOLDER/1.root.json, 2.root.json, ...     every root, because a device takes them one after the other
    FOLDER/N.targets.json, N.snapshot.json   of this version and of the one before it
    FOLDER/timestamp.json                    names the snapshot; whoever replaces it makes all others count

python-tuf makes the files, and the device's own rules (``hardcase_edge.fleet.store.trust``) check them before any is
written. Each is written whole, the timestamp after what it names, so that whatever interrupts a run leaves a folder
that devices take. With new keys, targets, snapshot and timestamp are signed by the old keys and the new ones before the
new root is written.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from hardcase_edge.base.files import check_private, read_bounded, write_new, write_whole
from hardcase_edge.bundle.signature import MAX_KEY_BYTES, make_keys, private_key_of
from hardcase_edge.errors import InputError, TrustError
from hardcase_edge.fleet.store.metadata import MAX_METADATA_BYTES, parse
from hardcase_edge.fleet.store.trust import Trust, first_trust, updated

LOWER = ("targets", "snapshot", "timestamp")  # the roles below the root, in the order in which they are signed
REMEDY = "name the folder that hardcase keys init wrote"

Signers = Mapping[str, Sequence[CryptoSigner]]


@dataclass(frozen=True)
class Places:
    """Where a repository and its private keys lie."""

    folder: Path
    private: Path  # keys of targets, snapshot and timestamp
    root_keys: tuple[Path, ...]  # keys of the root: one folder, or several to which they are dealt out in turn


@dataclass(frozen=True)
class Lives:
    """How long what is signed now counts, in seconds."""

    lower: int  # of targets, snapshot and timestamp
    root: int


@dataclass(frozen=True)
class Summary:
    """What a run has signed."""

    root: int
    targets: int
    bundles: tuple[str, ...]
    expires: str  # when the first of the files does

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"root": self.root, "targets": self.targets, "bundles": list(self.bundles), "expires": self.expires}


@dataclass
class _State:
    """What a folder holds: the newest root, and targets, snapshot and timestamp."""

    root: Metadata[Root]
    targets: Targets
    versions: dict[str, int]  # of the lower roles


def begin(places: Places, lives: Lives, now: int, *, n_keys: int, threshold: int) -> Summary:
    """Make keys and a first root, whose targets list nothing.

    Raises
    ------
    InputError
        The folder holds a repository, or a folder cannot be written.
    """
    if any(places.folder.glob("*.root.json")):
        raise InputError(f"{places.folder} holds a repository; sign bundles for it, or name another folder")
    with making() as maker:
        root_signers = _deal(maker, places, n_keys)
        lower = {role: [maker.make(role, places.private)] for role in LOWER}
        root = Root(version=1, expires=_time(now + lives.root), consistent_snapshot=True)
        _give(root, "root", root_signers)
        for role in LOWER:
            _give(root, role, lower[role])
        root.roles["root"].threshold = threshold
        signed = _signed(root, root_signers)
        state = _State(signed, Targets(version=1, expires=_time(now)), dict.fromkeys(LOWER, 0))
        files = _lower_files(state, lower, lives, now)
        _check(first_trust(signed.to_bytes()), [], files, now)
        try:
            places.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{places.folder} cannot be made: {error.strerror}; name another folder") from error
        maker.keep()
        _write(places.folder, files)
        write_whole(places.folder / "1.root.json", signed.to_bytes())
    return _summary(state, lives, now)


def sign(places: Places, bundles: Mapping[str, bytes], lives: Lives, now: int, *, only: bool = False) -> Summary:
    """List these bundles, by name, in new targets; without bundles, the same targets count for longer.

    ``only``: list no others from now on, so that devices refuse what was listed before.

    Raises
    ------
    InputError
        The folder or a private key cannot be used.
    TrustError
        A device would refuse the result, such as one with too many bundles.
    """
    state = _read(places.folder, now)
    signers = {role: _signers(state.root.signed, role, (places.private,)) for role in LOWER}
    if only:
        state.targets.targets = {}
    for name, data in bundles.items():
        state.targets.targets[name] = TargetFile.from_data(name, data, ["sha256"])
    files = _lower_files(state, signers, lives, now)
    _check(first_trust(state.root.to_bytes()), [], files, now)
    _write(places.folder, files)
    return _summary(state, lives, now)


def rotate(places: Places, roles: Sequence[str], lives: Lives, now: int) -> Summary:
    """Replace the keys of these roles in a next root, which the old root's keys and the new one's sign.

    Raises
    ------
    InputError
        The folder cannot be used, or too few of the root's keys are here.
    """
    state = _read(places.folder, 0 if "timestamp" in roles else now)
    old = state.root.signed
    old_signers = {role: _signers(old, role, (places.private,)) for role in LOWER if role not in roles}
    leaving = {role: _signers(old, role, (places.private,), must=False) for role in LOWER if role in roles}
    old_roots = _signers(old, "root", places.root_keys)
    root = copy.deepcopy(old)
    root.version, root.expires = old.version + 1, _time(now + lives.root)
    with making() as maker:
        new: dict[str, list[CryptoSigner]] = {}
        for role in roles:
            n_keys = len(old.roles[role].keyids)
            new[role] = _deal(maker, places, n_keys) if role == "root" else [maker.make(role, places.private)]
            for keyid in list(root.roles[role].keyids):
                root.revoke_key(keyid, role)
            _give(root, role, new[role])
        state.root = _signed(root, [*old_roots, *new.get("root", [])])
        signers = old_signers | {role: [*leaving[role], *new[role]] for role in leaving}
        files = _lower_files(state, signers, lives, now)
        trust = first_trust(_load(_root_path(places.folder, old.version)))
        _check(trust, [state.root.to_bytes()], files, now)
        maker.keep()
        _write(places.folder, files)
        write_whole(_root_path(places.folder, root.version), state.root.to_bytes())
    for role in roles:
        for folder in places.root_keys if role == "root" else (places.private,):
            for keyid in old.roles[role].keyids:
                path_of(folder, role, keyid).unlink(missing_ok=True)
    return _summary(state, lives, now)


# ---------------------------------------------------------------- parts


def _deal(maker: Maker, places: Places, n_keys: int) -> list[CryptoSigner]:
    folders = places.root_keys
    return [maker.make("root", folders[k % len(folders)]) for k in range(n_keys)]


def _give(root: Root, role: str, signers: Sequence[CryptoSigner]) -> None:
    for signer in signers:
        root.add_key(signer.public_key, role)


def _signers(root: Root, role: str, folders: Sequence[Path], *, must: bool = True) -> list[CryptoSigner]:
    """The role's keys that are here; with ``must``, at least as many as its threshold."""
    keyids = root.roles[role].keyids
    signers = [signer for keyid in keyids if (signer := find(folders, role, keyid))]
    if must and len(signers) < root.roles[role].threshold:
        flag = "--root-keys" if role == "root" else "--private"
        places = " and ".join(map(str, folders))
        raise InputError(
            f"{places} has {len(signers)} of the {len(keyids)} {role} keys, and {root.roles[role].threshold} must "
            f"sign; name their folder with {flag}"
        )
    return signers


def _signed(root: Root, signers: Sequence[CryptoSigner]) -> Metadata[Root]:
    metadata = Metadata(root)
    for signer in {keyid_of(s): s for s in signers}.values():
        metadata.sign(signer, append=True)
    return metadata


def _lower_files(state: _State, signers: Signers, lives: Lives, now: int) -> dict[str, bytes]:
    """The next targets, snapshot and timestamp, by file name, in the order in which they are written."""
    expires = _time(now + lives.lower)
    n = {role: state.versions[role] + 1 for role in LOWER}
    state.versions = n

    def signed(part: Targets | Snapshot | Timestamp) -> bytes:
        metadata: Metadata[Any] = Metadata(part)
        for signer in signers[part.type]:
            metadata.sign(signer, append=True)
        return metadata.to_bytes()

    state.targets.version, state.targets.expires = n["targets"], expires
    targets = signed(state.targets)
    entry = MetaFile.from_data(n["targets"], targets, ["sha256"])
    snapshot = signed(Snapshot(version=n["snapshot"], expires=expires, meta={"targets.json": entry}))
    entry = MetaFile.from_data(n["snapshot"], snapshot, ["sha256"])
    issued = {"issued": _time(now).strftime("%Y-%m-%dT%H:%M:%SZ")}
    timestamp = Timestamp(version=n["timestamp"], expires=expires, snapshot_meta=entry, unrecognized_fields=issued)
    return {
        f"{n['targets']}.targets.json": targets,
        f"{n['snapshot']}.snapshot.json": snapshot,
        "timestamp.json": signed(timestamp),
    }


def _check(trust: Trust, roots: Sequence[bytes], files: Mapping[str, bytes], now: int) -> None:
    """Nothing is written that a device with this trust refuses, before a new root and after it."""
    targets, snapshot, timestamp = files.values()
    for each in ([], roots) if roots else ([],):
        try:
            updated(trust, each, timestamp, snapshot, targets, now=now)
        except TrustError as error:
            if each or not roots:  # where an old key is lost, the old root's devices wait for the new one
                raise TrustError(f"a device would refuse what is signed here: {error}") from error


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        write_whole(folder / name, data)
    for role in ("targets", "snapshot"):
        for path in folder.glob(f"*.{role}.json"):
            number = path.name.partition(".")[0]
            newest = next(name for name in files if name.endswith(f".{role}.json"))
            if number.isdecimal() and int(number) < int(newest.partition(".")[0]) - 1:
                path.unlink(missing_ok=True)


def _read(folder: Path, now: int) -> _State:
    """What the folder holds; ``now`` is not earlier than the time that its timestamp has, or 0 if that key goes."""
    version = 0
    while _root_path(folder, version + 1).exists():
        version += 1
    if not version:
        raise InputError(f"{folder} holds no repository; {REMEDY}")
    root, timestamp = _load(_root_path(folder, version)), _load(folder / "timestamp.json")
    n_snapshot = parse(timestamp, "timestamp").signed["meta"]["snapshot.json"]["version"]
    snapshot = _load(folder / f"{n_snapshot}.snapshot.json")
    n_targets = parse(snapshot, "snapshot").signed["meta"]["targets.json"]["version"]
    targets = _load(folder / f"{n_targets}.targets.json")
    try:  # what others have changed is never signed again; what has expired is
        trust = updated(first_trust(root), [], timestamp, snapshot, targets, now=0)
    except TrustError as error:
        raise TrustError(f"the metadata in {folder} were changed, so nothing is signed: {error}") from error
    if 0 < now < trust.floor:
        raise InputError(
            f"the metadata in {folder} were signed at {_time(trust.floor):%Y-%m-%dT%H:%M:%SZ}, later than this "
            "machine's clock; set the clock, or, if it was ahead then, replace that key: hardcase keys rotate --role "
            "timestamp"
        )
    assert trust.timestamp is not None  # after an update
    versions = {"targets": n_targets, "snapshot": n_snapshot, "timestamp": trust.timestamp.version}
    return _State(Metadata[Root].from_bytes(root), Metadata[Targets].from_bytes(targets).signed, versions)


def _load(path: Path) -> bytes:
    return read_bounded(path, MAX_METADATA_BYTES, "metadata", remedy=REMEDY)


def _root_path(folder: Path, version: int) -> Path:
    return folder / f"{version}.root.json"


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _summary(state: _State, lives: Lives, now: int) -> Summary:
    names = tuple(sorted(state.targets.targets))
    expires = min(_time(now + lives.lower), state.root.signed.expires)
    return Summary(state.root.signed.version, state.targets.version, names, expires.strftime("%Y-%m-%dT%H:%M:%SZ"))


# Private keys of a repository: a PEM file for each, which its owner alone can read, named for its role and its id.


def keyid_of(signer: CryptoSigner) -> str:
    """The id of a key: 64 hex digits."""
    return str(signer.public_key.keyid)


def path_of(folder: Path, role: str, keyid: str) -> Path:
    """Where a role's key lies in a folder of keys."""
    return folder / f"{role}-{keyid[:16]}.key"


def find(folders: Sequence[Path], role: str, keyid: str) -> CryptoSigner | None:
    """A role's key in the first folder that has it, or None.

    Raises
    ------
    InputError
        Other users can read the file, or it holds another key.
    """
    for folder in folders:
        path = path_of(folder, role, keyid)
        if path.exists():
            check_private(path, "private key")
            signer = _signer(read_bounded(path, MAX_KEY_BYTES, "private key", remedy="restore it"))
            if keyid_of(signer) != keyid:
                raise InputError(f"private key {path} is another key than its name says; restore it")
            return signer
    return None


class Maker:
    """Makes keys, and removes them again if what they were made for fails."""

    def __init__(self) -> None:
        self._paths: list[Path] = []

    def make(self, role: str, folder: Path) -> CryptoSigner:
        """A new key for a role, in a folder that is made if it is not there.

        Raises
        ------
        InputError
            The folder cannot be written.
        """
        private, _ = make_keys()
        signer = _signer(private)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {error.strerror}; name another folder") from error
        path = path_of(folder, role, keyid_of(signer))
        write_new(path, private, mode=0o600)
        self._paths.append(path)
        return signer

    def keep(self) -> None:
        """What is written next needs the keys that were made so far: they stay, whatever happens."""
        self._paths.clear()

    def remove(self) -> None:
        """Remove the keys that were made and not kept."""
        for path in self._paths:
            path.unlink(missing_ok=True)


@contextmanager
def making() -> Iterator[Maker]:
    """A ``Maker`` whose keys go if the block ends with an exception before ``keep``."""
    maker = Maker()
    try:
        yield maker
    except BaseException:
        maker.remove()
        raise


def _signer(pem: bytes) -> CryptoSigner:
    return CryptoSigner(private_key_of(pem))
