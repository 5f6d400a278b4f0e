# SPDX-License-Identifier: Apache-2.0
"""The link to the cloud, against a real broker: one reply per question, whatever else comes or goes."""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from hardcase_edge.base.clock import Clock
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address, tls_context
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.link import Link, LinkConfig
from hardcase_edge.link.wire import BUSY, ack_topic, facts_topic, reply_topic, request_topic, status_topic
from tests.helpers.cloud.brokers import free_port, retained, running_mosquitto, until
from tests.helpers.cloud.certificates import Authority
from tests.helpers.edge.device import REQUEST_BYTES, Cloud, make_manifest, make_program, usual_reply
from tests.helpers.server import Server

READINGS = (0.5, 1.0, 2.0, None, 4.0)
PROTOCOLS = pytest.mark.parametrize("protocol", [5, 4], ids=["mqtt5", "mqtt311"])


@contextmanager
def linked(url, device="dev-1", *, wait_s=30.0, on_taken_over=None, **knobs):
    """A link, started; fast retries, but a request is not sent again because a busy machine is slow to answer it."""
    config = LinkConfig.to_broker(url, device, **{"retry_first_s": 0.1, "resend_every_s": 60.0, **knobs})
    link = Link(config, make_program(), make_manifest(), on_taken_over)
    link.start(wait_s)
    try:
        yield link
    finally:
        link.stop()


# ---------------------------------------------------------------- asking


@PROTOCOLS
def test_a_question_is_answered(broker, protocol):
    with Cloud(broker.url) as cloud, linked(broker.url, protocol=protocol) as link:
        reply = link.ask(READINGS, 30.0)
        assert reply is not None
        assert (reply.result, reply.confidence) == (1, 9_000)
        (request,) = cloud.requests
        assert request.readings == READINGS
        assert 20_000 < request.deadline_ms <= 30_000
        (message,) = cloud.messages
        assert message.topic == request_topic("dev-1")
        assert len(message.payload) == REQUEST_BYTES
        if protocol == 5:
            assert (message.correlation, message.response_topic) == (request.id, reply_topic("dev-1"))
        assert link.counters == Counter(sent=1, replies=1, sent_bytes=REQUEST_BYTES)


def test_a_lone_question_does_not_wait_for_nagle(broker):
    with Cloud(broker.url), linked(broker.url) as link:
        link.ask(READINGS, 30.0)
        took = []
        for _ in range(30):
            began = time.perf_counter()
            assert link.ask(READINGS, 30.0) is not None
            took.append(time.perf_counter() - began)
        assert sorted(took)[5] < 0.03, "40 ms or more for each question is what a socket without TCP_NODELAY gives"


def test_ids_are_never_used_twice(broker):
    with Cloud(broker.url) as cloud, linked(broker.url) as link:
        for _ in range(50):
            link.ask(READINGS, 30.0)
        assert len({r.id for r in cloud.requests}) == 50
        assert all(len(r.id) == 16 for r in cloud.requests)


def test_a_question_is_sent_again_under_its_id_until_the_reply(broker):
    def third_time(request, device):
        return [usual_reply(request)] if len(cloud.requests) >= 3 else []

    with Cloud(broker.url, third_time) as cloud, linked(broker.url, resend_every_s=0.15) as link:
        assert link.ask(READINGS, 30.0) is not None
        resent = link.counters["resent"]  # twice, or more if the reply was slow
        until(lambda: len(cloud.requests) >= 1 + resent >= 3)
        time.sleep(0.5)
        assert link.counters["resent"] == resent == len(cloud.requests) - 1, "and not after it"
        assert len({r.id for r in cloud.requests}) == 1
        deadlines = [r.deadline_ms for r in cloud.requests]
        assert deadlines == sorted(deadlines, reverse=True)
        assert deadlines[2] <= deadlines[0] - 250, "the worker is told the time that is left"


def test_a_busy_cloud_ends_the_wait_and_is_left_alone(broker):
    def busy(request, device):
        return [usual_reply(request, status=BUSY, result=60_000, confidence=0)]

    with Cloud(broker.url, busy), linked(broker.url) as link:
        reply = link.ask(READINGS, 30.0)
        assert (reply.status, reply.result) == (BUSY, 60_000)
        assert link.is_connected
        assert not link.can_ask
        assert link.counters == Counter(sent=1, replies=1, busy=1, sent_bytes=REQUEST_BYTES)


def test_stopping_ends_the_wait_at_once(broker):
    with Cloud(broker.url, lambda request, device: []), linked(broker.url) as link:
        threading.Timer(0.2, link.cancel).start()
        began = time.monotonic()
        assert link.ask(READINGS, 60.0) is None
        assert time.monotonic() - began < 30.0


# ---------------------------------------------------------------- what is no reply


@PROTOCOLS
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda good: good[:-1], "malformed"),
        (lambda good: b"", "malformed"),
        (lambda good: good + b"\0", "oversized"),
        (lambda good: b"\7" * 20_000, "oversized"),
        (lambda good: b"\2" + good[1:], "malformed"),
        (lambda good: good[:8] + b"\x02" + good[9:], "malformed"),
        (lambda good: good[:-1] + bytes([good[-1] ^ 1]), "other_hpc"),
        (lambda good: good[:16] + bytes(16) + good[32:], "unknown"),
    ],
    ids=["cut", "empty", "long", "huge", "version", "class", "hpc", "id"],
)
def test_a_wrong_message_is_counted_and_dropped_and_the_right_one_still_counts(broker, protocol, wrong, reason):
    def answer(request, device):
        good = usual_reply(request)
        # on MQTT 5 the helper's correlation data is the request's: another id in the payload contradicts it
        return [wrong(good), good]

    with Cloud(broker.url, answer), linked(broker.url, protocol=protocol) as link:
        reply = link.ask(READINGS, 30.0)
        assert reply is not None
        expected = "malformed" if protocol == 5 and reason == "unknown" else reason
        assert link.counters == Counter({"sent": 1, "replies": 1, "sent_bytes": REQUEST_BYTES, expected: 1})


def test_a_late_and_a_repeated_reply_are_counted_and_dropped(broker):
    with Cloud(broker.url, lambda request, device: []) as cloud, linked(broker.url) as link:
        assert link.ask(READINGS, 0.5) is None
        until(lambda: cloud.requests)
        cloud.publish(reply_topic("dev-1"), usual_reply(cloud.requests[0]))
        until(lambda: link.counters["late"] == 1)
    with Cloud(broker.url, lambda request, device: [usual_reply(request)] * 3), linked(broker.url) as link:
        assert link.ask(READINGS, 30.0) is not None
        until(lambda: link.counters["late"] == 2)
        assert link.counters["replies"] == 1


@pytest.mark.parametrize("protocol", [4])
def test_a_packet_that_claims_too_much_is_not_read(broker, protocol):
    with Cloud(broker.url) as cloud, linked(broker.url, protocol=protocol, max_packet_bytes=1_000) as link:
        cloud.publish(reply_topic("dev-1"), bytes(200_000))
        until(lambda: link._connection.connects == 2 and link.is_connected)
        assert link.ask(READINGS, 30.0) is not None


def test_on_mqtt_5_the_broker_keeps_a_packet_that_is_too_long_to_itself(broker):
    with Cloud(broker.url) as cloud, linked(broker.url, max_packet_bytes=1_000) as link:
        cloud.publish(reply_topic("dev-1"), bytes(200_000))
        assert link.ask(READINGS, 30.0) is not None
        assert link._connection.connects == 1


def test_replies_to_another_device_are_not_heard(broker):
    with Cloud(broker.url) as cloud, linked(broker.url, "dev-1") as one, linked(broker.url, "dev-2") as two:
        assert one.ask(READINGS, 30.0) is not None
        assert two.ask(READINGS, 30.0) is not None
        assert one.counters == two.counters == Counter(sent=1, replies=1, sent_bytes=REQUEST_BYTES)
        assert {m.topic for m in cloud.messages} == {request_topic("dev-1"), request_topic("dev-2")}


# ---------------------------------------------------------------- status


@PROTOCOLS
def test_the_state_is_retained_and_offline_in_the_end_and_the_facts_stay(broker, protocol):
    topic = status_topic("dev-9")
    with linked(broker.url, "dev-9", protocol=protocol) as link:
        until(lambda: retained(broker, topic) == {"state": "online"})
        link.publish_facts({"asked": 7})
        until(lambda: retained(broker, facts_topic("dev-9")) == {"asked": 7})
    until(lambda: retained(broker, topic) == {"state": "offline"})
    assert retained(broker, facts_topic("dev-9")) == {"asked": 7}


def test_the_broker_says_offline_for_a_device_that_vanishes_and_keeps_its_facts(broker):
    topic = status_topic("dev-8")
    with linked(broker.url, "dev-8", retry_first_s=30.0) as link:
        until(lambda: retained(broker, topic) == {"state": "online"})
        link.publish_facts({"bundle": "ab", "asked": 7})
        until(lambda: retained(broker, facts_topic("dev-8")) == {"bundle": "ab", "asked": 7})
        link._connection._client._gate._sock.shutdown(socket.SHUT_RDWR)  # no DISCONNECT: the will is due
        until(lambda: retained(broker, topic) == {"state": "offline"})
        assert retained(broker, facts_topic("dev-8")) == {"bundle": "ab", "asked": 7}


@PROTOCOLS
def test_what_the_cloud_acknowledges_reaches_the_owner_and_not_the_replies(broker, protocol):
    acks = []
    with Cloud(broker.url) as cloud, linked(broker.url, "dev-7", protocol=protocol) as link:
        link.listen(ack_topic("dev-7"), acks.append)
        assert link.ask(READINGS, 30.0) is not None
        cloud.publish(ack_topic("dev-7"), b"[[1,2,3]]")
        cloud.publish(ack_topic("dev-6"), b"[[1,2,4]]")
        until(lambda: acks)
        assert acks == [b"[[1,2,3]]"]
        assert link.counters == Counter(sent=1, replies=1, sent_bytes=REQUEST_BYTES)


# ---------------------------------------------------------------- brokers that are not there


def test_with_no_broker_a_question_ends_at_once_and_the_link_comes_up_later(tmp_path):
    with running_mosquitto(tmp_path) as broker:
        broker.stop()
        with linked(broker.url, retry_most_s=0.3) as link:
            assert not link.is_connected
            assert "cannot be reached" in link.trouble
            began = time.monotonic()
            assert link.ask(READINGS, 30.0) is None
            assert time.monotonic() - began < 10.0
            assert link.counters == Counter()
            broker.start()
            until(lambda: link.is_connected)
            assert link.trouble == ""
            with Cloud(broker.url):
                assert link.ask(READINGS, 30.0) is not None


def test_a_question_survives_a_broker_that_restarts(tmp_path):
    def not_at_first(request, device):
        asked.set()
        return [usual_reply(request)] if has_restarted.is_set() else []

    asked, goes_down, has_restarted = threading.Event(), threading.Event(), threading.Event()
    with (
        running_mosquitto(tmp_path) as broker,
        Cloud(broker.url, not_at_first) as cloud,
        linked(broker.url, resend_every_s=0.5) as link,
    ):
        make = link._connection._make_client

        def make_after_the_worker():
            if goes_down.is_set():
                until(lambda: cloud._connection.connects == 2)
            return make()

        link._connection._make_client = make_after_the_worker

        def restart():
            asked.wait(60)
            goes_down.set()
            broker.kill()
            has_restarted.set()
            time.sleep(0.3)
            broker.start()

        thread = threading.Thread(target=restart)
        thread.start()
        try:
            assert link.ask(READINGS, 60.0) is not None
        finally:
            thread.join()
        assert len({r.id for r in cloud.requests}) == 1
        assert link.counters["sent"] == 1
        assert link.counters["resent"] >= 1


def test_nothing_waits_in_a_queue_for_the_next_connection(tmp_path):
    with running_mosquitto(tmp_path) as broker, linked(broker.url, retry_most_s=0.3) as link:
        broker.stop()
        until(lambda: not link.is_connected)
        for _ in range(100):
            assert link.ask(READINGS, 1.0) is None
        broker.start()
        with Cloud(broker.url) as cloud:
            until(lambda: link.is_connected)
            assert link.ask(READINGS, 30.0) is not None
            assert len(cloud.requests) == 1


def test_a_broker_that_only_speaks_3_1_1_is_spoken_to_in_3_1_1():
    for refusal in (b"\x20\x02\x00\x01", b""):  # CONNACK "unacceptable protocol version", or just closed
        with OldBroker(refusal) as old, linked(f"mqtt://127.0.0.1:{old.port}") as link:
            assert link.is_connected
            assert old.levels == [5, 4]


def test_bad_credentials_are_told_once_and_tried_slowly(tmp_path, caplog):
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "pi", "right"], check=True, capture_output=True)
    with running_mosquitto(tmp_path, allow_anonymous=False, password_file=str(passwords)) as broker:
        where = f"{broker.host}:{broker.port}"
        with linked(f"mqtt://pi:wrong@{where}", refused_retry_s=0.2) as link:
            assert not link.is_connected
            assert "refused the connection: not authorized" in link.trouble
            until(lambda: broker.log().count("not authorised") >= 3)
        told = [r.getMessage() for r in caplog.records if "refused the connection" in r.getMessage()]
        assert len(told) == 1
        assert "wrong" not in told[0]
        with linked(f"mqtt://pi:right@{where}") as link:
            assert link.is_connected


def test_a_subscription_that_is_refused_is_no_connection():
    with OldBroker(b"", granted=0x80) as old, linked(f"mqtt://127.0.0.1:{old.port}", refused_retry_s=0.1) as link:
        until(lambda: len(old.levels) >= 4)
        assert not link.is_connected
        assert link.trouble == "refused the subscription to hardcase/v1/dev-1/reply"
        assert link.ask(READINGS, 30.0) is None


@pytest.mark.parametrize("garbage", [b"\x20\xff\xff\xff\xff\xff", b"\x20\x03\x00\x00\x05", b"HTTP/1.1 400 Bad\r\n\r\n"])
def test_a_server_that_is_no_broker_is_survived(garbage):
    with OldBroker(garbage, always=True) as server, linked(f"mqtt://127.0.0.1:{server.port}", retry_most_s=0.2) as link:
        until(lambda: len(server.levels) >= 4)
        assert not link.is_connected
        assert link.ask(READINGS, 30.0) is None


class OldBroker(Server):
    """Meets an MQTT 5 CONNECT (or any, ``always``) with some bytes and hangs up, and grants 3.1.1."""

    def __init__(self, refusal: bytes, *, always: bool = False, granted: int = 1) -> None:
        super().__init__(self._say)
        self.levels: list[int] = []
        self._refusal, self._always, self._granted = refusal, always, granted

    def _say(self, peer: socket.socket) -> None:
        connect = peer.recv(4096)
        self.levels.append(connect[connect.index(b"MQTT") + 4])
        if self._always or self.levels[-1] == 5:
            peer.sendall(self._refusal)
            return
        peer.sendall(b"\x20\x02\x00\x00")
        subscribe = peer.recv(4096)
        peer.sendall(b"\x90\x03" + subscribe[2:4] + bytes([self._granted]))
        while peer.recv(4096):
            pass


# ---------------------------------------------------------------- TLS and addresses


def test_with_tls_both_sides_are_checked(tmp_path):
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "another authority")
    server, cert = authority.issue("server", "localhost"), authority.issue("device", purpose="client")
    pair = {"cert": cert, "key": cert.with_suffix(".key"), "clock": Clock()}
    options = {"cafile": str(authority.ca), "certfile": str(server), "keyfile": str(server.with_suffix(".key"))}
    with running_mosquitto(tmp_path, **options, require_certificate=True) as broker:
        by_name = f"mqtts://localhost:{broker.port}"
        with linked(by_name, ca=authority.ca, **pair) as link:
            assert link.is_connected
        with linked(by_name, ca=other.ca, **pair) as link:
            assert not link.is_connected
            assert "certificate verify failed" in link.trouble
        with linked(f"mqtts://127.0.0.1:{broker.port}", ca=authority.ca, **pair) as link:
            assert not link.is_connected, "the certificate is of localhost, not of 127.0.0.1"
        with linked(by_name, ca=authority.ca, clock=Clock()) as link:
            assert not link.is_connected, "the broker wants a certificate of the device"


def test_an_address_has_a_host_a_port_and_perhaps_a_user():
    address = parse_address("mqtts://pi:p%40ss@broker.example:1234", environment={})
    assert (address.host, address.port, address.is_tls) == ("broker.example", 1234, True)
    assert (address.user, address.password) == ("pi", "p@ss")
    assert "p@ss" not in repr(address)
    assert address.url == "mqtts://broker.example:1234"
    assert parse_address("mqtt://h", environment={}).port == 1883
    assert parse_address("mqtts://h/", environment={}).port == 8883
    assert parse_address("mqtt://[::1]:7", environment={}).url == "mqtt://[::1]:7"
    longest = "h" * 63 + ".h_-h" * 38
    assert parse_address(f"mqtt://{longest}", environment={}).host == longest
    secret = {"HARDCASE_MQTT_USER": "u", "HARDCASE_MQTT_PASSWORD": "p"}
    assert parse_address("mqtt://h", environment=secret).password == "p"
    assert parse_address("mqtt://me@h", environment=secret).password == ""


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost", "localhost:1883", "http://localhost", "mqtt://", "mqtt://:1883", "mqtt://host:port",
        "mqtt://host:0", "mqtt://host:99999", "mqtt://ho st", " mqtt://host", "mqtt://host\n", "mqtt://ho\tst",
        "mqtt://host/topic", "mqtt://host?x=1", "mqtt://[::1", "mqtt://host-", "mqtt://:secret@host",
        "mqtt://" + "u" * 600 + "@host", "mqtt://" + "h" * 2000, "mqtt://broker..example",
        "mqtt://" + "h" * 64 + ".example", "mqtt://" + "h." * 126 + "hh",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_told_in_one_line_without_its_password(url):
    with pytest.raises(InputError) as error:
        parse_address(url, environment={})
    assert "secret" not in str(error.value)
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "files", "line"),
    [
        ("mqtt://h", {"ca": "x.pem"}, "is not encrypted; use mqtts://"),
        ("mqtts://h", {"key": "x.pem"}, "a private key is named without its certificate"),
        ("mqtts://h", {"ca": "/nowhere.pem"}, "certificate authority /nowhere.pem cannot be used: No such file"),
        ("mqtts://h", {"cert": "/nowhere.pem"}, "client certificate or key /nowhere.pem cannot be used: No such file"),
        ("mqtts://h", {"ca": __file__}, "cannot be used: NO_CERTIFICATE_OR_CRL_FOUND"),
    ],
)
def test_certificates_that_cannot_be_used_are_told_in_one_line(url, files, line):
    with pytest.raises(InputError, match=line):
        tls_context(parse_address(url, **files))


def test_a_request_of_an_audit_says_that_it_is_one(broker):
    told: list[int] = []
    with Cloud(broker.url) as cloud, linked(broker.url) as link:
        assert link.ask_aside(READINGS, 30.0, lambda reply: told.append(reply.result))
        link.ask(READINGS, 30.0)
        assert [request.is_audit for request in cloud.requests] == [True, False]
    assert told == [1]


def test_a_port_nobody_listens_on_fails_fast():
    began = time.monotonic()
    with linked(f"mqtt://127.0.0.1:{free_port()}") as link:
        assert not link.is_connected
    assert time.monotonic() - began < 20.0, "it waits for no connection that was refused"


def test_pauses_of_the_link_leave_the_programs_own_random_numbers_alone():
    before = random.getstate()
    nowhere = ConnectionConfig(
        address=parse_address(f"mqtt://127.0.0.1:{free_port()}"), client_id="dev-1", retry_first_s=0.01
    )
    line = Connection(nowhere, subscribe="never", on_message=print)
    line.start()
    until(lambda: line._pause_s > 0.04)  # it doubles with each attempt
    line.stop()
    assert random.getstate() == before
