# SPDX-License-Identifier: Apache-2.0
"""``hardcase flash ssh://`` to a real sshd on loopback, into a root folder there."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardcase import cli
from hardcase.flashing import target
from hardcase_edge.fleet.identity.folder import Identities
from hardcase_edge.fleet.store.folder import Store
from tests.helpers.cards import made_identity, system_tree
from tests.helpers.places import GOLDEN
from tests.helpers.tools import need, with_sbin

BUNDLE = GOLDEN / "v1.hcb"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A folder with a configuration of ssh, and a port with an sshd behind it, whose home is that folder."""
    (sshd,) = need("sshd")
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "me"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True, timeout=60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.copy(folder / "me.pub", folder / "allowed")
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    path = f"{Path(sys.executable).parent}:{with_sbin()}"
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host", "AuthorizedKeysFile": folder / "allowed",
        "PidFile": "none", "StrictModes": "no", "UsePAM": "no", "SetEnv": f"HOME={folder} PATH={path}",
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    (folder / "config").write_text(
        f"Host *\n  IdentityFile {folder / 'me'}\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder / 'known'}\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # an sshd of root wants it
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen([sshd, "-r", "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        for _ in range(1_200):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield folder, port
    finally:
        server.kill()
        server.wait()


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "can_compile", lambda: False)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = cli.main(["flash", *map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_host_is_flashed_and_verified(
    host: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, port = host
    root = system_tree(tmp_path / "root")
    identity = made_identity(tmp_path)
    capsys.readouterr()
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{root}"
    ssh = ("--ssh-config", folder / "config")
    words = (BUNDLE, url, *ssh, "--run", "--sensors thermal:", "--identity", identity, "--json")
    status, out, err = run(capsys, *words)
    assert status == 0, err
    flashed = json.loads(out)
    assert (flashed["store"], flashed["identity"], flashed["evaluator"]) == (
        "the bundle is in slot a", "put down", "python"
    )  # fmt: skip
    assert Store(root / "var/lib/hardcase").slots().a.state == "ready"
    assert Identities(root / "var/lib/hardcase/identity").current().facts.name == "pi-7"
    assert not (folder / ".hardcase-flash").exists()  # nothing of a key stays where it passed through
    status, out, err = run(capsys, "--verify", url, *ssh, "--json")
    assert status == 0, err
    told = json.loads(out)
    assert (told["first_boot"]["how"], told["store"]["runs"]) == ("ssh", "a")


def test_a_root_folder_of_a_host_that_is_no_system_is_refused_as_a_local_one_is(
    host: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, port = host
    (tmp_path / "empty").mkdir()
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{tmp_path}/empty"
    status, out, err = run(capsys, BUNDLE, url, "--ssh-config", folder / "config", "--run", "--sensors thermal:")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "has no systemd, which starts the device; name the root of a system that has" in err
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_host_that_does_not_let_us_in_is_one_line(host: tuple[Path, int], capsys: pytest.CaptureFixture[str]) -> None:
    folder, port = host
    (folder / "other").write_text(
        f"Host *\n  IdentityFile {folder / 'host'}\n  IdentitiesOnly yes\n  UserKnownHostsFile {folder / 'known'}\n"
    )
    status, out, err = run(
        capsys, BUNDLE, f"ssh://127.0.0.1:{port}/", "--ssh-config", folder / "other", "--run", "--sensors thermal:"
    )
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "Permission denied" in err
    assert "works without a password" in err


def test_a_host_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        status, _, err = run(capsys, "--verify", f"ssh://127.0.0.1:{closed.getsockname()[1]}/")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "Connection refused" in err
