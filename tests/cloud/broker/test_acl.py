# SPDX-License-Identifier: Apache-2.0
"""The folder for mosquitto: passwords that stay, files of others that stay, and a broker that lets nobody trespass."""

from __future__ import annotations

import queue
import stat
import subprocess
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hardcase.cli import main
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service
from hardcase_cloud.answer.worker import Worker, default_group
from hardcase_cloud.broker import acl
from hardcase_cloud.broker.acl import MARK, hash_of, parse_lines, read_devices, write_acl
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.link.wire import OK, facts_topic, reply_topic, request_topic, status_topic, unpack_reply

from ...helpers.attack.trespass import TOPICS, USERS, WILLS, crossing, take_over
from ...helpers.cloud.brokers import running_mosquitto, serving, until
from ...helpers.cloud.guarded import guarded_mosquitto
from ...helpers.cloud.raw_mqtt import Raw, connect
from ...helpers.cloud.requests import N_CLASSES, PATIENT_MS, ask, write_model

# ---------------------------------------------------------------- the real broker


def test_no_device_reads_or_writes_a_topic_of_another(tmp_path):
    (topics,) = crossing([f"pi-{k}" for k in range(5)])(0, 1)
    n_users = 5 + len(USERS) + 1
    assert (topics.inputs, topics.crashes, topics.wrong) == (n_users * 2 * 5 * len(TOPICS) + 5 * len(WILLS), 0, 0)


def test_no_device_takes_the_name_of_another(tmp_path):
    (names,) = take_over(5)(60, 0, n=10)
    assert (names.inputs, names.crashes, names.wrong) == (10, 0, 0)


def test_the_attack_finds_what_open_rules_deliver(monkeypatch):
    monkeypatch.setattr(acl, "rules_for", lambda *_, **__: "pattern readwrite #\n")
    assert crossing(["pi-0", "pi-1"])(0, 0)[0].wrong > 0


def test_the_attack_finds_names_that_can_be_taken(monkeypatch):
    monkeypatch.setattr(acl, "CONF_TEXT", acl.CONF_TEXT.replace("use_username_as_clientid true\n", ""))
    assert take_over(2)(60, 0, n=4)[0].wrong == 4


def test_a_password_opens_the_listener_of_its_role_only(tmp_path):
    with guarded_mosquitto(tmp_path, ["pi-1", "pi-2"]) as broker:

        def enters(port: int, user: str, password: str) -> bool:
            client = Raw(port, connect(user, user, password))
            client.close()
            return client.is_connected

        right, wrong = broker.passwords["pi-1"], broker.passwords["pi-2"]
        assert enters(broker.port, "pi-1", right)
        assert not enters(broker.port, "pi-1", wrong)
        assert not enters(broker.port, "", "")
        assert not enters(broker.workers_port, "pi-1", right)
        assert enters(broker.workers_port, "worker", broker.passwords["worker"])
        assert not enters(broker.port, "worker", broker.passwords["worker"])


def test_two_workers_answer_devices_and_their_group_is_not_to_be_guessed(tmp_path):
    hpc = Hpc(write_model(tmp_path))
    with guarded_mosquitto(tmp_path, ["pi-1"]) as broker:
        address = parse_address(broker.url_of("worker"))
        group = default_group(hpc.sha256, address.password)
        assert group not in (default_group(hpc.sha256), default_group(hpc.sha256, "another password"))
        workers = [Worker(Service(hpc), address, group) for _ in range(2)]
        heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
        config = ConnectionConfig(address=parse_address(broker.url_of("pi-1")), client_id="pi-1")
        device = Connection(config, subscribe=reply_topic("pi-1"), on_message=heard.put)
        try:
            for worker in workers:
                worker.start()
            assert device.start(60), device.trouble
            for k in range(2):
                assert device.publish(request_topic("pi-1"), ask(k, (1.0, 4.0), hpc.sha256, PATIENT_MS))
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda worker: worker.run(count=1), workers))
            replies = [unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(hpc.sha256), N_CLASSES) for _ in "12"]
            assert {r.id[-1] for r in replies} == {0, 1}
            assert {r.status for r in replies} == {OK}
        finally:
            device.stop()


# ---------------------------------------------------------------- the files


def passwords_in(folder) -> dict[str, str]:
    return parse_lines((folder / "hardcase.passwords").read_text(), " ")


def test_what_all_devices_have_said_of_themselves_reaches_a_store_that_connects(tmp_path):
    n = 1_500
    options = dict(line.split(" ", 1) for line in acl.limits(n).splitlines() if line and not line.startswith("#"))
    database, reader = (Database(tmp_path / "d.sqlite") for _ in range(2))  # the store's thread has one of its own
    with running_mosquitto(tmp_path, **options) as broker:
        devices = paho.Client(CallbackAPIVersion.VERSION2)
        devices.connect(broker.host, broker.port)
        devices.loop_start()
        for k in range(n):
            devices.publish(status_topic(f"d{k}"), b'{"state": "online"}', qos=1, retain=True)
            last = devices.publish(facts_topic(f"d{k}"), b'{"bundle": "b"}', qos=1, retain=True)
        last.wait_for_publish(60)
        known = "SELECT COUNT(*) FROM devices WHERE is_online = 1 AND bundle = 'b'"
        with serving(Keeper(database, parse_address(broker.url), note=print)):
            until(lambda: reader.read(known) == [(n,)])
        devices.loop_stop()
    for each in (database, reader):
        each.close()


def test_users_keep_their_passwords_and_those_who_are_gone_lose_them(tmp_path):
    assert write_acl(tmp_path, ["pi-1", "pi-2"]).new == ("pi-1", "pi-2", "worker")
    before, files = passwords_in(tmp_path), read_all(tmp_path)
    assert write_acl(tmp_path, ["pi-1", "pi-2"]) == acl.Written((), 3, 0)
    assert read_all(tmp_path) == files
    assert write_acl(tmp_path, ["pi-2", "pi-3"]) == acl.Written(("pi-3",), 2, 1)
    after = passwords_in(tmp_path)
    assert (list(after), after["pi-2"], after["worker"]) == (
        ["pi-2", "pi-3", "worker"], before["pi-2"], before["worker"],
    )  # fmt: skip
    assert list(parse_lines((tmp_path / "hardcase.devices").read_text(), ":")) == ["pi-2", "pi-3"]


def read_all(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_password_is_kept_after_its_plain_text_has_been_handed_out_and_deleted(tmp_path):
    write_acl(tmp_path, ["pi-1"])
    hashes = (tmp_path / "hardcase.devices").read_bytes()
    (tmp_path / "hardcase.passwords").unlink()
    assert write_acl(tmp_path, ["pi-1", "pi-2"]).new == ("pi-2",)
    assert (tmp_path / "hardcase.devices").read_bytes().startswith(hashes)
    assert list(passwords_in(tmp_path)) == ["pi-2"]


def test_only_the_owner_reads_passwords_and_nobody_else_reads_hashes(tmp_path):
    write_acl(tmp_path, ["pi-1"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {
        "hardcase.passwords": 0o600, "hardcase.devices": 0o640, "hardcase.workers": 0o640, "hardcase.acl": 0o640,
        "hardcase.conf": 0o644,
    }  # fmt: skip


def test_runs_at_once_lose_no_user_and_no_password(tmp_path):
    devices = [f"pi-{k}" for k in range(30)]
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: write_acl(tmp_path, devices), range(8)))
    assert sorted(len(run.new) for run in runs) == [0] * 7 + [31]
    hashes = parse_lines((tmp_path / "hardcase.devices").read_text(), ":")
    assert list(hashes) == devices
    salts = {user: b64decode(hashes[user].split("$")[3]) for user in devices}
    assert all(hash_of(passwords_in(tmp_path)[user], salts[user]) == hashes[user] for user in devices)


def test_a_hash_is_that_of_mosquitto_passwd(tmp_path):
    path = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(path), "pi-1", "a secret"], check=True, capture_output=True)
    known = path.read_text().strip().partition(":")[2]
    assert hash_of("a secret", b64decode(known.split("$")[3])) == known


@pytest.mark.parametrize("name", ["hardcase.conf", "hardcase.acl", "hardcase.devices", "hardcase.passwords"])
def test_a_file_of_somebody_else_stays(tmp_path, name):
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(
        InputError, match=f"{name} exists and is not a file of hardcase cloud acl; choose another folder"
    ):
        write_acl(tmp_path, ["pi-1"])
    assert read_all(tmp_path) == {name: b"mine\n"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "names 0 devices", id="empty"),
        pytest.param("# pi-1\n\n", "names 0 devices", id="comments"),
        pytest.param("pi-1\npi 2\n", "line 2: device id 'pi 2' is not", id="space"),
        pytest.param("pi-1\n+\n", "line 2: device id '\\+' is not", id="wildcard"),
        pytest.param("pi-1\npi-2:x\n", "line 2: device id", id="colon"),
        pytest.param("pi-1\n\npi-1\n", "line 3: pi-1 is in line 1 already", id="twice"),
    ],
)
def test_a_list_that_cannot_be_used_is_one_line(tmp_path, text, said):
    (tmp_path / "devices.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        read_devices(tmp_path / "devices.txt")


def test_a_device_cannot_have_another_role(tmp_path):
    with pytest.raises(InputError, match="worker is a device and cannot have another role"):
        write_acl(tmp_path, ["pi-1", "worker"])
    with pytest.raises(InputError, match="both called 'worker'"):
        write_acl(tmp_path, ["pi-1"], watcher="worker")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_name_would_be_a_setting_of_its_own_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not fit a line of settings"):
        write_acl(tmp_path / "a\nallow_anonymous true", ["pi-1"])


@pytest.mark.parametrize("flags", [["--out", "here"], ["--devices", "x"], ["--out", "here", "--devices", "x"]])
def test_the_command_wants_both_flags_of_a_folder_and_mosquitto(tmp_path, monkeypatch, capsys, flags):
    monkeypatch.chdir(tmp_path)
    assert main(["cloud", "acl", "--broker", "emqx", *flags]) == 2
    assert "--devices and --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_folder_and_says_what_it_did(tmp_path, capsys):
    (tmp_path / "devices.txt").write_text("# the cellar\npi-1\npi-2\n")
    argv = ["cloud", "acl", "--broker", "mosquitto", "--devices", str(tmp_path / "devices.txt")]
    assert main([*argv, "--out", str(tmp_path / "new" / "acl"), "--watcher", "eye"]) == 0
    out = capsys.readouterr().out
    assert "4 new users, 0 as before, 0 removed" in out
    assert not any(secret in out for secret in passwords_in(tmp_path / "new" / "acl").values())
    assert all(data.startswith(MARK.encode()) for data in read_all(tmp_path / "new" / "acl").values())
