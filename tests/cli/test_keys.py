# SPDX-License-Identifier: Apache-2.0
"""hardcase keys: what it makes, devices and python-tuf take; whatever interrupts it, the folder stays one they take."""

from __future__ import annotations

import json
import shutil
import stat
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from tuf.ngclient._internal.trusted_metadata_set import TrustedMetadataSet
from tuf.ngclient.config import EnvelopeType

from hardcase.cli import main
from hardcase.keys import repository
from hardcase_edge.bundle.ed25519 import is_signed
from hardcase_edge.cli import main as edge_main
from hardcase_edge.errors import InputError, TrustError
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import begin_trust, receive
from hardcase_edge.fleet.store.trust import trust_from
from tests.helpers.edge.device import make_bundle_bytes

Keys = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal signature is checked once."""
    monkeypatch.setattr("hardcase_edge.fleet.store.metadata.is_signed", lru_cache(10_000)(is_signed))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Keys:
    """``hardcase keys`` in a folder of its own: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        status = main(["keys", *map(str, words)])
        return status, *capfd.readouterr()

    return run


def bundle(name: str) -> Path:
    path = Path(f"{name}.hcb")
    path.write_bytes(make_bundle_bytes(name=name))
    return path


def put(store: str, bundle: Path, folder: str = "fleet") -> tuple[int, int]:
    """A device takes the folder's newest metadata and the bundle; its versions of root and targets."""
    receive(Store(store), bundle, metadata=folder)
    data = Store(store).trust()
    assert data is not None
    trust = trust_from(data)
    assert trust.targets is not None
    return trust.root.version, trust.targets.version


def python_tuf_takes(folder: str = "fleet") -> bool:
    """Whether python-tuf's client, which knows the first root alone, takes the newest files of a folder."""
    read = {p.name: p.read_bytes() for p in Path(folder).glob("*.json")}
    trusted = TrustedMetadataSet(read["1.root.json"], EnvelopeType.METADATA)
    for version in range(2, 99):
        if f"{version}.root.json" in read:
            trusted.update_root(read[f"{version}.root.json"])
    trusted.update_timestamp(read["timestamp.json"])
    trusted.update_snapshot(read[f"{trusted.timestamp.snapshot_meta.version}.snapshot.json"])
    trusted.update_targets(read[f"{trusted.snapshot.meta['targets.json'].version}.targets.json"])
    return True


def test_a_device_takes_what_init_and_sign_make(keys: Keys, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, errors = keys("init", "fleet")
    assert (status, errors) == (0, "")
    assert out.startswith("fleet: root 1, targets 1 with 0 bundles, until 20")
    first, other = bundle("first"), bundle("other")
    report = json.loads(keys("sign", "fleet", first, "--json")[1])
    assert (report["root"], report["targets"], report["bundles"]) == (1, 2, ["first.hcb"])
    assert edge_main(["store", "trust", "store", "fleet/1.root.json"]) == 0
    assert edge_main(["store", "put", "store", str(first), "--metadata", "fleet"]) == 0
    assert edge_main(["store", "put", "store", str(other), "--metadata", "fleet"]) == 2
    assert "targets 2 do not list the bundle" in capfd.readouterr().err
    data = Store("store").trust()
    assert data is not None
    assert abs(trust_from(data).floor - time.time()) < 100  # the time at which it was signed
    assert python_tuf_takes()


def test_a_list_grows_and_only_makes_a_new_one(keys: Keys) -> None:
    keys("init", "fleet")
    begin_trust(Store("store"), "fleet/1.root.json")
    one, two, three = map(bundle, ("one", "two", "three"))
    keys("sign", "fleet", one)
    keys("sign", "fleet", two)
    assert put("store", one) == put("store", two) == (1, 3)
    assert json.loads(keys("sign", "fleet", three, "--only", "--json")[1])["bundles"] == ["three.hcb"]
    with pytest.raises(TrustError, match="targets 4 do not list"):
        put("store", one)
    assert put("store", three) == (1, 4)
    assert json.loads(keys("renew", "fleet", "--expires", "1y", "--json")[1])["bundles"] == ["three.hcb"]
    files = sorted(path.name for path in Path("fleet").iterdir())
    assert files == [f"{n}.{r}.json" for n, r in
                     ((1, "root"), (4, "snapshot"), (4, "targets"), (5, "snapshot"), (5, "targets"))] + [
        "timestamp.json"
    ]  # fmt: skip


def test_private_keys_are_their_owners_alone_and_lie_where_they_should(keys: Keys) -> None:
    media = [word for k in "abc" for word in ("--root-keys", f"medium/{k}")]
    assert keys("init", "fleet", *media)[0] == 0
    secrets = [*Path("fleet-keys").iterdir(), *Path("medium").glob("*/*")]
    assert sorted(p.name.partition("-")[0] for p in secrets) == ["root"] * 3 + ["snapshot", "targets", "timestamp"]
    assert {stat.S_IMODE(p.stat().st_mode) for p in secrets} == {0o600}
    assert {stat.S_IMODE(Path(f"medium/{k}").stat().st_mode) for k in "abc"} == {0o700}
    assert [len([*Path(f"medium/{k}").iterdir()]) for k in "abc"] == [1, 1, 1]
    assert not [p for p in Path("fleet").iterdir() if b"PRIVATE" in p.read_bytes()]
    shutil.rmtree("medium")  # in the safe
    assert keys("sign", "fleet", bundle("one"))[0] == 0
    (targets,) = Path("fleet-keys").glob("targets-*")
    targets.chmod(0o640)
    assert keys("renew", "fleet")[::2] == (
        2,
        f"hardcase keys: private key {targets} can be read by other users; keep it to yourself: chmod 600 {targets}\n",
    )


@pytest.mark.parametrize("roles", [["root"], ["timestamp"], ["targets", "snapshot", "timestamp"], ["root", "targets"]])
def test_new_keys_are_signed_by_the_old_and_end_the_old(keys: Keys, roles: list[str]) -> None:
    keys("init", "fleet")
    one = bundle("one")
    keys("sign", "fleet", one)
    begin_trust(Store("store"), "fleet/1.root.json")
    put("store", one)
    shutil.copytree("fleet-keys", "stolen")
    shutil.copytree("fleet", "forged")
    for path in Path("fleet-keys").glob("root-*"):
        path.unlink()  # one of three is lost
        break
    assert keys("rotate", "fleet", *[word for role in roles for word in ("--role", role)])[::2] == (0, "")
    assert put("store", one) == (2, 3)
    begin_trust(Store("late"), "fleet/1.root.json")  # a device that has seen nothing since
    assert put("late", one) == (2, 3)
    assert python_tuf_takes()
    now, then = ({p.name for p in Path(f).iterdir()} for f in ("fleet-keys", "stolen"))
    assert not [name for name in now & then if name.partition("-")[0] in roles]
    keys("sign", "forged", "--private", "stolen", bundle("evil"))  # the thief holds the old keys, and no new root
    keys("renew", "forged", "--private", "stolen")
    shutil.copy("fleet/2.root.json", "forged")
    if roles != ["root"]:
        with pytest.raises(TrustError, match="0 trusted keys have signed"):
            put("store", Path("evil.hcb"), "forged")


def test_one_root_key_of_three_is_too_few(keys: Keys) -> None:
    keys("init", "fleet")
    for path in [*Path("fleet-keys").glob("root-*")][:2]:
        path.unlink()
    before = {p: p.read_bytes() for f in ("fleet", "fleet-keys") for p in Path(f).iterdir()}
    assert keys("rotate", "fleet")[::2] == (
        2, "hardcase keys: fleet-keys has 1 of the 3 root keys, and 2 must sign; name their folder with --root-keys\n"
    )  # fmt: skip
    assert {p: p.read_bytes() for f in ("fleet", "fleet-keys") for p in Path(f).iterdir()} == before


def until(at: int, write: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
    """A routine that writes, and from this write on fails."""
    times = iter(range(at))

    def fail_or_write(path: Path, data: bytes) -> None:
        if next(times, None) is None:
            raise InputError("the disk is full")
        write(path, data)

    return fail_or_write


@pytest.mark.parametrize(
    ("n_writes", "words"),
    [(3, ("sign", "fleet", "one.hcb")), (4, ("rotate", "fleet", "--role", "root", "--role", "targets"))],
)
def test_a_run_that_ends_at_any_write_leaves_what_devices_take(
    keys: Keys, monkeypatch: pytest.MonkeyPatch, n_writes: int, words: tuple[str, ...]
) -> None:
    one = bundle("one")
    keys("init", "begun")
    keys("sign", "begun", one)
    real, statuses = repository.write_whole, []
    for at in range(n_writes + 1):
        for name in ("fleet", "fleet-keys", "store"):
            shutil.rmtree(name, ignore_errors=True)
        shutil.copytree("begun", "fleet")
        shutil.copytree("begun-keys", "fleet-keys")
        monkeypatch.setattr(repository, "write_whole", until(at, real))
        status = keys(*words)[0]
        monkeypatch.setattr(repository, "write_whole", real)
        begin_trust(Store("store"), "fleet/1.root.json")
        put("store", one)
        assert keys(*words)[0] == 0  # the keys of whatever counts are still here
        put("store", one)
        statuses.append(status)
    assert statuses == [2] * n_writes + [0]


def test_what_somebody_else_has_changed_is_not_signed_again(keys: Keys) -> None:
    keys("init", "fleet")
    path = Path("fleet/1.targets.json")
    entry = b'{"evil.hcb":{"hashes":{"sha256":"' + b"0" * 64 + b'"},"length":1}}'
    assert path.read_bytes().count(b'"targets":{}') == 1
    path.write_bytes(path.read_bytes().replace(b'"targets":{}', b'"targets":' + entry))
    for command in ("renew", "rotate"):
        status, _, errors = keys(command, "fleet")
        assert (status, errors.count("\n")) == (2, 1)
        assert errors.startswith("hardcase keys: the metadata in fleet were changed, so nothing is signed: ")


def test_metadata_that_have_expired_are_signed_again(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys("init", "fleet", "--expires", "1h")
    later = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    one = bundle("one")
    assert keys("sign", "fleet", one)[0] == 0
    begin_trust(Store("store"), "fleet/1.root.json")
    assert put("store", one) == (1, 2)


def test_a_time_to_come_that_was_signed_by_mistake_goes_with_its_key(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, one = time.time(), bundle("one")
    keys("init", "fleet")
    begin_trust(Store("store"), "fleet/1.root.json")
    monkeypatch.setattr(time, "time", lambda: now + 3 * 365 * 86_400)
    keys("sign", "fleet", one)
    monkeypatch.setattr(time, "time", lambda: now)
    put("store", one)
    for words in (("renew", "fleet"), ("rotate", "fleet", "--role", "targets")):
        status, _, errors = keys(*words)
        assert (status, errors.count("\n")) == (2, 1)
        assert "later than this machine's clock; set the clock" in errors
    assert keys("rotate", "fleet", "--role", "timestamp")[0] == 0
    assert put("store", one) == (2, 3)
    data = Store("store").trust()
    assert data is not None
    assert trust_from(data).floor == int(now)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("init", "fleet", "--threshold", 4), "4 of 3 root keys cannot sign"),
        (("init", "fleet", "--keys", 17), "2 of 17 root keys cannot sign; use 1 to 16 keys"),
        (("init", "no/fleet"), "no is not a folder"),
        (("init", "fleet", "--private", "fleet/keys"), "private keys in fleet/keys would go to every device"),
        (("init", "there"), "there holds a repository"),
        (("renew", "fleet"), "fleet holds no repository"),
        (("rotate", "fleet"), "fleet holds no repository"),
        (("sign", "there", "broken.hcb"), "bundle"),
        (("sign", "there", "none.hcb"), "none.hcb cannot be read"),
        (("renew", "there", "--private", "elsewhere"), "elsewhere has 0 of the 1 targets keys, and 1 must sign"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_and_nothing_is_written(keys: Keys, words: tuple[str, ...], told: str) -> None:
    keys("init", "there")
    Path("broken.hcb").write_bytes(b"x" * 100)
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    status, out, errors = keys(*words)
    assert (status, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("hardcase keys: ")
    assert told in errors
    assert {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()} == before


def test_a_folder_may_be_the_one_that_it_is_called_in(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "our fleet").mkdir()
    monkeypatch.chdir(tmp_path / "our fleet")
    assert keys("init", ".")[0] == 0
    assert sorted(p.name.partition("-")[0] for p in (tmp_path / "our fleet-keys").iterdir())[0] == "root"
    monkeypatch.chdir(tmp_path)
    status, out, _ = keys("renew", "our fleet/")
    assert (status, "store put STORE BUNDLE --metadata 'our fleet'" in out) == (0, True)
    status, _, errors = keys("init", "/")
    assert (status, errors) == (2, "hardcase keys: / is no folder of its own; name another\n")


def test_a_length_of_time_is_a_number_and_a_unit(keys: Keys, capfd: pytest.CaptureFixture[str]) -> None:
    for text in ("30", "d", "0d", "-1d", "1m", "101y", "1.5d", "٣d"):
        with pytest.raises(SystemExit) as ended:
            keys("init", "fleet", f"--expires={text}")
        assert ended.value.code == 2
        assert "is not a length of time; use 12h, 30d, 8w or 1y" in capfd.readouterr().err


def test_without_tuf_the_extra_is_named(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("hardcase.keys.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("hardcase.keys.repository", raising=False)
    monkeypatch.setitem(sys.modules, "tuf.api.metadata", None)
    assert keys("init", "fleet")[::2] == (
        2,
        "hardcase keys: the tuf package is missing; pip install 'hardcase[keys]'\n",
    )


def test_too_many_bundles_for_a_device_are_refused_before_they_are_written(keys: Keys) -> None:
    keys("init", "fleet")
    places = repository.Places(Path("fleet"), Path("fleet-keys"), (Path("fleet-keys"),))
    lives = repository.Lives(86_400, 0)
    before = {p: p.read_bytes() for p in Path("fleet").iterdir()}
    many = {f"{k:060}.hcb": b"" for k in range(400)}
    with pytest.raises(TrustError, match="a device would refuse what is signed here: the targets metadata has"):
        repository.sign(places, many, lives, int(time.time()))
    assert {p: p.read_bytes() for p in Path("fleet").iterdir()} == before
