# SPDX-License-Identifier: Apache-2.0
"""A flash refuses what the device would refuse at each start, and carries what ``hardcase ca`` makes to the device."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hardcase import cli
from hardcase.flashing import contents, target
from hardcase.flashing.volumes import open_image
from hardcase_edge.base.clock import Clock
from hardcase_edge.cli import run_config
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.card import install as card_install
from hardcase_edge.fleet.identity.folder import Identities, read_files
from hardcase_edge.running.connecting import OwnId, link_config
from tests.helpers.cards import CLOUD_INIT, MADE_KERNEL, RASPBERRY_PI, boot_image, made_identity, system_tree
from tests.helpers.edge.power_cuts import read_tree
from tests.helpers.edge.repository import Repository
from tests.helpers.places import GOLDEN

BUNDLE = GOLDEN / "v1.hcb"
SENSORS = "def read(sensor):\n    return 1.0\nif True:\n    other = read\n"
LIBRARY = "/usr/local/lib/hardcase"
TLS = "--sensors thermal: --broker mqtts://broker.example"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card without the device's program and kernels."""
    few = {"hardcase_edge/errors.py": b"# errors", "hardcase_edge/cli.py": b"# cli"}
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(target, "can_compile", lambda: True)
    monkeypatch.setattr(target, "compile_kernel", lambda name: MADE_KERNEL)
    monkeypatch.setattr(contents, "runtime_files", lambda: few)
    monkeypatch.setattr(contents, "paho_files", dict)


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    """A boot partition."""
    folder = tmp_path / "bootfs"
    folder.mkdir()
    for name, data in CLOUD_INIT.items():
        (folder / name).write_bytes(data)
    return folder


def flash(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit status, and what was printed."""
    capsys.readouterr()
    status = cli.main(["flash", *map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out if status == 0 else printed.err


# ---------------------------------------------------------------- identities


@pytest.mark.parametrize("is_claim", [False, True], ids=["ca device", "ca claim"])
@pytest.mark.parametrize("kind", ["root", "boot", "image"])
def test_what_ca_makes_is_flashed_and_the_device_opens_it(
    kind: str, is_claim: bool, tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_identity(tmp_path, is_claim=is_claim)
    root = system_tree(tmp_path / "root")
    places = {"root": lambda: root, "boot": lambda: boot, "image": lambda: boot_image(tmp_path / "i", RASPBERRY_PI)}
    place = places[kind]()
    status, said = flash(capsys, BUNDLE, place, "--identity", made, "--run", TLS)
    assert status == 0, said
    if kind != "root":  # the first boot, as the card's own program does it
        folder = boot if kind == "boot" else tmp_path / "copy"
        if kind == "image":
            (folder / "hardcase").mkdir(parents=True)
            with open_image(place, can_write=False) as volume:
                for name in ("hardcase/card.pyz", "hardcase/identity.zip"):
                    (folder / name).write_bytes(volume.read(name, 10**7) or b"")
        archive = card_install.read_archive((folder / "hardcase/card.pyz").read_bytes(), "card.pyz")
        identity = card_install.read_identity((folder / "hardcase/identity.zip").read_bytes(), archive)
        card_install.install(archive, root, "cloud-init", "", identity, is_here=False)
    state = root / "var/lib/hardcase"
    assert read_tree(state / "identity") == read_tree(made)
    assert all(p.stat().st_mode & 0o077 == 0 for p in (state / "identity", *(state / "identity").rglob("*")))
    held = Identities(state / "identity").held()
    assert [one is not None for one in (held.current, held.pending, held.claim)] == [not is_claim, False, is_claim]
    run = run_config(["run", "--store", str(state), *shlex.split(TLS)])
    config, keeper = link_config(run, OwnId(), Clock())
    assert keeper is not None
    assert is_claim or config.connection.client_id == "pi-7"


def test_an_identity_belongs_to_the_user_of_the_folder_that_it_is_put_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that has run owns its folder, and systemd gives it no further files there."""
    state, given = tmp_path / "var/lib/hardcase", dict[str, tuple[int, int]]()
    state.mkdir(parents=True)
    real = Path.stat

    def stat(self: Path, **how: bool) -> os.stat_result:
        result = real(self, **how)
        return os.stat_result((*result[:4], 61_234, 61_235, *result[6:])) if self == state else result

    def chown(path: Path, uid: int, gid: int, **how: bool) -> None:
        given[path.relative_to(state).as_posix()] = uid, gid

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(os, "chown", chown)
    files = read_files(made_identity(tmp_path), Clock().now())
    assert card_install._put_identity(tmp_path, files) == "put down"
    names = {f".identity.new/{name}" for name in (*files, "0001")} | {".identity.new"}
    assert given == dict.fromkeys(names, (61_234, 61_235))


def test_an_identity_stays_unless_the_device_could_not_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, first, second = system_tree(tmp_path / "root"), made_identity(tmp_path), made_identity(tmp_path, "pi-8")
    place = root / "var/lib/hardcase/identity"
    shutil.copytree(first / "0001", place)  # as an earlier flash has put it down
    words = [BUNDLE, root, "--run", TLS, "--json"]
    assert json.loads(flash(capsys, *words, "--identity", first)[1])["identity"] == "put down"
    assert read_tree(place) == read_tree(first)
    assert json.loads(flash(capsys, *words, "--identity", second)[1])["identity"] == "one was there already"
    assert read_tree(place) == read_tree(first)
    words[3] = f"{TLS} --device-id pi-8"  # which the one that is there is not for
    status, said = flash(capsys, *words, "--identity", second)
    assert (status, "--device-id is pi-8, but the certificate is for pi-7" in said) == (2, True)


def test_an_identity_that_no_device_could_use_is_refused(
    tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_tree(boot)
    good, other = made_identity(tmp_path), made_identity(tmp_path, "pi-8")

    def refusal(run: str = TLS) -> str:
        status, said = flash(capsys, BUNDLE, boot, "--identity", tmp_path / "bad", "--run", run)
        assert (status, said.count("\n")) == (2, 1), said
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(good, tmp_path / "bad")
        return said

    assert "cannot be read: No such file" in refusal()
    (tmp_path / "bad" / "0001" / "cert.pem").write_text("nothing")
    assert "has no certificate that can be read; put a new identity" in refusal()
    shutil.copy(other / "0001" / "key.pem", tmp_path / "bad" / "0001")
    assert "client certificate or key" in refusal()
    (tmp_path / "bad" / "0001" / "ca.pem").unlink()
    assert "ca.pem is missing" in refusal()
    (tmp_path / "bad" / "0001" / "key.pem").chmod(0o640)
    assert "can be read by other users" in refusal()
    (tmp_path / "bad" / "device.key").write_text("")
    assert "device.key is not of an identity" in refusal()
    shutil.rmtree(tmp_path / "bad")
    shutil.copytree(good / "0001", tmp_path / "bad")
    assert "is not of an identity; name a folder as hardcase ca device" in refusal()
    assert "--device-id is pi-9, but the certificate is for pi-7" in refusal(f"{TLS} --device-id pi-9")
    assert "certificates are named, but broker" in refusal("--sensors thermal: --broker mqtt://broker.example")
    assert read_tree(boot) == before
    with pytest.raises(InputError, match="has ended: no broker accepts its certificate"):
        read_files(good, 4e9)


def test_a_broker_takes_no_identity_and_nothing_else_that_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ("--identity", tmp_path),
        ("--run", "--sensors thermal:"),
        ("--file", "x.py"),
        ("--device", "/dev/x"),
    ):
        status, said = flash(capsys, BUNDLE, "mqtts://broker.example/pi-1", *words)
        assert (status, said.count("\n")) == (2, 1)
        assert "a broker takes a bundle alone" in said


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("--sensors bogus:", "sensor source 'bogus:' is not a MODULE:FUNCTION"),
        ("--sensors bogus", "sensor source 'bogus' is unknown"),
        ("--sensors x=none", "sensor spec 'x=none' names no sensor of this bundle"),
        ("--sensors my_sensors:nosuch", "module my_sensors has no function nosuch"),
        ("--sensors others:read", "needs the module others, which is not there; give its file with --file"),
        ("--sensors broken:read", "module broken cannot be imported: invalid syntax"),
        ("--sensors 'sensor 0=none' --sensors my_sensors:read --sensors my_sensors:other", "serves no sensor"),
        ("--sensors my_sensors:read --items my_sensors:nosuch", "module my_sensors has no function nosuch"),
        ("--sensors replay:r.csv", "--sensors needs /var/lib/hardcase/r.csv, which is not there; give it with --file"),
        (f"--sensors replay:{LIBRARY}/r.csv", f"replay file {LIBRARY}/r.csv has no column"),
        ("--sensors replay:-", "--sensors reads standard input, and a service has none"),
        ("--sensors alsa:plughw:1@99", "the window of capture device"),
        ("--sensors thermal: --interval -5", "an interval is negative"),
        ("--sensors thermal: --item-size 99", "the item size is 99; this bundle supports 1 to 9"),
        ("--sensors thermal: --sensor-timeout-ms 0", "the sensor timeout is 0 ms"),
        ("--sensors thermal: --trial-decisions 0", "a trial has 0 decisions"),
        ("--sensors thermal: --trial-audit-share 5", "--trial-audit-share is '5'"),
        ("--sensors thermal: --metered 99-1 --broker mqtt://b", "the metered hours '99-1' are not two times"),
        ("--sensors thermal: --metered 22:00-06:00", "--metered needs --store and --broker"),
        ("--sensors thermal: --outbox 3 --broker mqtt://b", "--outbox is 3; use 64K"),
        ("--sensors thermal: --outbox 3M", "--publish, --audit and --outbox need a broker"),
        ("--sensors thermal: --publish 300% --broker mqtt://b", "--publish is '300%'"),
        ("--sensors thermal: --outbox-rate 0", "--outbox-rate is 0.0"),
        ("--sensors thermal: --outbox 1M --broker mqtt://b --outbox-folder /srv", "which the service may not write"),
        ("--sensors thermal: --broker foo://x", "broker 'foo://x' is not an MQTT URL"),
        ("--sensors thermal: --broker mqtt://x --ca ca.pem", "certificates are named, but broker"),
        (
            "--sensors thermal: --broker mqtts://x --ca ca.pem",
            "--ca needs /var/lib/hardcase/ca.pem, which is not there",
        ),
        (
            f"--sensors thermal: --broker mqtts://x --ca {LIBRARY}/r.csv",
            "certificate authority /usr/local/lib/hardcase",
        ),
        ("--sensors thermal: --broker mqtts://x --identity id", "--identity needs /var/lib/hardcase/id, which is not"),
        ("--sensors thermal: --device-id //x", "device id '//x' is not"),
        ("--sensors thermal: --home-assistant", "Home Assistant hears of a device from its broker"),
        ("--sensors thermal: --metrics 9101", "metrics address '9101' is not an IP address and a port"),
        ("--sensors thermal: --metrics 192.0.2.1:9101", "can be reached from other machines"),
        ("--sensors thermal: --metrics-file x.txt", "x.txt does not end with .prom"),
        ("--sensors thermal: --metrics-file /srv/x.prom", "--metrics-file is /srv/x.prom, which the service cannot"),
        ("--sensors thermal: --on-broken forward", "--on-broken needs --drift"),
        ("--sensors thermal: --battery 5", "--battery and --until need each other"),
        ("--sensors thermal: --battery 5 --until 2001-01-01", "--until 2001-01-01 is past"),
        ("--sensors thermal: --max-forward-rate 5", "--max-forward-rate is '5'"),
        ("--sensors thermal: --budget -1", "the budget is -1.0"),
    ],
)
def test_arguments_that_the_device_would_refuse_are_refused_before_a_byte_is_written(
    run: str, message: str, tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_tree(boot)
    for name, text in (("my_sensors.py", SENSORS), ("broken.py", "def read(:\n"), ("r.csv", "a,b\n1,2\n")):
        (tmp_path / name).write_text(text)
    files = [word for name in ("my_sensors.py", "broken.py", "r.csv") for word in ("--file", tmp_path / name)]
    status, said = flash(capsys, BUNDLE, boot, *files, "--run", run)
    assert (status, said.count("\n")) == (2, 1), said
    assert message in said
    assert said.startswith("hardcase flash: --run: ")
    assert str(tmp_path) not in said
    assert read_tree(boot) == before


def test_metadata_that_the_device_would_refuse_are_refused_before_a_byte_is_written(
    tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = Repository(), Repository()
    late = Repository()
    late.timestamp_expires = 1.7e9
    folders = {
        "good": ours.write(tmp_path / "good", BUNDLE.read_bytes()),
        "unlisted": ours.write(tmp_path / "unlisted", b"another"),
        "expired": late.write(tmp_path / "expired", BUNDLE.read_bytes()),
        "theirs": theirs.write(tmp_path / "theirs", BUNDLE.read_bytes()),
    }
    root = folders["good"] / "1.root.json"
    cases = {
        (root, None): "--root needs the metadata that list the bundle",
        (root, folders["unlisted"]): "do not list the bundle",
        (root, folders["theirs"]): "0 trusted keys have signed the timestamp metadata, 1 must",
        (root, tmp_path): "has 0 files of metadata",
        (folders["expired"] / "1.root.json", folders["expired"]): "timestamp 1 expired at",
        (BUNDLE, folders["good"]): "the root metadata cannot be used",
    }
    before = read_tree(boot)
    for (first, folder), message in cases.items():
        words = ["--root", first, *([] if folder is None else ["--metadata", folder])]
        status, said = flash(capsys, BUNDLE, boot, *words, "--run", "--sensors thermal:")
        assert (status, message in said, said.count("\n")) == (2, True, 1), said
    assert read_tree(boot) == before
    words = ["--root", root, "--metadata", folders["good"], "--run", "--sensors thermal:"]
    assert flash(capsys, BUNDLE, boot, *words)[0] == 0


def test_what_is_put_beside_the_runtime_is_found_there(
    tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_sensors.py").write_text("raise SystemExit('imported')\n" + SENSORS)  # it is never imported
    (tmp_path / "fast.abi3.so").write_bytes(b"\x7fELF")
    (tmp_path / "star.py").write_text("from my_sensors import *\n")
    made_identity(tmp_path)
    shutil.copy(tmp_path / "authority/public/devices.pem", tmp_path / "ca.pem")
    for name, module in (
        ("my_sensors.py", "my_sensors:other"),
        ("fast.abi3.so", "fast:read"),
        ("star.py", "star:read"),
    ):
        words = ["--file", tmp_path / name, "--file", tmp_path / "ca.pem"]
        run = f"--sensors {module} --broker mqtts://broker.example --ca {LIBRARY}/ca.pem"
        status, said = flash(capsys, BUNDLE, boot, *words, "--run", run)
        assert status == 0, said


def test_modules_that_the_card_will_not_have_are_listed(
    tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_sensors.py").write_text(
        "import json, numpy.linalg\nimport paho.mqtt.client, mine\ntry:\n    import fast\nexcept ImportError:\n"
        "    fast = None\n" + SENSORS + "def late():\n    from cv2 import imread\n"
    )
    (tmp_path / "mine.py").write_text("import struct\n")
    words = ["--file", tmp_path / "my_sensors.py", "--file", tmp_path / "mine.py", "--run"]
    words += ["--sensors my_sensors:other", "--json"]

    def notes(place: Path) -> list[str]:
        status, said = flash(capsys, BUNDLE, place, *words)
        assert status == 0, said
        return [note for note in json.loads(said)["notes"] if "imports" in note]

    rest = "the device cannot start without; install it there, such as apt install python3-numpy, or give its file"
    assert notes(boot) == [f"my_sensors.py imports cv2, numpy, which the card may lack: {rest} with --file"]
    root = system_tree(tmp_path / "root")
    (root / "usr/lib/python3/dist-packages/numpy").mkdir(parents=True)
    assert notes(root) == [f"my_sensors.py imports cv2, which the system in {root} lacks: {rest} with --file"]
    (root / "usr/lib/python3/dist-packages/cv2.abi3.so").write_bytes(b"")
    assert notes(root) == []


def test_a_claim_says_that_it_needs_openssl(tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim, root = made_identity(tmp_path, is_claim=True), system_tree(tmp_path / "root")

    def notes(place: Path) -> list[str]:
        status, said = flash(capsys, BUNDLE, place, "--identity", claim, "--run", TLS, "--json")
        assert status == 0, said
        return [note for note in json.loads(said)["notes"] if "openssl" in note]

    assert [note.partition(":")[0] for note in notes(boot)] == [
        "a claim needs the command openssl, which may be missing there"
    ]
    assert [note.partition(":")[0] for note in notes(root)] == [
        "a claim needs the command openssl, which is missing there"
    ]
    (root / "usr/bin/openssl").write_bytes(b"")
    assert notes(root) == []


def test_an_image_that_a_process_has_open_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = boot_image(tmp_path / "i", RASPBERRY_PI)
    before = image.read_bytes()
    with open(image, "rb") as file, subprocess.Popen(["sleep", "60"], stdin=file) as emulator:
        status, said = flash(capsys, BUNDLE, image, "--run", "--sensors thermal:")
        emulator.kill()
    assert (status, said) == (
        2, f"hardcase flash: {image} is open in sleep (process {emulator.pid}); end that first\n"
    )  # fmt: skip
    assert image.read_bytes() == before
    assert flash(capsys, BUNDLE, image, "--run", "--sensors thermal:")[0] == 0


# ---------------------------------------------------------------- files below /dev


def unit_on(boot: Path, name: str = "card/hardcase-edge.service") -> str:
    with zipfile.ZipFile(io.BytesIO((boot / "hardcase/card.pyz").read_bytes())) as archive:
        return archive.read(name).decode()


def test_the_unit_lets_in_what_is_named_and_what_the_drivers_need(
    boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash(capsys, BUNDLE, boot, "--run", "--sensors thermal:")[0] == 0
    assert "DeviceAllow" not in unit_on(boot)
    words = ["--device", "/dev/i2c-1", "--device", "/dev/video0", "--group", "i2c", "--group", "video"]
    status, said = flash(capsys, BUNDLE, boot, *words, "--run", "--sensors alsa:plughw:CARD=U,DEV=0 --sensors thermal:")
    assert status == 0, said
    wanted = ["DeviceAllow=char-alsa rw", "DeviceAllow=/dev/i2c-1 rw", "DeviceAllow=/dev/video0 rw",
              "SupplementaryGroups=i2c video audio", "PrivateUsers=no"]  # fmt: skip
    assert "\n".join(wanted) in unit_on(boot)
    before = read_tree(boot)
    for words, message in ((["--device", "/etc/shadow"], "is not a file below /dev"), (["--group", "a b"], "a group")):
        status, said = flash(capsys, BUNDLE, boot, *words, "--run", "--sensors thermal:")
        assert (status, message in said) == (2, True)
    assert read_tree(boot) == before


def test_service_and_flash_make_the_same_unit_and_settings(
    tmp_path: Path, boot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--sensors", "'sensor 0'=alsa:default", "--sensors", "thermal:", "--interval", "60"]
    assert flash(capsys, BUNDLE, boot, "--run", " ".join(run), "--device", "/dev/i2c-1")[0] == 0
    program = [sys.executable, "-m", "hardcase_edge.cli", "service", "--program", "/usr/local/bin/hardcase-edge"]
    program += ["--config", str(tmp_path / "run.toml"), "--device", "/dev/i2c-1"]
    command = [*program, "run", "--store", "/var/lib/hardcase", *shlex.split(" ".join(run))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert unit_on(boot) == done.stdout
    assert unit_on(boot, "card/run.toml") == (tmp_path / "run.toml").read_text()
    assert "SupplementaryGroups=audio" in done.stdout
