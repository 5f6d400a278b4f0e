# SPDX-License-Identifier: Apache-2.0
"""``hardcase ca`` from the command line: files and their modes, and one line for everything that is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hardcase.cli import main


@pytest.fixture
def authority(tmp_path, capsys):
    assert main(["ca", "init", str(tmp_path / "authority")]) == 0
    capsys.readouterr()
    return tmp_path / "authority"


def modes(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): stat.S_IMODE(p.stat().st_mode) for p in sorted(folder.rglob("*"))}


def test_keys_are_in_a_folder_of_their_own_which_their_owner_alone_can_read(authority, tmp_path):
    assert main(["ca", "server", str(authority), "broker.example", "192.0.2.7"]) == 0
    assert main(["ca", "device", str(authority), "pi-1", "--out", str(tmp_path / "pi-1")]) == 0
    assert modes(authority) == {
        "issued.jsonl": 0o600,
        "private": 0o700,
        "private/claims.key": 0o600,
        "private/devices.key": 0o600,
        "public": 0o755,
        "public/claims.pem": 0o644,
        "public/crl.pem": 0o644,
        "public/devices.pem": 0o644,
        "server": 0o755,
        "server/cert.pem": 0o644,
        "server/key.pem": 0o600,
    }
    own = modes(tmp_path / "pi-1")
    assert own.pop("current") == 0o644
    assert own == {"0001": 0o700, "0001/ca.pem": 0o600, "0001/cert.pem": 0o600, "0001/key.pem": 0o600}


def test_the_list_says_what_was_issued_and_what_became_of_it(authority, tmp_path, capsys):
    assert main(["ca", "device", str(authority), "pi-1", "--out", str(tmp_path / "pi-1")]) == 0
    words = ["--uses", "3", "--device", "pi-9", "--broker", "mqtts://broker.example:8885"]
    assert main(["ca", "claim", str(authority), "--out", str(tmp_path / "claim"), *words]) == 0
    assert main(["ca", "revoke", str(authority), "pi-1"]) == 0
    capsys.readouterr()
    assert main(["ca", "list", str(authority), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["state"], row["note"]) for row in rows] == [
        ("device", "revoked", ""),
        ("claim", "valid", " (0 of 3 used, for pi-9)"),
    ]
    assert main(["ca", "list", str(authority)]) == 0
    assert capsys.readouterr().out.startswith("device  revoked ")
    assert (tmp_path / "claim" / "claim" / "broker").read_text() == "mqtts://broker.example:8885\n"


def test_a_new_server_certificate_keeps_the_key(authority):
    assert main(["ca", "server", str(authority), "broker.example"]) == 0
    key, cert = (authority / "server" / "key.pem").read_bytes(), (authority / "server" / "cert.pem").read_bytes()
    assert main(["ca", "server", str(authority), "broker.example", "other.example"]) == 0
    assert (authority / "server" / "key.pem").read_bytes() == key
    assert (authority / "server" / "cert.pem").read_bytes() != cert


def refused(capsys, *words: str) -> str:
    capsys.readouterr()
    assert main(["ca", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def test_what_cannot_be_done_is_refused_in_one_line(authority, tmp_path, capsys):
    where, out = str(authority), str(tmp_path / "out")
    assert main(["ca", "device", where, "pi-1", "--out", str(tmp_path / "pi-1")]) == 0
    before = (authority / "issued.jsonl").read_bytes()
    assert "an authority is never overwritten" in refused(capsys, "init", where)
    assert "pi-1 has a device's certificate until" in refused(capsys, "device", where, "pi-1", "--out", out)
    assert "an identity is never overwritten" in refused(
        capsys, "device", where, "pi-2", "--out", str(tmp_path / "pi-1")
    )
    assert "begins like the name of a claim" in refused(capsys, "device", where, "claim-1", "--out", out)
    assert "not 1 to 64 letters" in refused(capsys, "device", where, "../x", "--out", out)
    assert "not 1 to 64 letters" in refused(capsys, "claim", where, "--device", "a/b", "--out", out)
    assert "is not encrypted" in refused(capsys, "claim", where, "--broker", "mqtt://h", "--out", out)
    assert "nothing was issued to 'pi-7'" in refused(capsys, "revoke", where, "pi-7")
    assert "is not ASCII" in refused(capsys, "server", where, "bröker")
    nowhere = str(tmp_path / "pi-1" / "current" / "x")  # below a file
    assert "cannot be written: Not a directory" in refused(capsys, "device", where, "pi-2", "--out", nowhere)
    assert "cannot be written: Not a directory" in refused(capsys, "claim", where, "--out", nowhere)
    assert "hardcase ca init" in refused(capsys, "list", str(tmp_path / "none"))
    assert (authority / "issued.jsonl").read_bytes() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_keys_that_others_can_read_are_refused(authority, capsys, mode):
    (authority / "private" / "devices.key").chmod(mode)
    assert "can be read by other users; keep it to yourself: chmod 600" in refused(capsys, "list", str(authority))


def test_an_authority_whose_key_and_certificate_differ_is_refused(authority, capsys):
    (authority / "public" / "devices.pem").write_bytes((authority / "public" / "claims.pem").read_bytes())
    assert "is not that of its certificate" in refused(capsys, "list", str(authority))
    (authority / "private" / "devices.key").write_bytes(b"no key")
    assert "not readable PEM" in refused(capsys, "list", str(authority))


def test_settings_for_mutual_tls_need_a_certificate_for_the_broker(authority, tmp_path, capsys):
    words = ["cloud", "acl", "--broker", "mosquitto", "--authority", str(authority), "--out", str(tmp_path / "acl")]
    assert main(words) == 2
    assert "has no certificate for a broker" in capsys.readouterr().err
    assert main(["ca", "server", str(authority), "localhost"]) == 0
    assert main([*words, "--watcher", "eye"]) == 0
    conf = (tmp_path / "acl" / "hardcase.conf").read_text()
    for line in ("require_certificate true", "use_identity_as_username true", f"crlfile {authority}/public/crl.pem"):
        assert conf.count(line) == 2
    passwords = (tmp_path / "acl" / "hardcase.passwords").read_text()
    assert main([*words, "--watcher", "eye"]) == 0
    assert (tmp_path / "acl" / "hardcase.passwords").read_text() == passwords
    assert [line.split()[0] for line in passwords.splitlines()[1:]] == ["worker", "enroller", "eye"]
    assert main([*words, "--devices", "x"]) == 2
