# SPDX-License-Identifier: Apache-2.0
"""Signed metadata beside python-tuf: mutated files, and what the conformance suite of TUF asks of clients.

Device and python-tuf must accept the same files, and neither may crash. The device refuses a little more, by rule 1 of
docs/SPEC-store-v1.md, section 5; ``beyond_tuf`` is that rule once more, written apart from the device. Every other
difference is a finding.

The suite (tuf-conformance) drives a client's command against a server and is in no package registry, so its cases are
made again here, as a table of histories, on one function that takes an update. Left out: delegations, keys other than
Ed25519 and hashes other than SHA-256, none of which the device has, and downloads, which it does not do.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from math import inf
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Root

from hardcase_edge.bundle.ed25519 import is_signed
from hardcase_edge.errors import TrustError
from hardcase_edge.fleet.store.trust import Trust, first_trust, updated
from tests.helpers.attack.outcome import Attack, Outcome, each, spoilt
from tests.helpers.edge.repository import NOW, Files, Repository, signed_again, time_of, tuf_accepts

BOTH = "of these, accepted by the device and by python-tuf"
ALONE = "of these, refused by the device alone, by a rule of its own"
Mutant = tuple[Trust, Files, bytes, str]  # what is trusted, an update, and its mutated file with its role
VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**53 - 1, 2**53, 2**70, 1.5, 1.0, "", "x", "1.9", "\U0001f600", "\ud83d", [], {}, [[]],
    {"": 0}, "2030-1-12T13:46:40Z",
]  # fmt: skip
NAMES = ("twin", "targets.json", "hashes", "")
CALLS = 20_000  # of the check of a signature, which most mutants leave as it was


def updates(rng: random.Random) -> Generator[Mutant, None, None]:
    """Updates of which one file is mutated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.fleet.store.metadata.is_signed", lru_cache(CALLS)(is_signed))
        repository = Repository()
        trust = updated(first_trust(repository.roots[0]), *repository.publish(b"one"), now=NOW)
        repository.rotate()
        good = repository.publish(b"two")
        signers = {"root": repository.root_keys} | {role: [key] for role, key in repository.keys.items()}
        while True:
            role = rng.choice([*signers])
            old = good.roots[0] if role == "root" else getattr(good, role)
            envelope = spoilt(rng, json.loads(old), VALUES, NAMES)
            data = json.dumps(envelope).encode()
            if rng.random() < 0.7:  # by a maker who holds the keys and errs
                try:
                    data = signed_again(old, *signers[role], signed=envelope["signed"])
                except (KeyError, TypeError, ValueError, AssertionError):  # nobody can sign that
                    continue
            if rng.random() < 0.1:  # outside of what is signed, or within it
                at = rng.randrange(len(data))
                data = data[:at] + rng.choice((b"", b" ", b'"', b"0", data[at - 9 : at + 1])) + data[at + 1 :]
            yield trust, good._replace(**{"roots": [data]} if role == "root" else {role: data}), data, role


def as_tuf(case: Mutant, trust: Any) -> bool | Outcome:
    """Accepted and refused as by python-tuf, but for a rule of the device's own."""
    is_accepted, is_taken = bool(trust) and not isinstance(trust, TrustError), accepted_by_tuf(*case[:2])
    if is_taken and not is_accepted and beyond_tuf(*case[2:]):
        return Outcome(ALONE, 1, 0, 0)
    return Outcome(BOTH, 1, 0, 0) if is_accepted and is_taken else is_accepted == is_taken


mutants = Attack(
    "TUF metadata beside python-tuf", updates, lambda case: updated(case[0], *case[1], now=NOW), as_tuf, (TrustError,),
    (BOTH, ALONE),
)  # fmt: skip


def accepted_by_tuf(trust: Trust, files: Files) -> bool:
    """python-tuf's verdict; an exception of another kind is a refusal, too."""
    try:
        return tuf_accepts(trust, files)
    except Exception:
        return False


def beyond_tuf(data: bytes, role: str) -> bool:
    """Whether the file breaks rule 1, of which python-tuf does not know."""
    faults: list[str] = []

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        faults.extend("twice" for _ in range(len(pairs) - len(dict(pairs))))
        for name, value in pairs:
            if name in ("version", "threshold", "length") and (isinstance(value, bool) or value >= 2**53):
                faults.append(name)
        return dict(pairs)

    signed = json.loads(data, object_pairs_hook=whole, parse_float=faults.append)["signed"]
    if signed["spec_version"] is None:
        faults.append("spec_version")
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([0-9]{2}:){2}[0-9]{2}Z", signed["expires"]):
        faults.append("expires")
    if role == "timestamp" and set(signed["meta"]) != {"snapshot.json"}:
        faults.append("meta")
    if role == "root":
        publics = [key["keyval"]["public"] for key in signed["keys"].values()]
        faults.extend(key for key in publics if not re.fullmatch("[0-9a-f]{64}", str(key)))
        if set(signed["roles"]) != {"root", "timestamp", "snapshot", "targets"}:
            faults.append("roles")
        if not isinstance(signed.get("consistent_snapshot", False), bool):
            faults.append("consistent_snapshot")
    return bool(faults)


Step = tuple[Trust, Files, bool]  # what the device trusts, what it is given, whether it must take it
History = Callable[[], Iterator[Step]]
Version = tuple[str, int, str]  # digits of the keys of a role, its threshold, digits of the keys that sign

ROOTS: dict[str, tuple[bool, list[Version]]] = {
    "one key follows another": (True, [("1", 1, "1"), ("2", 1, "21"), ("2", 1, "2")]),
    "signatures of strangers beside": (True, [("1", 1, "314"), ("2", 1, "3214"), ("2", 1, "324")]),
    "three of five, whichever": (True, [("01234", 3, "024"), ("01234", 3, "041"), ("01234", 3, "013")]),
    "one of five changes": (True, [("01234", 3, "024"), ("01345", 3, "041")]),
    "one of five changes, signed by it too": (True, [("01234", 3, "024"), ("01345", 3, "0245"), ("01345", 3, "045")]),
    "all five change": (True, [("01234", 3, "024"), ("56789", 3, "024567"), ("56789", 3, "567")]),
    "the threshold rises": (True, [("123", 1, "1"), ("123", 2, "12")]),
    "the threshold falls": (True, [("123", 2, "12"), ("123", 1, "12"), ("123", 1, "1")]),
    "a second key is needed": (True, [("1", 1, "1"), ("12", 2, "12")]),
    "not signed by the old key": (False, [("1", 1, "1"), ("2", 1, "234")]),
    "not signed by the new key": (False, [("1", 1, "1"), ("2", 1, "134")]),
    "too few of the new keys": (False, [("01234", 3, "024"), ("01345", 3, "024")]),
    "too few of the old keys": (False, [("01234", 3, "024"), ("01345", 3, "045")]),
    "the new threshold is not reached": (False, [("123", 1, "1"), ("123", 2, "2")]),
    "the old threshold is not reached": (False, [("123", 2, "12"), ("123", 1, "1")]),
    "the same key signs twice": (False, [("123", 2, "12"), ("123", 2, "11")]),
}  # fmt: skip
OTHERS: dict[str, tuple[bool, Version]] = {
    "another key": (True, ("2", 1, "2")), "signatures of strangers beside": (True, ("1", 1, "314")),
    "not signed by the new key": (False, ("2", 1, "134")), "a stranger among three": (False, ("01345", 3, "024")),
    "two of three": (False, ("01345", 3, "04")), "three of five": (True, ("01234", 3, "024")),
    "three others of five": (True, ("01234", 3, "234")), "more needed than there are": (False, ("012", 4, "012")),
}  # fmt: skip


def signers() -> list[CryptoSigner]:
    return [CryptoSigner.generate_ed25519() for _ in range(10)]


def set_keys(root: Root, role: str, keys: list[CryptoSigner], version: Version) -> list[CryptoSigner]:
    """Give a role these keys; those that sign."""
    root.roles[role].keyids.clear()
    for digit in version[0]:
        root.add_key(keys[int(digit)].public_key, role)
    root.roles[role].threshold = version[1]
    return [keys[int(digit)] for digit in version[2]]


def root_case(is_taken: bool, versions: list[Version]) -> History:
    def case() -> Iterator[Step]:
        repository, keys = Repository(), signers()
        repository.roots = []
        for k, version in enumerate(versions):
            repository.root.version = k + 1
            by = set_keys(repository.root, "root", keys, version)
            repository.roots.append(signed_again(json.dumps({"signed": repository.root.to_dict()}).encode(), *by))
        yield first_trust(repository.roots[0]), repository.publish(b"one"), is_taken

    return case


def role_case(role: str, is_taken: bool, version: Version) -> History:
    def case() -> Iterator[Step]:
        repository, keys = Repository(), signers()
        by = set_keys(repository.root, role, keys, version)
        repository.root.version = 2
        repository.roots.append(repository.sign(repository.root, *repository.root_keys[:2]))
        yield first_trust(repository.roots[0]), changed(repository, repository.publish(b"one"), role, by=by), is_taken

    return case


def changed(
    repository: Repository,
    files: Files,
    role: str,
    by: list[CryptoSigner] | None = None,
    named: bool = True,
    **values: Any,
) -> Files:
    """An update in which one file has other values, signed again; ``named``: as are those that describe it."""
    keys = repository.keys
    new = signed_again(getattr(files, role), *([keys[role]] if by is None else by), **values)
    files = files._replace(**{role: new})
    chain = {"targets": ("snapshot", "timestamp"), "snapshot": ("timestamp",), "timestamp": ()}[role]
    below = role
    for above in chain if named else ():
        version = json.loads(getattr(files, below))["signed"]["version"]
        entry = {f"{below}.json": {"version": version}}  # without hashes, which are a wish
        files = files._replace(**{above: signed_again(getattr(files, above), keys[above], meta=entry)})
        below = above
    return files


def histories() -> Iterator[tuple[str, History]]:
    """Histories of one repository, each a few updates."""

    def first(n: int = 1) -> tuple[Repository, Trust]:
        repository = Repository()
        for _ in range(n - 1):
            repository.publish(b"old")
        return repository, updated(first_trust(repository.roots[0]), *repository.publish(b"one"), now=NOW)

    def older(role: str, **at: int) -> History:
        def case() -> Iterator[Step]:
            repository, trust = first(3)
            yield (
                trust,
                changed(repository, repository.files(at.get("files", 4), b"one"), role, version=at["to"]),
                False,
            )

        return case

    for role in ("timestamp", "snapshot", "targets"):
        yield f"an older {role}", older(role, to=2)
    yield "all of an older version", older("timestamp", files=2, to=2)

    def recovers(*roles: str) -> History:
        """After a thief's huge version, new keys begin low again."""

        def case() -> Iterator[Step]:
            repository, trust = first()
            trust = updated(trust, *repository.files(99_999, b"theft"), now=NOW)
            for role in roles:
                repository.rotate(role)
            yield trust, repository.files(2, b"one"), True

        return case

    yield "new keys of timestamp and snapshot end a huge version", recovers("timestamp", "snapshot", "targets")
    yield "new keys of timestamp and snapshot alone", recovers("timestamp", "snapshot")

    def expired(role: str) -> History:
        def case() -> Iterator[Step]:
            repository, trust = first()
            past = time_of(NOW - 1).strftime("%Y-%m-%dT%H:%M:%SZ")
            yield trust, changed(repository, repository.publish(b"two"), role, expires=past), False

        return case

    for role in ("timestamp", "snapshot", "targets"):
        yield f"the {role} has expired", expired(role)

    def roots_expired(*ends: float, is_taken: bool) -> History:
        def case() -> Iterator[Step]:
            repository, trust = first()
            for end in ends:
                repository.root.expires = time_of(NOW + end)
                repository.rotate("timestamp")
            yield trust, repository.publish(b"two"), is_taken

        return case

    yield "the newest root has expired", roots_expired(1e8, -1, is_taken=False)
    yield "a root in between has expired", roots_expired(-1, 1e8, is_taken=True)

    def plain(is_taken: bool, change: Callable[[Repository, Files], Files]) -> History:
        def case() -> Iterator[Step]:
            repository, trust = first()
            yield trust, change(repository, repository.publish(b"two")), is_taken

        return case

    yield "an ordinary update", plain(True, lambda _, files: files)
    yield "fields that nobody knows", plain(True, lambda r, f: changed(r, f, "targets", custom={"a": [1, None]}))
    yield "the targets are not those named", plain(False, lambda r, f: changed(r, f, "targets", named=False, x=1))
    yield "the snapshot is not that named", plain(False, lambda r, f: changed(r, f, "snapshot", named=False, x=1))
    yield (
        "the snapshot has another version",
        plain(False, lambda r, f: changed(r, f, "timestamp", meta={"snapshot.json": {"version": 9}})),
    )
    yield (
        "the targets have another version",
        plain(False, lambda r, f: changed(r, f, "snapshot", meta={"targets.json": {"version": 9}})),
    )
    yield "a file without a signature", plain(False, lambda r, f: changed(r, f, "targets", by=[]))
    yield "a file of another role", plain(False, lambda _, f: f._replace(targets=f.snapshot))

    def same_version() -> Iterator[Step]:
        """The trusted timestamp stays, whatever another one of its version says, and so does what it names."""
        repository, trust = first()
        files = repository.files(1, b"one")
        other = changed(repository, files, "timestamp", meta={"snapshot.json": {"version": 100}})
        assert trust.timestamp is not None
        assert trust.snapshot is not None
        assert trust.targets is not None
        kept = Files([], other.timestamp, trust.snapshot.data, trust.targets.data)
        yield trust, kept, True

    yield "another timestamp of the same version", same_version

    def odd_root(**values: Any) -> History:
        def case() -> Iterator[Step]:
            repository, trust = first()
            repository.rotate("timestamp")
            part = json.loads(repository.roots[-1])["signed"]
            for key in part["keys"].values():
                key |= values
            part |= {"custom-field": "value"}
            repository.roots[-1] = signed_again(repository.roots[-1], *repository.root_keys[:2], signed=part)
            yield trust, repository.publish(b"two"), True

        return case

    yield "keys with unknown fields", odd_root(**{"extra-field": {"a": 1}})
    yield "keys that name another hash", odd_root(keyid_hash_algorithms=["md5"])


CASES: dict[str, History] = {
    **{f"root: {name}": root_case(*case) for name, case in ROOTS.items()},
    **{f"{role}: {n}": role_case(role, *c) for role in ("timestamp", "snapshot", "targets") for n, c in OTHERS.items()},
    **dict(histories()),
}


def bad_first_roots() -> Iterator[bytes]:
    """First roots that are none: one without a version, one with broken signatures."""
    root = json.loads(Repository().roots[0])
    unversioned = {**root, "signed": {k: v for k, v in root["signed"].items() if k != "version"}}
    broken = {**root, "signatures": [{**s, "sig": "00" * 64} for s in root["signatures"]]}
    yield from (json.dumps(data).encode() for data in (unversioned, broken))


def is_taken_by_device(take: Callable[[], Trust]) -> bool:
    try:
        return bool(take())
    except TrustError:
        return False


def verdicts(case: str | bytes) -> list[tuple[bool, ...]]:
    """Of each update in a case: whether it must be taken, whether the device takes it, whether python-tuf does.

    Of a first root that is none: that it must not be taken, and whether the device takes it.
    """
    if isinstance(case, bytes):
        return [(False, is_taken_by_device(lambda: first_trust(case)))]
    return [
        (must, is_taken_by_device(lambda t=trust, f=files: updated(t, *f, now=NOW)), tuf_accepts(trust, files))  # type: ignore[misc]
        for trust, files, must in CASES[case]()
    ]


def cases(_: random.Random) -> Generator[str | bytes, None, None]:
    """All of them, once."""
    yield from CASES
    yield from bad_first_roots()


SUITE = "cases of TUF's conformance suite, beside python-tuf"
conformance = Attack(
    SUITE, cases, verdicts,
    lambda _, found: Outcome(SUITE, len(found) - 1, 0, sum(len(set(verdict)) > 1 for verdict in found)),
    is_timed=False, least=inf,
)  # fmt: skip
attack = each(mutants, conformance)
