# SPDX-License-Identifier: Apache-2.0
"""The printed access rules: a mosquitto that runs with them delivers what it should and nothing else; EMQX's agree."""

from __future__ import annotations

import queue
import re
import subprocess
import time

import pytest

from hardcase.cli import main
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_cloud.answer.service import Service
from hardcase_cloud.answer.worker import Worker
from hardcase_cloud.broker.rules import BROKERS, rules_for
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.link.wire import (
    OK,
    ack_topic,
    audit_topic,
    decision_topic,
    facts_topic,
    fetch_topic,
    reply_topic,
    request_topic,
    status_topic,
    unpack_reply,
    update_topic,
)

from ...helpers.cloud.brokers import running_mosquitto, until
from ...helpers.cloud.requests import N_CLASSES, PATIENT_MS, ask, write_model

USERS = ("pi-1", "pi-2", "worker", "eye", "shelf", "air")
SILENCE_S = 0.3

# who publishes where, who listens to what, whether it arrives
CASES = [
    pytest.param("pi-1", request_topic("pi-1"), "worker", request_topic("+"), True, id="own-request"),
    pytest.param("pi-1", request_topic("pi-1"), "worker", f"$share/g/{request_topic('+')}", True, id="shared"),
    pytest.param("worker", reply_topic("pi-1"), "pi-1", reply_topic("pi-1"), True, id="own-reply"),
    pytest.param("pi-1", status_topic("pi-1"), "eye", status_topic("+"), True, id="own-status"),
    pytest.param("pi-1", request_topic("pi-2"), "worker", request_topic("+"), False, id="request-of-another"),
    pytest.param("pi-1", status_topic("pi-2"), "eye", status_topic("+"), False, id="status-of-another"),
    pytest.param("pi-2", reply_topic("pi-1"), "pi-1", reply_topic("pi-1"), False, id="device-replies-to-another"),
    pytest.param("pi-1", reply_topic("pi-1"), "pi-1", reply_topic("pi-1"), False, id="device-replies-to-itself"),
    pytest.param("worker", request_topic("pi-1"), "worker", request_topic("+"), False, id="worker-asks"),
    pytest.param("worker", request_topic("worker"), "worker", request_topic("+"), False, id="worker-as-a-device"),
    pytest.param("worker", status_topic("worker"), "eye", status_topic("+"), False, id="status-of-the-worker"),
    pytest.param("eye", reply_topic("pi-1"), "pi-1", reply_topic("pi-1"), False, id="watcher-replies"),
    pytest.param("eye", request_topic("eye"), "worker", request_topic("+"), False, id="watcher-asks"),
    pytest.param("pi-1", request_topic("pi-1"), "pi-2", request_topic("+"), False, id="device-reads-requests"),
    pytest.param("pi-1", request_topic("pi-1"), "eye", request_topic("+"), False, id="watcher-reads-requests"),
    pytest.param("worker", reply_topic("pi-1"), "pi-2", reply_topic("pi-1"), False, id="device-reads-foreign-replies"),
    pytest.param("worker", reply_topic("pi-1"), "pi-2", "#", False, id="device-reads-everything"),
    pytest.param("worker", reply_topic("pi-1"), "worker", reply_topic("+"), False, id="worker-reads-replies"),
    pytest.param("pi-1", status_topic("pi-1"), "pi-2", status_topic("+"), False, id="device-reads-statuses"),
    pytest.param("pi-1", status_topic("pi-1"), "worker", "hardcase/v1/#", False, id="worker-reads-statuses"),
    pytest.param("air", update_topic("pi-1"), "pi-1", update_topic("pi-1"), True, id="own-update"),
    pytest.param("pi-1", fetch_topic("pi-1"), "air", fetch_topic("+"), True, id="own-fetch"),
    pytest.param("pi-1", status_topic("pi-1"), "air", status_topic("+"), True, id="updater-reads-statuses"),
    pytest.param("air", request_topic("air"), "worker", request_topic("+"), True, id="updater-asks-f0"),
    pytest.param("worker", reply_topic("air"), "air", reply_topic("air"), True, id="updater-reads-its-reply"),
    pytest.param("air", request_topic("pi-1"), "worker", request_topic("+"), False, id="updater-asks-as-a-device"),
    pytest.param("pi-2", update_topic("pi-1"), "pi-1", update_topic("pi-1"), False, id="device-updates-another"),
    pytest.param("pi-1", fetch_topic("pi-2"), "air", fetch_topic("+"), False, id="fetch-of-another"),
]

# as above, of decisions; one crowd at mosquitto tries all of them at once
RECORDS = [
    pytest.param("pi-1", facts_topic("pi-1"), "eye", facts_topic("+"), True, id="own-facts"),
    pytest.param("pi-1", decision_topic("pi-1"), "eye", decision_topic("+"), True, id="decision-to-the-watcher"),
    pytest.param("pi-1", decision_topic("pi-1"), "shelf", decision_topic("+"), True, id="decision-to-the-store"),
    pytest.param("pi-1", audit_topic("pi-1"), "shelf", audit_topic("+"), True, id="audit-to-the-store"),
    pytest.param("shelf", ack_topic("pi-1"), "pi-1", ack_topic("pi-1"), True, id="store-acknowledges"),
    pytest.param("pi-1", audit_topic("pi-1"), "eye", audit_topic("+"), False, id="watcher-reads-audits"),
    pytest.param("pi-1", audit_topic("pi-1"), "worker", audit_topic("+"), False, id="worker-reads-audits"),
    pytest.param("pi-1", decision_topic("pi-2"), "shelf", decision_topic("+"), False, id="decision-of-another"),
    pytest.param("pi-1", decision_topic("pi-1"), "pi-2", decision_topic("pi-1"), False, id="device-reads-decisions"),
    pytest.param("pi-2", ack_topic("pi-1"), "pi-1", ack_topic("pi-1"), False, id="device-acknowledges-another"),
    pytest.param("eye", ack_topic("pi-1"), "pi-1", ack_topic("pi-1"), False, id="watcher-acknowledges"),
    pytest.param("worker", ack_topic("pi-1"), "pi-1", ack_topic("pi-1"), False, id="worker-acknowledges"),
    pytest.param("shelf", ack_topic("pi-1"), "pi-2", ack_topic("pi-1"), False, id="device-reads-foreign-acks"),
    pytest.param("pi-1", request_topic("pi-1"), "shelf", request_topic("+"), False, id="store-reads-requests"),
    pytest.param("shelf", decision_topic("shelf"), "eye", decision_topic("+"), False, id="store-as-a-device"),
]

# ---------------------------------------------------------------- mosquitto


def settings_in(rules: str) -> dict[str, str]:
    """The settings that a rule file names in its comments."""
    return dict(re.findall(r"^#   (\w+) (.+)$", rules, re.M))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A mosquitto with the printed settings and rules, on a free port; and the certificate that its clients trust."""
    folder = tmp_path_factory.mktemp("rules")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "broker.key"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", "broker.pem"]
    subprocess.run(["openssl", "req", "-x509", *new_key, *name], cwd=folder, check=True, capture_output=True)
    (folder / "hardcase.users").touch()
    for user in USERS:
        command = ["mosquitto_passwd", "-b", "hardcase.users", user, f"secret of {user}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    rules = rules_for("mosquitto", watcher="eye", store="shelf", updater="air")
    (folder / "hardcase.acl").write_text(rules)
    settings = settings_in(rules)
    assert settings.pop("listener") == "8883"
    here = {k: str(folder / v.rpartition("/")[2]) if v.startswith("/") else v for k, v in settings.items()}
    with running_mosquitto(folder, **here) as broker:
        yield broker, folder / "broker.pem"


def address_of(guarded, user: str, password: str | None = None):
    broker, ca = guarded
    secret = (password or f"secret of {user}").replace(" ", "%20")
    return parse_address(f"mqtts://{user}:{secret}@localhost:{broker.port}", ca=ca)


def connection(guarded, user: str, client_id: str, *wanted: str, heard: queue.SimpleQueue[Message]) -> Connection:
    config = ConnectionConfig(address=address_of(guarded, user), client_id=client_id)
    filters = wanted or (reply_topic(user),)
    opened = Connection(config, subscribe=filters[0], on_message=heard.put)
    assert opened.start(60), opened.trouble
    for topic in filters[1:]:
        opened.subscribe(topic)
    assert opened.publish("nobody/listens", b"", wait_s=60)  # the broker has read what was sent before it
    return opened


def test_mosquitto_delivers_what_the_rules_grant_and_nothing_else(guarded):
    """One crowd tries all cases at once."""
    cases = [(case.id, *case.values) for case in CASES]
    heard = {user: queue.SimpleQueue() for user in USERS}
    wishes = {user: {wanted for _, _, _, who, wanted, _ in cases if who == user} for user in USERS}
    crowd = {u: connection(guarded, u, f"crowd-{u}", *wishes[u], heard=heard[u]) for u in USERS}
    try:
        for name, publisher, topic, *_ in cases:
            assert crowd[publisher].publish(topic, name.encode(), wait_s=60)
        wanted = {(listener, name) for name, _, _, listener, _, arrives in cases if arrives}
        delivered: set[tuple[str, str]] = set()

        def listen() -> set[tuple[str, str]]:
            delivered.update((user, message.payload.decode()) for user in USERS for message in drained(heard[user]))
            return delivered

        until(lambda: listen() >= wanted)
        time.sleep(SILENCE_S)
        assert not listen() & {(listener, name) for name, _, _, listener, _, arrives in cases if not arrives}
    finally:
        for member in crowd.values():
            member.stop()


def drained(heard):
    while not heard.empty():
        yield heard.get()


@pytest.mark.parametrize(("user", "password"), [("pi-1", "secret of pi-2"), ("nobody", "secret of pi-1")])
def test_mosquitto_refuses_a_wrong_password(guarded, user, password):
    config = ConnectionConfig(address=address_of(guarded, user, password), client_id="stranger")
    stranger = Connection(config, subscribe=reply_topic(user), on_message=lambda message: None)
    assert not stranger.start(60)
    stranger.stop()
    assert "not authorized" in stranger.trouble


def test_a_worker_answers_a_device_under_the_rules(guarded, tmp_path):
    hpc = Hpc(write_model(tmp_path))
    worker = Worker(Service(hpc), address_of(guarded, "worker"), "a-group-that-no-device-knows")
    worker.start()
    assert worker.protocol == "5"  # the subscription is a shared one
    heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
    device = connection(guarded, "pi-1", "pi-1", heard=heard)
    try:
        assert device.publish(request_topic("pi-1"), ask(1, (1.0, 4.0), hpc.sha256, PATIENT_MS))
        worker.run(count=1)
        assert unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(hpc.sha256), N_CLASSES).status == OK
    finally:
        device.stop()


# ---------------------------------------------------------------- EMQX, whose rules a literal reading decides

TERM = re.compile(r"\{(allow|deny), (all|\{username, .+?\}), (publish|subscribe|all), \[(.+)\]\}\.")


def matches(wanted: str, pattern: str) -> bool:
    """Whether a topic, or the filter of a subscription, lies inside a pattern."""
    if wanted[0] == "$" and pattern[0] in "+#":
        return False
    levels, parts = wanted.split("/"), pattern.split("/")
    if parts[-1] == "#":
        levels, parts = levels[: len(parts) - 1], parts[:-1]
    return len(levels) == len(parts) and all(p in ("+", x) for x, p in zip(levels, parts, strict=True))


def emqx_allows(rules: str, user: str, action: str, topic: str) -> bool:
    """First term that fits; EMQX checks a shared subscription by what is behind its group."""
    topic = re.sub(r"^\$share/[^/]+/", "", topic)
    for line in rules.splitlines():
        if line in ("", "{deny, all}.") or line.startswith("%%"):
            continue
        permission, who, does, topics = TERM.fullmatch(line).groups()
        names = re.findall(r'"(.+?)"', who)
        fits = who == "all" or (re.search(names[0], user) if "{re," in who else names[0] == user)
        patterns = [t.replace("${username}", user) for t in re.findall(r'"(.+?)"', topics)]
        if fits and does in (action, "all") and any(matches(topic, p) for p in patterns):
            return permission == "allow"
    assert rules.endswith("{deny, all}.\n")
    return False


@pytest.mark.parametrize(("publisher", "topic", "listener", "wanted", "arrives"), CASES)
def test_emqx_delivers_what_the_rules_grant_and_nothing_else(publisher, topic, listener, wanted, arrives):
    rules = rules_for("emqx", watcher="eye", store="shelf", updater="air")
    may_publish = emqx_allows(rules, publisher, "publish", topic)
    assert (may_publish and emqx_allows(rules, listener, "subscribe", wanted)) == arrives


@pytest.mark.parametrize("user", ["+", "#", "", "a/b/c", "-a", "a" * 65])
def test_emqx_grants_nothing_to_a_user_who_cannot_be_a_device(user):
    rules = rules_for("emqx")
    assert not emqx_allows(rules, user, "subscribe", "hardcase/v1/+/reply")
    assert not emqx_allows(rules, user, "publish", f"hardcase/v1/{user}/request")


def test_emqx_denies_topics_that_its_wildcards_do_not_match():
    rules = rules_for("emqx")
    for topic in ("$SYS/brokers", f"$queue/{request_topic('+')}", f"$stream/{request_topic('+')}"):
        assert not emqx_allows(rules, "pi-1", "subscribe", topic)
    assert "no_match = deny" in rules


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("broker", sorted(BROKERS))
def test_the_command_prints_the_rules(capsys, broker):
    assert main(["cloud", "acl", "--broker", broker, "--worker", "hpc", "--watcher", "eye", "--store", "shelf"]) == 0
    assert capsys.readouterr().out == rules_for(broker, worker="hpc", watcher="eye", store="shelf")


@pytest.mark.parametrize("name", ["", "a b", "a\ntopic write #", '"}', "+", "a/b/c", "x" * 65])
@pytest.mark.parametrize("broker", sorted(BROKERS))
def test_a_name_that_could_change_the_rules_is_refused(broker, name):
    with pytest.raises(InputError, match="user name"):
        rules_for(broker, worker=name)
    with pytest.raises(InputError, match="user name"):
        rules_for(broker, watcher=name)


def test_two_roles_cannot_share_a_name():
    with pytest.raises(InputError, match="both called 'worker'"):
        rules_for("emqx", watcher="worker")
    with pytest.raises(InputError, match="watcher and store are both called 'eye'"):
        rules_for("emqx", watcher="eye", store="eye")
