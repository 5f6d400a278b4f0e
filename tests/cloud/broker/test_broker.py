# SPDX-License-Identifier: Apache-2.0
"""The embedded broker: serves this machine's clients, whatever bytes others send, and is not reached from outside."""

from __future__ import annotations

import asyncio
import queue
import random
import socket
import struct
import threading
import time
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hardcase_cloud.broker import bounded, embedded, packet_reader
from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_cloud.broker.listen import parse_bind
from hardcase_cloud.mqtt.packets import packet
from hardcase_edge.errors import InputError
from hardcase_edge.link import wire
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Will
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from ...helpers.cloud.brokers import until
from ...helpers.cloud.raw_mqtt import Raw, connect, publish, subscribe


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker(port=0) as running:
        yield running


@pytest.fixture
def raw_client(broker):
    """A function that connects a raw client; all are closed at the end."""
    made: list[Raw] = []

    def make(client_id: str, *, clean: bool = True) -> Raw:
        made.append(Raw(broker.port, connect(client_id, clean=clean)))
        return made[-1]

    yield make
    for client in made:
        client.close()


class Client:
    """A paho client that keeps what it hears."""

    def __init__(self, broker: EmbeddedBroker, *, protocol: int = 4):
        self.heard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.gone = threading.Event()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, protocol=protocol, reconnect_on_failure=False)
        self.paho.on_connect = lambda _c, _d, _f, reason, _p: self.said.put(str(reason))
        self.paho.on_subscribe = lambda _c, _d, _m, reasons, _p: self.said.put([r.is_failure for r in reasons])
        self.paho.on_message = lambda _c, _d, m: self.heard.put((m.topic, m.payload))
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self._port = broker.port

    def connect(self) -> str:
        self.paho.connect("127.0.0.1", self._port)
        self.paho.loop_start()
        return str(self.said.get(timeout=60))

    def subscribe(self, topic: str) -> Any:
        self.paho.subscribe(topic, 1)
        return self.said.get(timeout=60)

    def publish(self, topic: str, payload: bytes, **knobs: Any) -> None:
        self.paho.publish(topic, payload, qos=knobs.pop("qos", 1), **knobs)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


def is_alive(broker: EmbeddedBroker) -> bool:
    """Whether a message still goes round."""
    with Client(broker) as client:
        assert client.connect() == "Success"
        assert client.subscribe(wire.request_topic("+")) == [False]
        client.publish(wire.request_topic("pi-9"), b"ping")
        return client.heard.get(timeout=60) == (wire.request_topic("pi-9"), b"ping")


# ---------------------------------------------------------------- what it is for


def test_a_request_and_its_reply_go_round(broker):
    with Client(broker) as device, Client(broker) as worker:
        assert (device.connect(), worker.connect()) == ("Success", "Success")
        device.subscribe(wire.reply_topic("pi-1"))
        worker.subscribe(wire.request_topic("+"))
        device.publish(wire.request_topic("pi-1"), b"q" * MAX_REQUEST_BYTES)  # the longest there is
        assert worker.heard.get(timeout=60) == (wire.request_topic("pi-1"), b"q" * MAX_REQUEST_BYTES)
        worker.publish(wire.reply_topic("pi-1"), b"a")
        assert device.heard.get(timeout=60) == (wire.reply_topic("pi-1"), b"a")


def test_a_status_is_retained_and_a_will_is_kept(broker):
    will_topic = wire.status_topic("pi-3")
    with Client(broker) as device, Client(broker) as watcher:
        device.paho.will_set(will_topic, b"gone", qos=1, retain=True)
        device.connect()
        device.publish(will_topic, b"here", retain=True)
        watcher.connect()
        until(lambda: will_topic in broker._broker.retained_messages)
        watcher.subscribe(wire.status_topic("+"))
        heard = (message for message in iter(lambda: watcher.heard.get(timeout=60), None) if message[0] == will_topic)
        assert next(heard) == (will_topic, b"here")  # other tests' statuses may be retained, too
        device.paho.socket().shutdown(socket.SHUT_RDWR)
        assert next(heard) == (will_topic, b"gone")


def test_a_retained_status_goes_to_nobody_who_has_not_asked(broker):
    with Client(broker) as device, Client(broker) as watcher, Client(broker) as stranger:
        device.connect()
        device.publish(wire.status_topic("pi-4"), b"here", retain=True)
        watcher.connect()
        watcher.subscribe(wire.status_topic("pi-4"))
        assert watcher.heard.get(timeout=60) == (wire.status_topic("pi-4"), b"here")
        stranger.connect()
        stranger.subscribe(wire.reply_topic("pi-5"))
        device.publish(wire.reply_topic("pi-5"), b"for the stranger")
        assert stranger.heard.get(timeout=60) == (wire.reply_topic("pi-5"), b"for the stranger")


def test_a_client_of_mqtt_5_is_told_so(broker):
    with Client(broker, protocol=5) as client:
        assert client.connect() == "Unsupported protocol version"


def test_a_device_that_tries_mqtt_5_first_is_soon_connected(broker):
    config = ConnectionConfig(address=parse_address(broker.url), client_id="pi-6")
    will = Will(wire.status_topic("pi-6"), b"gone")
    device = Connection(config, subscribe=wire.reply_topic("pi-6"), on_message=lambda message: None, will=will)
    try:
        assert device.start(60), device.trouble
        assert device._client.protocol == 4
    finally:
        device.stop()


# ---------------------------------------------------------------- what others send


def test_a_packet_beyond_the_limit_closes_its_connection_before_it_is_read(broker):
    with Client(broker) as client:
        client.connect()
        client.publish(wire.request_topic("pi-1"), b"x" * (MAX_REQUEST_BYTES + 2000))
        assert client.gone.wait(60)
    assert is_alive(broker)


def send(broker: EmbeddedBroker, data: bytes) -> None:
    """Send these bytes and hang up."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as line:
        line.sendall(data)


def assert_all_gone(broker: EmbeddedBroker) -> None:
    until(lambda: not broker._clients)


def raw(broker: EmbeddedBroker, *parts: bytes, patience_s: float = 60.0) -> bytes:
    """What the broker answers to these bytes before it hangs up (or falls silent for so long)."""
    heard = b""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as line:
        try:
            for part in parts:
                line.sendall(part)
                time.sleep(0.02)
            line.settimeout(patience_s)
            while data := line.recv(4096):
                heard += data
        except TimeoutError:
            heard += b"...silence"
        except ConnectionError:
            pass
    return heard


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


CONNECT = packet(0x10, text(b"MQTT") + b"\4\2\0\0" + text(b"raw"))
TOPIC = text(wire.request_topic("a").encode())


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((b"GET / HTTP/1.1\r\n\r\n",), id="http"),
        pytest.param((b"\x10\xff\xff\xff\xff\xff",), id="endless-length"),
        pytest.param((b"\x10\xff\xff\xff\x7f",), id="huge-connect"),
        pytest.param((packet(0x30, text(b"a")),), id="publish-first"),
        pytest.param((b"\x10\0",), id="empty-connect"),
        pytest.param((packet(0x10, text(b"MQTT")),), id="connect-without-a-level"),
        pytest.param((packet(0x10, text(b"MQIsdp") + b"\3\2\0\0" + text(b"raw")),), id="mqtt-3.1"),
    ],
)
def test_bytes_that_are_not_a_connect_are_hung_up_on(broker, parts):
    assert raw(broker, *parts) == b""
    assert is_alive(broker)


@pytest.mark.parametrize(
    "packets",
    [
        pytest.param(packet(0x10, text(b"MQTT") + b"\4\x80\0\0" + text(b"raw")), id="user-announced-but-absent"),
        pytest.param(packet(0x10, text(b"MQTT") + b"\4\2\0\0\xff\xff"), id="string-beyond-packet"),
        pytest.param(packet(0x10, text(b"MQTT") + b"\4\2\0\0" + text(b"\xff\xfe")), id="client-not-utf8"),
        pytest.param(packet(0x10, text(b"MQTT") + b"\4\6\0\0" + text(b"a") + text(b"#") * 2), id="will-to-everybody"),
        pytest.param(CONNECT + b"\0\0", id="reserved-packet"),
        pytest.param(CONNECT + CONNECT, id="second-connect"),
        pytest.param(CONNECT + packet(0x32, b"\xff\xff"), id="topic-beyond-packet"),
        pytest.param(CONNECT + packet(0x32, TOPIC), id="no-packet-id"),
        pytest.param(CONNECT + packet(0x36, TOPIC + b"\0\1"), id="qos-3"),
        pytest.param(CONNECT + packet(0x34, TOPIC + b"\0\1") * 2, id="qos-2-twice"),
        pytest.param(CONNECT + packet(0x30, text(b"\xff\xfe")), id="topic-not-utf8"),
        pytest.param(CONNECT + packet(0x30, text(b"a/+/#")), id="topic-with-wildcards"),
        pytest.param(CONNECT + b"\x50\2\0\1", id="qos-2-flow"),
        pytest.param(CONNECT + b"\xf0\0", id="mqtt-5-auth"),
        pytest.param(CONNECT + packet(0x82, b"\0\1"), id="subscribe-to-nothing"),
        pytest.param(CONNECT + packet(0x82, b"\0\1" + text(b"a/#/b(((") + b"\7"), id="subscribe-to-nonsense"),
        pytest.param(CONNECT + b"\x32\xff\xff\xff\x7f", id="huge-publish"),
    ],
)
def test_a_malformed_packet_harms_no_other_client(broker, packets):
    with Client(broker) as device:
        assert device.connect() == "Success"
        assert device.subscribe(wire.reply_topic("pi-1")) == [False]
        raw(broker, packets, patience_s=0.5)
        device.publish(wire.reply_topic("pi-1"), b"still here")
        assert device.heard.get(timeout=60) == (wire.reply_topic("pi-1"), b"still here")
    assert_all_gone(broker)


def test_random_packets_harm_no_other_client(broker):
    chance = random.Random(7)
    for _ in range(300):
        bodies = [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(1, 5))]
        send(broker, CONNECT + b"".join(packet(chance.randrange(256), body) for body in bodies))
    assert is_alive(broker)
    assert_all_gone(broker)


def test_a_client_that_hangs_up_at_once_leaves_nothing_behind(broker):
    for _ in range(100):
        send(broker, CONNECT)
    assert_all_gone(broker)


def test_a_connection_that_says_nothing_is_closed(broker, monkeypatch):
    monkeypatch.setattr(packet_reader, "CONNECT_TIMEOUT_S", 0.1)
    assert raw(broker) == b""
    assert raw(broker, CONNECT[:5]) == b""
    assert_all_gone(broker)


# ---------------------------------------------------------------- bounds


def test_more_connections_than_allowed_are_closed_at_once(monkeypatch):
    monkeypatch.setattr(embedded, "MAX_CONNECTIONS", 2)
    with EmbeddedBroker(port=0) as broker, Client(broker) as one, Client(broker) as two:
        assert (one.connect(), two.connect()) == ("Success", "Success")
        assert raw(broker, CONNECT) == b""


@pytest.mark.parametrize(
    "wanted",
    [
        "#",
        "hardcase/v1/#",
        "+/+/+/+",
        "$SYS/#",
        wire.request_topic("pi-1"),
        wire.reply_topic("+"),
        "hardcase/v1/-a/reply",
        "a",
        wire.ack_topic("+"),
    ],
)
def test_nothing_is_subscribed_to_but_what_a_role_needs(broker, wanted):
    with Client(broker) as client:
        client.connect()
        assert client.subscribe(wanted) == [True]
        for granted in (
            wire.reply_topic("pi-1"), wire.request_topic("+"), wire.status_topic("+"), wire.status_topic("pi-1"),
            wire.facts_topic("+"), wire.decision_topic("+"), wire.audit_topic("+"), wire.ack_topic("pi-1"),
        ):  # fmt: skip
            assert client.subscribe(granted) == [False]


def test_subscriptions_of_a_connection_are_counted(broker, raw_client):
    client = raw_client("many")
    client.send(*[subscribe(wire.reply_topic(f"pi-{k}")) for k in range(packet_reader.MAX_SUBSCRIBES)])
    assert client.settle()
    client.send(subscribe(wire.reply_topic("one-more")))
    assert not client.settle()


def test_only_states_and_facts_are_retained_and_their_number_and_length_are_bounded(broker, monkeypatch, raw_client):
    monkeypatch.setattr(bounded, "MAX_RETAINED", 5)
    kept = broker._broker.retained_messages
    kept.clear()
    client = raw_client("loud")
    client.send(*[publish(wire.status_topic(f"s-{k}"), b"on", retain=True) for k in range(8)])
    client.send(
        publish(wire.status_topic("s-0"), b"off", retain=True), publish(wire.status_topic("s-1"), b"", retain=True)
    )
    client.send(publish(wire.status_topic("s-2"), b"x" * (bounded.MAX_STATUS_BYTES + 1), retain=True))
    client.send(publish(wire.reply_topic("s-0"), b"on", retain=True), publish("a/b", b"on", retain=True))
    client.send(
        publish(wire.decision_topic("s-0"), b"on", retain=True), publish(wire.facts_topic("s-0"), b"on", retain=True)
    )
    client.settle()
    until(lambda: wire.status_topic("s-1") not in kept)
    assert is_alive(broker)
    until(lambda: wire.facts_topic("s-0") in kept)
    assert {t: bytes(m.data) for t, m in kept.items()} == {
        **{wire.status_topic(f"s-{k}"): b"off" if k == 0 else b"on" for k in (0, 2, 3, 4)},
        wire.facts_topic("s-0"): b"on",
    }


def test_a_client_id_that_is_connected_is_refused_and_its_owner_stays(broker, monkeypatch, raw_client):
    monkeypatch.setattr(embedded, "CLAIM_S", 0.05)
    owner = raw_client("pi-1")
    owner.send(subscribe(wire.reply_topic("pi-1")))
    assert owner.settle()
    for _ in range(20):
        thief = raw_client("pi-1")
        assert not thief.is_connected
    with Client(broker) as worker:
        worker.connect()
        worker.publish(wire.reply_topic("pi-1"), b"for the owner")
        owner.wait_for(b"for the owner")
    owner.close()
    monkeypatch.setattr(embedded, "CLAIM_S", 60.0)
    again = raw_client("pi-1")  # its old connection is ending
    assert again.is_connected


def test_no_session_is_kept_for_a_client_that_is_gone(broker, raw_client):
    client = raw_client("pi-1", clean=False)
    assert not client.is_connected


def test_what_a_client_that_does_not_read_is_owed_is_bounded_and_nobody_waits_for_it(broker, monkeypatch, raw_client):
    monkeypatch.setattr(bounded, "MAX_OWED", 300_000)
    stall_s = bounded.STALL_S
    monkeypatch.setattr(bounded, "STALL_S", 0.5)
    deaf, loud = raw_client("deaf"), raw_client("loud")
    deaf.send(subscribe(wire.status_topic("+")))
    assert deaf.settle()
    most, payload = 0, b"x" * 60_000
    for _ in range(200):  # more than the system buffers of a connection hold
        loud.send(publish(wire.status_topic("loud"), payload))
        most = max(most, broker._broker._owed.total())
    monkeypatch.setattr(bounded, "STALL_S", stall_s)  # for those who do read, on a busy machine
    assert is_alive(broker)
    assert most < 300_000 + 2 * 61_024
    until(lambda: "deaf" not in broker._ids)
    until(lambda: not broker._broker._owed)


def test_a_flood_of_one_client_waits_for_the_worker_and_others_do_not_wait_for_the_flood(broker, raw_client):
    worker, loud, quiet = (raw_client(name) for name in ("worker", "loud", "quiet"))
    worker.send(subscribe(wire.request_topic("+"), qos=1))  # and acknowledges nothing
    assert worker.settle()
    loud.send(*[publish(wire.request_topic("loud"), b"x") for _ in range(1000)])
    worker.wait_for(b"x", bounded.MAX_WAITING)
    quiet.send(publish(wire.request_topic("quiet"), b"mine"))
    worker.wait_for(b"mine")
    n_before = [payload for _, payload in worker.heard].index(b"mine")
    assert n_before <= bounded.MAX_WAITING + 2  # amqtt takes them one by one from its own queue, and counts after that


# ---------------------------------------------------------------- where it listens


def test_a_port_in_use_is_one_clear_line(broker):
    with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{broker.port}: Address already in use"):
        EmbeddedBroker(port=broker.port).start()


def test_an_address_that_is_not_ours_is_one_clear_line():
    broker = EmbeddedBroker(port=0)
    broker.host = "192.0.2.1"  # past the check: a documentation address, nobody's
    with pytest.raises(InputError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
        broker.start()


def test_a_broker_that_does_not_start_in_time_says_so(monkeypatch):
    async def never(_):
        await asyncio.sleep(60)

    monkeypatch.setattr(embedded, "START_S", 0.01)
    monkeypatch.setattr(EmbeddedBroker, "_open", never)
    with pytest.raises(InputError, match=r"the broker did not start within 0\.01 s; free the processor, or try again"):
        EmbeddedBroker(port=0).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_a_listener_beyond_loopback_is_refused_and_real_brokers_are_named(host):
    with pytest.raises(InputError, match=f"cannot listen on '{host}'; run mosquitto or EMQX there"):
        EmbeddedBroker(host)


def test_loopback_has_more_than_one_address():
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert EmbeddedBroker(host).host == host


@pytest.mark.parametrize("bind", ["", "1883", ":1883", "host", "host:", "host:x", "host:70000", "host:-1"])
def test_a_bind_that_is_none_is_refused(bind):
    with pytest.raises(InputError, match="is not host:port"):
        parse_bind(bind)


def test_a_bind_may_be_ipv6():
    assert parse_bind("[::1]:1883") == ("::1", 1883)
    assert parse_bind("127.0.0.1:0") == ("127.0.0.1", 0)


def test_stopping_closes_the_port_and_every_connection():
    broker = EmbeddedBroker(port=0)
    broker.start()
    with Client(broker) as client:
        client.connect()
        broker.stop()
        assert client.gone.wait(60)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port), timeout=1)
    broker.stop()  # again does nothing
