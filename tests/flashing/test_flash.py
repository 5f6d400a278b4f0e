# SPDX-License-Identifier: Apache-2.0
"""``hardcase flash`` as a user runs it, on images, folders and roots; what is refused leaves a target as it was."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hardcase import cli
from hardcase.flashing import contents, kernels, target
from hardcase.flashing.volumes import open_image
from hardcase_edge.base import files as base_files
from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.signature import make_keys, sign
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.fleet.card import first_boot
from hardcase_edge.fleet.release.archive import zip_of
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.wire import facts_topic, reply_topic, status_topic
from tests.helpers.attack.flashing import damage
from tests.helpers.cards import (
    CLOUD_INIT,
    MADE_KERNEL,
    RASPBERRY_PI,
    START,
    boot_image,
    made_identity,
    plain_card,
    system_tree,
)
from tests.helpers.cloud.brokers import running_mosquitto
from tests.helpers.cloud.certificates import Authority
from tests.helpers.edge.power_cuts import read_tree
from tests.helpers.places import GOLDEN
from tests.helpers.tools import need

BUNDLE = GOLDEN / "v1.hcb"
SHA = sha256(BUNDLE.read_bytes()).hex()


@pytest.fixture
def whole_runtime() -> None:
    """The test needs the device's program and paho on the card."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Only a test of the runtime needs a runtime and kernels."""
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(target, "can_compile", lambda: True)
    monkeypatch.setattr(target, "compile_kernel", lambda name: MADE_KERNEL)
    if "whole_runtime" not in request.fixturenames:
        few = {"hardcase_edge/errors.py": b"# errors", "hardcase_edge/cli.py": b"# cli"}
        monkeypatch.setattr(contents, "runtime_files", lambda: few)
        monkeypatch.setattr(contents, "paho_files", dict)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    is_flash = words and isinstance(words[0], Path) and not any(str(w).startswith("--run") for w in words)
    status = cli.main(["flash", *map(str, words), *(["--run", "--sensors thermal:"] if is_flash else [])])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line of a refusal."""
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("hardcase flash: ")
    assert len(err.splitlines()) == 1
    return err.removeprefix("hardcase flash: ").rstrip("\n")


def folder_of(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


# ---------------------------------------------------------------- images and boot folders


@pytest.mark.usefixtures("whole_runtime")
def test_an_image_is_flashed_verified_and_put_down_at_the_first_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mcopy, fsck = need("mcopy", "fsck.vfat")
    image = boot_image(tmp_path / "pi.img", RASPBERRY_PI)
    identity = made_identity(tmp_path)
    capsys.readouterr()
    arguments = "--sensors thermal: --interval 60"
    status, out, _ = run(capsys, BUNDLE, image, "--run", arguments, "--identity", identity, "--json")
    flashed = json.loads(out)
    assert status == 0
    assert (flashed["bundle"], flashed["system"], flashed["notes"]) == (SHA, "firstrun", [])
    assert flashed["kernels"] == ["aarch64", "armv6", "x86_64"]
    whole = image.read_bytes()
    (tmp_path / "part.img").write_bytes(whole[START:])
    subprocess.run([fsck, "-n", str(tmp_path / "part.img")], check=True, capture_output=True, timeout=60)
    told = json.loads(run(capsys, "--verify", image, "--json")[1])
    assert (told["bundle"], told["first_boot"], told["identity"]) == (SHA, "has not been yet", True)
    assert told["run"] == ["--sensors", "thermal:", "--interval", "60"]
    assert image.read_bytes() == whole  # looking changes nothing

    # the first boot, as the card's own script does it, below a folder instead of "/"
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run([mcopy, "-i", f"{image}@@{START}", "-s", "::hardcase", str(tmp_path)], check=True, timeout=60)
    script = ["sh", str(tmp_path / "hardcase" / "first.sh"), "firstrun", str(root)]
    zipped, ended = tmp_path / "hardcase" / "identity.zip", tmp_path / "hardcase" / "done.txt"
    path, given = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}, zipped.read_bytes()
    subprocess.run(script, check=True, timeout=60, env=path)
    report = json.loads((root / "var/lib/hardcase/first-boot.json").read_text())
    assert (report["how"], report["store"]) == ("firstrun", "the bundle is in slot a")
    assert (report["evaluator"], report["identity"]) == ("python", "put down")  # the kernel's bytes are no kernel
    assert "was not loaded" in report["reason"]
    assert Store(root / "var/lib/hardcase").slots().a.state == "ready"
    unit = (root / "etc/systemd/system/multi-user.target.wants/hardcase-edge.service").resolve().read_text()
    assert "ExecStart=/usr/local/bin/hardcase-edge run --config /etc/hardcase/run.toml\n" in unit
    settings = tomllib.loads((root / "etc/hardcase/run.toml").read_text())
    assert settings == {"store": "/var/lib/hardcase", "sensors": ["thermal:"], "interval": 60.0}
    assert json.loads((tmp_path / "hardcase" / "done.txt").read_text()) == report
    subprocess.run(script, check=True, timeout=60)  # a second boot does nothing
    assert read_tree(root / "var/lib/hardcase/identity") == read_tree(identity)
    assert not zipped.exists()

    zipped.write_bytes(given)
    ended.unlink()
    ended.mkdir()  # in place of a power cut before the last step
    assert subprocess.run(script, check=False, timeout=60, env=path).returncode == 2
    assert not zipped.exists(), "no boot that finds its end would remove the key"
    ended.rmdir()
    subprocess.run(script, check=True, timeout=60, env=path)
    assert json.loads(ended.read_text())["identity"] == "one was there already"

    runtime = {"PYTHONPATH": str(root / "usr/local/lib/hardcase"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-P", "-m", "hardcase_edge.cli", "run", "--store", str(root / "var/lib/hardcase")]
    sensors = [word for name in load_bundle(BUNDLE).manifest.sensors for word in ("--sensors", f"{name}=none")]
    done = subprocess.run(
        [*command, *sensors, "--count", "2"], env=runtime, capture_output=True, text=True, timeout=60, check=True
    )
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("files", [RASPBERRY_PI, CLOUD_INIT], ids=["firstrun", "cloud-init"])
def test_a_mounted_boot_partition_is_flashed_and_verified(
    tmp_path: Path, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    boot = folder_of(tmp_path / "bootfs", files)
    assert run(capsys, BUNDLE, boot)[0] == 0
    status, out, _ = run(capsys, "--verify", boot)
    assert (status, SHA in out, "has not been yet" in out) == (0, True, True)


def test_a_second_flash_of_the_same_changes_nothing_and_one_of_another_runs_at_the_next_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = boot_image(tmp_path / "pi.img", CLOUD_INIT)
    run(capsys, BUNDLE, image)
    once = image.read_bytes()
    run(capsys, BUNDLE, image)
    assert image.read_bytes() == once
    with open_image(image, can_write=True) as volume:
        volume.write("hardcase/done.txt", json.dumps({"archive": sha256(archive_of(image)).hex()}).encode())
    assert json.loads(run(capsys, "--verify", image, "--json")[1])["first_boot"]["archive"]
    run(capsys, BUNDLE, image, "--run", "--sensors 'sensor 0=none'")
    assert json.loads(run(capsys, "--verify", image, "--json")[1])["first_boot"] == "has not been yet"


def archive_of(image: Path) -> bytes:
    with open_image(image, can_write=False) as volume:
        return volume.read("hardcase/card.pyz", 10**8) or b""


def test_what_failed_at_the_first_boot_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot = folder_of(tmp_path / "bootfs", CLOUD_INIT)
    run(capsys, BUNDLE, boot)
    (boot / "hardcase" / "log.txt").write_text("hardcase needs Python 3.11 or later, and this system has 3.9\n")
    told = json.loads(run(capsys, "--verify", boot, "--json")[1])
    assert told["first_boot"] == "failed: hardcase needs Python 3.11 or later, and this system has 3.9"


# ---------------------------------------------------------------- power cuts and failures


def test_a_card_with_a_damaged_file_system_is_one_line_or_flashed(tmp_path: Path) -> None:
    (done,) = damage(tmp_path)(60.0, 1, n=20)
    assert (done.inputs > 3, done.crashes, done.wrong) == (True, 0, 0)


def fail_at(patch: pytest.MonkeyPatch, n: int) -> None:
    """The disk is full at the n-th file that is written whole; at 0, while the runtime is written."""
    real, left = base_files._write, [n]
    if n == 0:
        patch.setattr(os, "sync", lambda: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    def write(path: Path, data: bytes, *rest: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise InputError(f"{path} cannot be written: No space left on device; choose a writable folder")
        real(path, data, *rest)  # type: ignore[arg-type]

    patch.setattr(base_files, "_write", write)


def test_a_root_whose_disk_is_full_at_any_write_is_mended_by_a_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = system_tree(tmp_path / "root")
    n_writes = [0]
    with monkeypatch.context() as patch:
        fail_at(patch, 10**9)
        real = base_files._write
        patch.setattr(base_files, "_write", lambda *a: (n_writes.__setitem__(0, n_writes[0] + 1), real(*a)))
        run(capsys, BUNDLE, root)
    whole = n_writes[0]
    for n in range(whole + 1):
        shutil.rmtree(root)
        system_tree(root)
        with monkeypatch.context() as patch:
            fail_at(patch, n)
            message = refused(capsys, BUNDLE, root)
        assert "No space left" in message
        if n < whole:
            refused(capsys, "--verify", root)
            assert not (root / "etc/systemd/system/multi-user.target.wants/hardcase-edge.service").is_symlink()
    assert run(capsys, BUNDLE, root)[0] == 0
    assert run(capsys, "--verify", root)[0] == 0


def test_a_card_that_vanishes_or_is_locked_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = boot_image(tmp_path / "pi.img", RASPBERRY_PI)
    real = os.pwrite
    for number in (errno.EIO, errno.ENXIO, errno.EROFS):
        calls = iter([*[real] * 7, OSError(number, os.strerror(number))])

        def pwrite(file: int, data: bytes, at: int, calls: Iterator[Any] = calls) -> int:
            call = next(calls)
            if isinstance(call, OSError):
                raise call
            return int(call(file, data, at))

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            message = refused(capsys, BUNDLE, image)
        reason = os.strerror(number)
        assert f"cannot be written: {reason}; unlock the card, or put it in again, and repeat" in message
    assert run(capsys, BUNDLE, image)[0] == 0


def test_a_card_that_keeps_other_bytes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = boot_image(tmp_path / "pi.img", RASPBERRY_PI)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda f, d, at: real(f, d.replace(b"PARTUUID", b"PARTUUIE"), at))
    assert "cmdline.txt on" in (message := refused(capsys, BUNDLE, image))
    assert "reads back otherwise from byte 25 on" in message


# ---------------------------------------------------------------- root folders


def test_a_root_is_flashed_for_its_own_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = system_tree(tmp_path / "root")
    identity, another = made_identity(tmp_path), made_identity(tmp_path, "pi-8")
    capsys.readouterr()
    flashed = json.loads(run(capsys, BUNDLE, root, "--identity", identity, "--json")[1])
    assert (flashed["kernels"], flashed["identity"]) == (["aarch64"], "put down")
    assert flashed["store"] == "the bundle is in slot a"
    runtime = root / "usr/local/lib/hardcase"
    assert (runtime / "hardcase_edge/kernel/_kernel.abi3.so").read_bytes() == MADE_KERNEL
    placed = root / "var/lib/hardcase/identity"
    modes = {p.relative_to(placed).as_posix(): p.stat().st_mode & 0o777 for p in (placed, *placed.rglob("*"))}
    files = ["current", "0001/key.pem", "0001/cert.pem", "0001/ca.pem"]
    assert modes == {".": 0o700, "0001": 0o700, **dict.fromkeys(files, 0o600)}
    for name in ("hardcase-edge.service", "hardcase-first-boot.service"):
        assert (root / "etc/systemd/system/multi-user.target.wants" / name).resolve().is_file()
    told = json.loads(run(capsys, "--verify", root, "--json")[1])
    assert (told["bundle"], told["identity"], told["first_boot"]) == (SHA, True, "has not been yet")
    report = root / "var/lib/hardcase/first-boot.json"
    report.write_text("{")
    assert f"{report} is damaged; remove it" in refused(capsys, "--verify", root)
    report.unlink()

    flashed = json.loads(run(capsys, BUNDLE, root, "--identity", another, "--json")[1])
    assert (flashed["identity"], flashed["store"]) == ("one was there already", "the bundle was there already")
    assert read_tree(placed) == read_tree(identity)
    assert len(list((root / "usr/local/lib").glob("hardcase-*"))) == 1


def test_a_damaged_runtime_is_written_anew_beside_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the link names may run meanwhile, and a cut must leave it whole or another one whole."""
    root = system_tree(tmp_path / "root")
    (tmp_path / "my_sensors.py").write_text("def read(sensor): return 1.0\n")
    run(capsys, BUNDLE, root, "--file", tmp_path / "my_sensors.py")
    link = root / "usr/local/lib/hardcase"
    assert (link / "my_sensors.py").read_text() == "def read(sensor): return 1.0\n"
    run(capsys, BUNDLE, root)
    first = link.readlink()
    run(capsys, BUNDLE, root)
    assert link.readlink() == first
    (link / "hardcase_edge" / "errors.py").write_text("damaged")
    run(capsys, BUNDLE, root)
    assert link.readlink() != first
    assert run(capsys, "--verify", root)[0] == 0
    assert len(list(link.parent.glob("hardcase-*"))) == 1


def test_the_devices_own_user_reads_what_a_private_user_has_put_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = system_tree(tmp_path / "root")
    umask = os.umask(0o077)
    try:
        run(capsys, BUNDLE, root)
    finally:
        os.umask(umask)
    closed = [p for p in (root / "usr/local").rglob("*") if p.stat().st_mode & 0o444 != 0o444]
    assert closed == []


def test_a_root_that_somebody_has_prepared_holds_nothing_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = system_tree(tmp_path / "root")
    run(capsys, BUNDLE, root)
    link = root / "usr/local/lib/hardcase"
    (link / "card" / "model.hcb").unlink()
    os.mkfifo(link / "card" / "model.hcb")  # opening it would wait for ever
    assert "model.hcb is missing" in refused(capsys, "--verify", root)
    link.unlink()
    link.symlink_to("/etc")
    assert "has nothing of hardcase on it" in refused(capsys, "--verify", root)
    (root / "usr/bin/python3.11").unlink()
    os.mkfifo(root / "usr/bin/python3.11")
    assert "leads out of" in refused(capsys, BUNDLE, root)


def test_a_folder_that_leads_elsewhere_is_not_written_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    boot = folder_of(tmp_path / "bootfs", CLOUD_INIT)
    (tmp_path / "elsewhere").mkdir()
    (boot / "hardcase").symlink_to(tmp_path / "elsewhere")
    assert "is a link, which no boot partition has" in refused(capsys, BUNDLE, boot)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_changed_file_on_a_card_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = system_tree(tmp_path / "root")
    run(capsys, BUNDLE, root)
    changed = root / "usr/local/lib/hardcase/hardcase_edge/errors.py"
    changed.write_text(changed.read_text() + "#")
    assert "errors.py is not what was written; flash again" in refused(capsys, "--verify", root)
    run(capsys, BUNDLE, root)
    kept = root / "var/lib/hardcase/a/bundle.hcb"
    kept.write_bytes(kept.read_bytes()[:-1])
    assert "the bundle of slot a in " in refused(capsys, "--verify", root)
    assert run(capsys, BUNDLE, root)[0] == run(capsys, "--verify", root)[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "usr/lib/systemd/systemd").unlink(), "has no systemd"),
        (lambda root: (root / "usr/bin/python3.11").rename(root / "usr/bin/python3.9"), "has Python 3.9, and 3.11"),
        (lambda root: (root / "usr/bin/python3.11").unlink(), "has no Python, and 3.11 or later"),
        (lambda root: (root / "usr/local").symlink_to("/etc"), "leads out of"),
        (lambda root: (root / "var").write_text(""), "leads out of"),
    ],
    ids=["no systemd", "old Python", "no Python", "a link out of it", "a file for a folder"],
)
def test_a_root_that_cannot_be_flashed_stays_as_it_is(
    tmp_path: Path, change: Callable[[Path], object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = system_tree(tmp_path / "root")
    change(root)
    assert message in refused(capsys, BUNDLE, root)
    assert not (root / "etc/systemd").exists()


LINKS = {
    "a slot": ("var/lib/hardcase/a", ".", "leads out of"),
    "the other slot": ("var/lib/hardcase/b", ".", "leads out of"),
    "a bundle": ("var/lib/hardcase/a/bundle.hcb", "a.hcb", "leads out of"),
    "the lock": ("var/lib/hardcase/lock", "made", "leads out of"),
    "a lock within": ("var/lib/hardcase/lock", "../../../etc/os-release", "is a link"),
    "a slot within": ("var/lib/hardcase/a", "../../../etc", "is a link"),
    "the state": ("var/lib/hardcase/state", "state", "leads out of"),
    "an identity": ("var/lib/hardcase/.identity.new", ".", "leads out of"),
    "the store": ("var/lib/hardcase", ".", "leads out of"),
    "a folder on the way": ("var/lib", ".", "leads out of"),
    "settings": ("etc/hardcase", ".", "leads out of"),
    "units": ("etc/systemd", ".", "leads out of"),
    "runtimes": ("usr/local/lib", ".", "leads out of"),
    "commands": ("usr/local/bin", ".", "leads out of"),
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_below_a_root_is_refused_before_a_byte_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, target, message = LINKS[name]
    root, outside = system_tree(tmp_path / "root"), tmp_path / "outside"
    outside.mkdir()
    link = root / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target if target.startswith("..") else outside / target)
    before = sorted(root.rglob("*"))
    assert message in (said := refused(capsys, BUNDLE, root))
    assert str(link) in said
    assert sorted(root.rglob("*")) == before
    assert not list(outside.iterdir())


def test_a_link_that_came_after_the_flash_is_refused_at_the_first_boot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, outside = system_tree(tmp_path / "root"), tmp_path / "outside"
    assert run(capsys, BUNDLE, root)[0] == 0
    outside.mkdir()
    (root / "var/lib/hardcase/b").rmdir()
    (root / "var/lib/hardcase/b").symlink_to(outside)
    before = sorted(root.rglob("*"))
    assert first_boot.main([str(root)]) == 2
    assert "var/lib/hardcase/b leads out of" in capsys.readouterr().err
    assert sorted(root.rglob("*")) == before


# ---------------------------------------------------------------- what is refused before a byte is written


@pytest.mark.parametrize("what", ["cut short", "no table", "half a GPT", "no FAT", "nothing"])
def test_an_image_that_is_not_a_cards_stays_as_it_is(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image = boot_image(tmp_path / "pi.img", RASPBERRY_PI)
    data = bytearray(image.read_bytes())
    if what == "cut short":
        del data[-70_000:]
    elif what == "no table":
        data[510:512] = b"xx"
    elif what == "half a GPT":
        data[446 + 4] = 0xEE
    elif what == "no FAT":
        data[446 + 4] = 0x83
    else:
        data.clear()
    image.write_bytes(data)
    expected = {
        "cut short": "is cut short: its partitions end at", "no FAT": "has no FAT boot partition",
        "half a GPT": "is damaged: its header is missing",
    }  # fmt: skip
    assert expected.get(what, "has no partition table") in refused(capsys, BUNDLE, image)
    assert image.read_bytes() == data


def test_a_card_that_is_too_small_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = boot_image(tmp_path / "pi.img", {**RASPBERRY_PI, "kernel8.img": bytes(2_700_000)})
    before = image.read_bytes()
    assert "bytes free, and" in refused(capsys, BUNDLE, image)
    assert image.read_bytes() == before


def test_a_system_that_is_not_known_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot = folder_of(tmp_path / "bootfs", {"kernel.img": b"x"})
    assert "has a system that is not known" in refused(capsys, BUNDLE, boot)
    assert [p.name for p in boot.iterdir()] == ["kernel.img"]


def test_the_running_system_is_not_flashed_as_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to("/")
    for place in ("/", tmp_path / "link"):
        assert "is the running system's own" in refused(capsys, BUNDLE, place)


def test_what_is_given_is_checked_before_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot = folder_of(tmp_path / "bootfs", CLOUD_INIT)
    before = read_tree(boot)
    damaged, key, identity = tmp_path / "damaged.hcb", tmp_path / "fleet", made_identity(tmp_path)
    damaged.write_bytes(BUNDLE.read_bytes()[:-1])
    cli.main(["keygen", "--out", str(key)])
    capsys.readouterr()
    (identity / "0001" / "key.pem").chmod(0o644)
    cases = {
        (damaged,): "bundle",
        (BUNDLE, "--trust", f"{key}.pub"): "sign",
        (BUNDLE, "--identity", identity): "can be read by other users; keep it to yourself: chmod 600",
        (BUNDLE, "--identity", tmp_path / "none"): "cannot be read: No such file or directory",
        (BUNDLE, "--identity", tmp_path): "is not of an identity; name a folder as hardcase ca device",
        (BUNDLE, "--run=--sensors"): "--run: argument --sensors: expected one argument",
        (BUNDLE, "--run", "--sensors 'a"): "--run: no closing quotation",
        (BUNDLE, "--run", "other.hcb --sensors none"): "--run names a bundle, a store or a key",
        (BUNDLE, "--run", "--sensors thermal: 'a\nb'"): "--run has a line break or another control character in it",
        (BUNDLE, "--metadata", tmp_path): "--metadata needs the first root",
        (BUNDLE, "--file", tmp_path / "none.py"): "none.py cannot be read: it is missing or no file",
        (BUNDLE, "--file", tmp_path / "hardcase_edge.py"): "has the name of another file beside the runtime",
        (BUNDLE, "--file", f"{key}.key"): "is a private key; put it into the identity's folder",
        (BUNDLE, "--file", tmp_path / "a b.py"): "has a name that cannot be put beside the runtime",
    }
    for (bundle, *words), message in cases.items():
        assert message in refused(capsys, bundle, boot, *words)
    assert read_tree(boot) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a bundle and a target, or --verify TARGET, or --list"),
        ((BUNDLE,), "name a bundle and a target"),
        ((BUNDLE, "card.img", "--run="), "name how the device runs, such as --run '--sensors thermal: --interval 60'"),
        ((BUNDLE, "no-such-card.img"), "no-such-card.img: No such file or directory; name a folder"),
        ((BUNDLE, "/dev/null"), "is neither a folder, an image file nor a card"),
        ((BUNDLE, "mqtts://broker", "--run="), "is not mqtts://broker/device"),
        ((BUNDLE, "card.img", "--ca", "ca.pem"), "--ca, --cert and --key are of an mqtts:// target"),
        ((BUNDLE, "ssh://-oProxyCommand=x/"), "is not ssh://user@host"),
        ((BUNDLE, "ssh://pi@host/a/../b"), "is not ssh://user@host"),
        (("--verify", "no-such-card.img"), "No such file or directory"),
    ],
)
def test_a_target_that_is_none_is_one_line(
    words: tuple[object, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *words)


def test_an_offer_over_mqtts_shows_the_certificate_that_the_broker_asks_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    server, ours = authority.issue("broker"), authority.issue("desk", purpose="client")
    signed = shutil.copy(BUNDLE, tmp_path)
    Path(f"{signed}.sig").write_bytes(sign(BUNDLE.read_bytes(), make_keys()[0]))
    options = {"cafile": authority.ca, "certfile": server, "keyfile": server.with_suffix(".key")}
    with running_mosquitto(tmp_path, **{k: str(v) for k, v in options.items()}, require_certificate=True) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"
        tls = {"ca": authority.ca, "cert": ours, "key": ours.with_suffix(".key")}
        config = ConnectionConfig(address=parse_address(url, **tls), client_id="pi-1")
        device = Connection(config, subscribe=reply_topic("pi-1"), on_message=print)
        assert device.start(5)
        facts = {"bundle": SHA, "store": {"state": "good", "slot": "a", "release": None}}
        assert device.publish(status_topic("pi-1"), b'{"state":"online"}', retain=True, wait_s=5)
        assert device.publish(facts_topic("pi-1"), json.dumps(facts).encode(), retain=True, wait_s=5)
        flags = [word for name, path in tls.items() for word in (f"--{name}", str(path))]
        assert cli.main(["flash", str(signed), f"{url}/pi-1", *flags]) == 0
        device.stop()


def test_nothing_on_a_card_and_half_of_it_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot = folder_of(tmp_path / "bootfs", CLOUD_INIT)
    assert "has nothing of hardcase on it" in refused(capsys, "--verify", boot)
    run(capsys, BUNDLE, boot)
    (boot / "user-data").write_bytes(CLOUD_INIT["user-data"])
    assert "nothing on" in refused(capsys, "--verify", boot)
    archive = boot / "hardcase" / "card.pyz"
    archive.write_bytes(archive.read_bytes()[:-100])
    assert "is cut short or damaged" in refused(capsys, "--verify", boot)


def test_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--list", "--json")
    assert status == 0
    assert all({"path", "size", "model", "refusal"} == set(entry) for entry in json.loads(out))


# ---------------------------------------------------------------- kernels and contents


def test_without_a_compiler_the_device_decides_in_python_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(target, "can_compile", lambda: False)
    boot = folder_of(tmp_path / "bootfs", CLOUD_INIT)
    (tmp_path / "dist").mkdir()
    for words in ([], ["--wheels", tmp_path / "dist"]):
        flashed = json.loads(run(capsys, BUNDLE, boot, "--json", *words)[1])
        assert flashed["kernels"] == []
        assert "no kernel for x86_64, aarch64, armv6: there the device decides in Python" in flashed["notes"][0]


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (MADE_KERNEL, "armv6", "not a shared object for that processor"),
        (b"#!/bin/sh", "aarch64", "not a shared object"),
        (MADE_KERNEL + b"\0GLIBC_2.2.5\0GLIBC_2.34\0", "aarch64", "needs glibc 2.34, newer than 2.17"),
    ],
)
def test_a_kernel_for_another_processor_or_a_newer_glibc_is_refused(data: bytes, name: str, message: str) -> None:
    kernels.check_kernel(MADE_KERNEL, "aarch64")
    with pytest.raises(InputError, match=message):
        kernels.check_kernel(data, name)


@pytest.mark.usefixtures("whole_runtime")
def test_the_same_flash_gives_the_same_bytes_and_nothing_of_this_machine() -> None:
    card = plain_card()
    assert card.archive == plain_card().archive
    with zipfile.ZipFile(__import__("io").BytesIO(card.archive)) as archive:
        names = archive.namelist()
    assert {"paho/mqtt/client.py", "hardcase_edge/cli.py", "card/model.hcb", "__main__.py"} <= set(names)
    assert not [n for n in names if n.endswith((".so", ".pyc"))]


def test_a_kernel_of_wheels_is_taken_and_a_damaged_wheel_is_one_line(tmp_path: Path) -> None:
    from hardcase.flashing import wheels

    tags = ".".join(kernels.PROCESSORS["aarch64"].tags)
    path = tmp_path / f"hardcase_edge-1.0-cp311-abi3-{tags}.whl"
    path.write_bytes(zip_of({wheels.KERNEL_NAME: MADE_KERNEL}))
    assert wheels.kernels_in(tmp_path, "1.0") == {"aarch64": MADE_KERNEL}
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(HardcaseError, match="cannot be read"):
        wheels.kernels_in(tmp_path, "1.0")
    whole, said = zip_of({wheels.KERNEL_NAME: MADE_KERNEL}), list[str]()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            wheels.kernels_in(tmp_path, "1.0")
        except HardcaseError as error:  # and nothing else, whatever is damaged
            said.append(str(error))
    assert len(said) > len(whole) // 2
    assert not any("\n" in line for line in said)
