# SPDX-License-Identifier: Apache-2.0
"""Trust: the device takes what python-tuf makes, and refuses what python-tuf's own client refuses."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner

from hardcase_edge.errors import TrustError
from hardcase_edge.fleet.store.metadata import MAX_METADATA_BYTES, Metadata, canonical, parse, seconds_of
from hardcase_edge.fleet.store.trust import MAX_ROOTS, Trust, first_trust, release_of, trust_from, updated
from tests.helpers.attack.metadata import CASES, bad_first_roots, beyond_tuf, mutants, verdicts
from tests.helpers.edge.repository import NOW, Files, Repository, signed_again, time_of, tuf_accepts


@pytest.fixture
def repository() -> Repository:
    return Repository()


def trusted(repository: Repository) -> Trust:
    return first_trust(repository.roots[0])


def take(trust: Trust, files: Files, now: float = NOW) -> Trust:
    """The updated trust, if python-tuf takes the same update; else the refusal that both agree in."""
    if tuf_accepts(trust, files, now):
        return updated(trust, *files, now=now)
    with pytest.raises(TrustError) as refusal:
        updated(trust, *files, now=now)
    raise refusal.value


def test_an_update_allows_the_bundles_that_it_lists_and_no_other(repository: Repository) -> None:
    with pytest.raises(TrustError, match="no targets yet"):
        release_of(trusted(repository), b"one", now=NOW)
    trust = take(trusted(repository), repository.publish(b"one", b"two"))
    assert release_of(trust, b"one", now=NOW) == release_of(trust, b"two", now=NOW) == (1, 1)
    with pytest.raises(TrustError, match="targets 1 do not list the bundle"):
        release_of(trust, b"three", now=NOW)
    trust = take(trust, repository.publish(b"three"))
    assert release_of(trust, b"three", now=NOW) == (1, 2)
    with pytest.raises(TrustError, match="targets 2 do not list"):
        release_of(trust, b"one", now=NOW)


def test_versions_never_go_down(repository: Repository) -> None:
    old, new = repository.publish(b"old"), repository.publish(b"new")
    trust = take(trusted(repository), new)
    with pytest.raises(TrustError, match="timestamp 1 is older than 2"):
        take(trust, old)
    assert take(trust, new) == trust  # the same update once more changes nothing
    newest = repository.publish(b"newest")
    with pytest.raises(TrustError, match="snapshot metadata are not those"):
        take(trust, newest._replace(snapshot=old.snapshot, targets=old.targets))
    with pytest.raises(TrustError, match="targets metadata are not those"):
        take(trust, newest._replace(targets=new.targets))
    lower = repository.files(2, b"old")
    timestamp = signed_again(lower.timestamp, repository.keys["timestamp"], version=9)
    snapshot = json.loads(timestamp)["signed"]["meta"]["snapshot.json"] | {"version": 1}
    timestamp = signed_again(timestamp, repository.keys["timestamp"], meta={"snapshot.json": snapshot})
    with pytest.raises(TrustError, match="snapshot 1 is older than 2"):
        take(trust, lower._replace(timestamp=timestamp))


def test_two_of_three_root_keys_must_sign(repository: Repository) -> None:
    one, two, three = repository.root_keys
    for signers in ((one, two), (three, one), (one, two, three)):
        first_trust(repository.sign(repository.root, *signers))
    for signers in ((one,), (three,), ()):
        with pytest.raises(TrustError, match=f"{len(signers)} trusted keys have signed the root metadata, 2 must"):
            first_trust(repository.sign(repository.root, *signers))
    with pytest.raises(TrustError, match="0 trusted keys"):
        first_trust(repository.sign(repository.root, *[CryptoSigner.generate_ed25519() for _ in range(3)]))


@pytest.mark.parametrize("broken", ["", "x", "abc", "00" * 64, "00" * 63])
def test_a_broken_signature_beside_enough_good_ones_does_not_count_and_does_no_harm(
    repository: Repository, broken: str
) -> None:
    trust = trusted(repository)
    repository.rotate()
    files = repository.publish(b"one")
    root = json.loads(files.roots[0])
    root["signatures"].append({"keyid": repository.root_keys[2].public_key.keyid, "sig": broken})
    assert take(trust, files._replace(roots=[json.dumps(root).encode()])).root.version == 2
    del root["signatures"][0]
    with pytest.raises(TrustError, match="1 trusted keys have signed"):
        take(trust, files._replace(roots=[json.dumps(root).encode()]))


def test_a_key_under_two_names_counts_once(repository: Repository) -> None:
    root = json.loads(repository.roots[0])
    first = root["signatures"][0]
    name = first["keyid"]
    root["signed"]["keys"]["twin"] = root["signed"]["keys"][name]
    root["signed"]["roles"]["root"]["keyids"] = [name, "twin"]
    signature = repository.root_keys[0].sign(canonical(root["signed"])).signature
    root["signatures"] = [{"keyid": k, "sig": signature} for k in (name, "twin")]
    with pytest.raises(TrustError, match="1 trusted keys have signed"):
        first_trust(json.dumps(root).encode())


def test_the_key_of_another_role_signs_nothing(repository: Repository) -> None:
    files = repository.publish(b"one")
    forged = signed_again(files.timestamp, repository.keys["targets"])
    with pytest.raises(TrustError, match="0 trusted keys have signed the timestamp"):
        take(trusted(repository), files._replace(timestamp=forged))


def test_roots_follow_one_another_without_a_gap(repository: Repository) -> None:
    trust = trusted(repository)
    repository.rotate()
    repository.rotate()
    files = repository.publish(b"one")
    for roots in (files.roots[1:], files.roots[::-1], [*repository.roots]):
        with pytest.raises(TrustError, match=r"root \d does not follow root 1"):
            take(trust, files._replace(roots=roots))
    assert take(take(trust, files), files._replace(roots=[])).root.version == 3
    with pytest.raises(TrustError, match="65 roots, more than 64"):
        updated(trust, *files._replace(roots=files.roots * 33)._replace(roots=[b""] * (MAX_ROOTS + 1)), now=NOW)


def test_what_has_expired_is_refused_by_the_clock_or_by_the_newest_signed_time(repository: Repository) -> None:
    trust, files = trusted(repository), repository.publish(b"one")
    end = repository.timestamp_expires
    assert take(trust, files, now=end - 1)
    with pytest.raises(TrustError, match=r"timestamp 1 expired at 2030-01-12"):
        take(trust, files, now=end)
    assert release_of(take(trust, files, now=0), b"one", now=0) == (1, 1)  # a device without a clock
    repository.issued, repository.timestamp_expires = end, end + 1e6
    later = take(trust, repository.publish(b"two"), now=0)
    assert later.floor == end
    repository.timestamp_expires = end - 1
    repository.issued = None
    with pytest.raises(TrustError, match="timestamp 3 expired"):
        take(later, repository.publish(b"three"), now=0)
    with pytest.raises(TrustError, match="root 1 expired"):
        take(trust, files, now=NOW + 1e9)
    with pytest.raises(TrustError, match="expired"):
        release_of(later, b"two", now=NOW + 1e9)


def test_a_snapshot_that_drops_a_file_or_names_an_older_one_is_refused(repository: Repository) -> None:
    trust = take(trusted(repository), repository.publish(b"one"))
    files = repository.publish(b"two")
    entry = json.loads(files.snapshot)["signed"]["meta"]
    more = signed_again(files.snapshot, repository.keys["snapshot"], meta=entry | {"more.json": {"version": 3}})
    named = {"snapshot.json": {"version": 2}}
    timestamp = signed_again(files.timestamp, repository.keys["timestamp"], meta=named)
    trust = take(trust, files._replace(snapshot=more, timestamp=timestamp))
    files = repository.publish(b"three")
    with pytest.raises(TrustError, match=r"snapshot 3 no longer names 'more.json'"):
        take(trust, files)


def test_the_trust_file_holds_all_of_it(repository: Repository) -> None:
    repository.issued = NOW - 5
    trust = take(trusted(repository), repository.publish(b"one"))
    for each in (trusted(repository), trust):
        assert trust_from(each.to_bytes()) == each
    data = trust.to_bytes()
    for wrong in (b"", b"[]", b"{}", data[:-1], data.replace(b'"floor": ', b'"flaw": '), b"[" * 100_000):
        with pytest.raises(TrustError):
            trust_from(wrong)


def test_a_trust_file_with_somebody_elses_targets_is_refused(repository: Repository) -> None:
    trust, other = (take(trusted(r), r.publish(b"one")) for r in (repository, Repository()))
    mixed = Trust(trust.root, trust.timestamp, trust.snapshot, other.targets)
    with pytest.raises(TrustError, match="0 trusted keys have signed the targets"):
        trust_from(mixed.to_bytes())


# ---------------------------------------------------------------- hostile files


def test_a_file_that_is_too_long_too_deep_or_not_json_is_one_line() -> None:
    deep = b'{"signatures":[],"signed":' + b'{"a":' * 50_000
    lone = b'{"signatures":[],"signed":{"_type":"root","x":"\\ud800"}}'
    for data in (b"", b"\xff", b"null", b"[]", b"{}", b" " * (MAX_METADATA_BYTES + 1), deep[:MAX_METADATA_BYTES], lone):
        with pytest.raises(TrustError) as refusal:
            parse(data, "root")
        assert "\n" not in str(refusal.value)
        assert len(str(refusal.value)) < 400


def test_the_device_and_python_tuf_accept_the_same_mutated_files() -> None:
    outcome, accepted, _ = mutants(60.0, 3, n=100)
    assert (outcome.inputs, outcome.crashes, outcome.wrong) == (100, 0, 0), outcome
    assert 5 < accepted.inputs < 100


def test_a_device_that_does_not_count_signatures_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardcase_edge.fleet.store.trust.check_signatures", lambda metadata, root: None)
    assert mutants(60.0, 3, n=100)[0].wrong > 0


def test_a_device_that_refuses_what_it_should_take_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parses = iter(range(8))  # enough for what the mutations begin with

    def parse_a_few(data: bytes, role: str) -> Metadata:
        if next(parses, None) is None:
            raise TrustError("no")
        return parse(data, role)

    monkeypatch.setattr("hardcase_edge.fleet.store.trust.parse", parse_a_few)
    assert mutants(60.0, 3, n=100)[0].wrong > 0


@pytest.mark.parametrize(
    ("role", "old", "new"),
    [
        ("timestamp", b'"version":2}', b'"version":9007199254740992}'),
        ("timestamp", b'"version":2}', b'"version":2,"version":2}'),
        ("timestamp", b'"spec_version":"1.0.31"', b'"spec_version":null'),
        ("timestamp", b'"meta":{', b'"meta":{"twin.json":{"version":1},'),
        ("timestamp", b'"expires":"2030-01', b'"expires":"2030-1'),
        ("root", b'"roles":{', b'"roles":{"twin":{"keyids":[],"threshold":1},'),
        ("root", b'"keys":{', b'"keys":{"twin":{"keytype":"ed25519","keyval":{"public":"x"},"scheme":"ed25519"},'),
        ("root", b'"consistent_snapshot":false', b'"consistent_snapshot":null'),
    ],
)
def test_each_rule_that_only_the_device_has_refuses_its_own_violation(
    repository: Repository, role: str, old: bytes, new: bytes
) -> None:
    trust = take(trusted(repository), repository.publish(b"one"))
    repository.rotate()
    files = repository.publish(b"two")
    assert updated(trust, *files, now=NOW)
    compact = json.dumps(json.loads(files.roots[0] if role == "root" else getattr(files, role))["signed"],
                         separators=(",", ":")).encode()  # fmt: skip
    assert compact.count(old) >= 1
    part = new.join(compact.rsplit(old, 1))
    assert beyond_tuf(b'{"signed":' + part + b"}", role)
    with pytest.raises(TrustError, match="cannot be used"):
        parse(b'{"signatures":[],"signed":' + part + b"}", role)


# ---------------------------------------------------------------- canonical JSON and time


@pytest.mark.parametrize(
    "value", [{}, [], "", '"\\\n\x00é', {"é": 1, "e": 2, "z": [None, False, -3]}, [[{"a": "\x7f"}]]]
)
def test_canonical_json_is_securesystemslibs(value: Any) -> None:
    from securesystemslib.formats import encode_canonical

    assert canonical(value).decode() == encode_canonical(value)


def test_times_are_the_librarys() -> None:
    rng = random.Random(2)
    for seconds in [0, *(rng.randrange(2**37) for _ in range(300))]:
        assert seconds_of(time_of(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")) == seconds
    for text in ("2030-02-29T00:00:00Z", "2030-13-01T00:00:00Z", "2030-01-01T24:00:00Z", "2030-01-01", "", None, 5,
                 "1969-12-31T23:59:59Z", "2030-01-01T00:00:00Z\n", "2030-00-01T00:00:00Z",
                 "٢٠٣٠-01-01T00:00:00Z"):  # fmt: skip
        with pytest.raises(ValueError):
            seconds_of(text)


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_tufs_conformance_suite_ends_as_the_suite_asks(name: str) -> None:
    for must, device, python_tuf in verdicts(name):
        assert device == python_tuf == must


def test_a_first_root_that_is_none_is_not_believed() -> None:
    assert [verdicts(root) for root in bad_first_roots()] == [[(False, False)]] * 2
