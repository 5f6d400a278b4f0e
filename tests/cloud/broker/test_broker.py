"""The embedded broker: serves our clients, and nobody else, and only where it may."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from paho.mqtt.enums import CallbackAPIVersion

from hardcase_cloud.broker import access as door_module
from hardcase_cloud.broker import embedded as broker_module
from hardcase_cloud.broker.embedded import EmbeddedBroker
from hardcase_cloud.broker.listen import Listen, parse_bind
from hardcase_cloud.broker.users import add_user, read_users
from hardcase_edge.errors import InputError
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.connection import Connection, ConnectionConfig, Message
from hardcase_edge.link.wire import reply_topic, request_topic, status_topic
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from ...helpers.cloud.requests import wait_until


@pytest.fixture(scope="module")
def broker():
    with EmbeddedBroker(Listen(port=0)) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker that asks for names: pi-1, pi-2 and the worker."""
    users = tmp_path_factory.mktemp("users") / "users"
    for name in ("pi-1", "pi-2"):
        add_user(users, name, f"secret of {name}")
    with EmbeddedBroker(Listen(port=0, users=users)) as running:
        yield running


class Client:
    """A paho client that keeps what it hears."""

    def __init__(self, broker: EmbeddedBroker, user: str = "", password: str = "", *, protocol: int = 4, **knobs: Any):
        self.heard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.gone = threading.Event()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, protocol=protocol, reconnect_on_failure=False, **knobs)
        if user:
            self.paho.username_pw_set(user, password)
        self.paho.on_connect = lambda _c, _d, _f, reason, _p: self.said.put(str(reason))
        self.paho.on_subscribe = lambda _c, _d, _m, reasons, _p: self.said.put([r.is_failure for r in reasons])
        self.paho.on_message = lambda _c, _d, m: self.heard.put((m.topic, m.payload))
        self.paho.on_disconnect = lambda *_: self.gone.set()
        self._port = broker.port

    def connect(self) -> str:
        self.paho.connect("127.0.0.1", self._port)
        self.paho.loop_start()
        return str(self.said.get(timeout=5))

    def subscribe(self, topic: str) -> Any:
        self.paho.subscribe(topic, 1)
        return self.said.get(timeout=5)

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
        assert client.subscribe(request_topic("+")) == [False]
        client.publish(request_topic("pi-9"), b"ping")
        return client.heard.get(timeout=5) == (request_topic("pi-9"), b"ping")


# ---------------------------------------------------------------- what it is for


def test_a_request_and_its_reply_go_round(broker):
    with Client(broker) as device, Client(broker) as worker:
        assert (device.connect(), worker.connect()) == ("Success", "Success")
        device.subscribe(reply_topic("pi-1"))
        worker.subscribe(request_topic("+"))
        device.publish(request_topic("pi-1"), b"q" * MAX_REQUEST_BYTES)  # the longest there is
        assert worker.heard.get(timeout=5) == (request_topic("pi-1"), b"q" * MAX_REQUEST_BYTES)
        worker.publish(reply_topic("pi-1"), b"a")
        assert device.heard.get(timeout=5) == (reply_topic("pi-1"), b"a")


def test_a_status_is_retained_and_a_will_is_kept(broker):
    will_topic = status_topic("pi-3")
    with Client(broker) as device, Client(broker) as watcher:
        device.paho.will_set(will_topic, b"gone", qos=1, retain=True)
        device.connect()
        device.publish(will_topic, b"here", retain=True)
        watcher.connect()
        wait_until(lambda: will_topic in broker._broker.retained_messages, "the status is retained")
        watcher.subscribe(status_topic("+"))
        assert watcher.heard.get(timeout=5) == (will_topic, b"here")
        device.paho.socket().shutdown(socket.SHUT_RDWR)
        assert watcher.heard.get(timeout=5) == (will_topic, b"gone")


def test_a_retained_status_goes_to_nobody_who_has_not_asked(broker):
    with Client(broker) as device, Client(broker) as watcher, Client(broker) as stranger:
        device.connect()
        device.publish(status_topic("pi-4"), b"here", retain=True)
        watcher.connect()
        watcher.subscribe(status_topic("pi-4"))
        assert watcher.heard.get(timeout=5) == (status_topic("pi-4"), b"here")
        stranger.connect()
        stranger.subscribe(reply_topic("pi-5"))
        device.publish(reply_topic("pi-5"), b"for the stranger")
        assert stranger.heard.get(timeout=5) == (reply_topic("pi-5"), b"for the stranger")


def test_a_client_of_mqtt_5_is_told_so(broker):
    with Client(broker, protocol=5) as client:
        assert client.connect() == "Unsupported protocol version"


# ---------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("topic", "knobs"),
    [
        pytest.param("elsewhere", {}, id="other-topic"),
        pytest.param("hardcase/v1/pi 1/request", {}, id="no-device-id"),
        pytest.param("$SYS/x", {}, id="system-topic"),
        pytest.param(request_topic("pi-1"), {"retain": True}, id="retained-request"),
        pytest.param(request_topic("pi-1"), {"qos": 2}, id="qos-2"),
    ],
)
def test_a_publish_that_is_none_of_ours_closes_its_connection(broker, topic, knobs):
    with Client(broker) as client:
        client.connect()
        client.publish(topic, b"x", **knobs)
        assert client.gone.wait(5)
    assert is_alive(broker)


@pytest.mark.parametrize(
    "wanted", ["#", "hardcase/#", "+/+/+/+", "$share/g/hardcase/v1/+/request", "hardcase/v1/+/reply", "$SYS/#"]
)
def test_a_subscription_that_hears_too_much_closes_its_connection(broker, wanted):
    with Client(broker) as client:
        client.connect()
        client.paho.subscribe(wanted, 1)
        assert client.gone.wait(5)


def test_a_packet_beyond_the_limit_closes_its_connection_before_it_is_read(broker):
    with Client(broker) as client:
        client.connect()
        client.publish(request_topic("pi-1"), b"x" * (MAX_REQUEST_BYTES + 2000))
        assert client.gone.wait(5)
    assert is_alive(broker)


def raw(broker: EmbeddedBroker, *parts: bytes) -> bytes:
    """What the broker answers to these bytes before it hangs up (or falls silent for half a second)."""
    heard = b""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as line:
        try:
            for part in parts:
                line.sendall(part)
                time.sleep(0.02)
            line.settimeout(0.5)
            while data := line.recv(4096):
                heard += data
        except TimeoutError:
            heard += b"...silence"
        except ConnectionError:
            pass
    return heard


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


CONNECT = packet(0x10, text(b"MQTT") + b"\4\2\0\0" + text(b"raw"))
CONNACK = b"\x20\2\0\0"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((b"GET / HTTP/1.1\r\n\r\n",), id="http"),
        pytest.param((b"\x10\xff\xff\xff\xff\xff",), id="endless-length"),
        pytest.param((b"\x10\xff\xff\xff\x7f",), id="huge-connect"),
        pytest.param((packet(0x10, text(b"MQTT") + b"\4\x80\0\0" + text(b"raw")),), id="user-announced-but-absent"),
        pytest.param((packet(0x10, text(b"MQTT") + b"\4\2\0\0" + b"\xff\xff"),), id="string-beyond-packet"),
        pytest.param((packet(0x30, text(b"a")),), id="publish-first"),
        pytest.param((CONNECT + b"\0\0",), id="more-than-a-connect"),
        pytest.param((b"\x10\0",), id="empty-connect"),
    ],
)
def test_bytes_that_are_no_connect_are_hung_up_on(broker, parts):
    assert raw(broker, *parts) in (b"", CONNACK)
    assert is_alive(broker)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(CONNECT, id="second-connect"),
        pytest.param(packet(0x32, b"\xff\xff"), id="topic-beyond-packet"),
        pytest.param(packet(0x32, text(request_topic("a").encode())), id="no-packet-id"),
        pytest.param(packet(0x36, text(request_topic("a").encode()) + b"\0\1"), id="qos-3"),
        pytest.param(packet(0x30, text(b"\xff\xfe")), id="topic-not-utf8"),
        pytest.param(b"\x50\2\0\1", id="qos-2-flow"),
        pytest.param(b"\xf0\0", id="mqtt-5-auth"),
        pytest.param(packet(0x82, b"\0\1"), id="subscribe-to-nothing"),
        pytest.param(packet(0x82, b"\0\1" + text(reply_topic("a").encode()) + b"\7"), id="subscribe-qos-7"),
        pytest.param(b"\x32\xff\xff\xff\x7f", id="huge-publish"),
    ],
)
def test_a_broken_packet_after_a_good_connect_is_hung_up_on(broker, after):
    assert raw(broker, CONNECT, after) == CONNACK
    assert is_alive(broker)


def test_a_connection_that_says_nothing_is_closed(broker, monkeypatch):
    monkeypatch.setattr(door_module, "CONNECT_TIMEOUT_S", 0.1)
    assert raw(broker) == b""
    assert raw(broker, CONNECT[:5]) == b""
    assert not broker._clients or is_alive(broker)


# ---------------------------------------------------------------- names


def test_a_device_is_itself_and_nobody_else(guarded):
    with Client(guarded, "pi-1", "secret of pi-1") as device:
        assert device.connect() == "Success"
        assert device.subscribe(reply_topic("pi-1")) == [False]
        device.paho.subscribe(reply_topic("pi-2"), 1)
        assert device.gone.wait(5)
    for topic in (request_topic("pi-2"), status_topic("pi-2"), reply_topic("pi-1")):
        with Client(guarded, "pi-1", "secret of pi-1") as device:
            device.connect()
            device.publish(topic, b"x")
            assert device.gone.wait(5), topic


def test_the_worker_hears_requests_and_answers_them(guarded):
    with (
        Client(guarded, guarded.worker_user, guarded.worker_password) as worker,
        Client(guarded, "pi-2", "secret of pi-2") as device,
    ):
        assert (worker.connect(), device.connect()) == ("Success", "Success")
        worker.subscribe(request_topic("+"))
        device.subscribe(reply_topic("pi-2"))
        device.publish(request_topic("pi-2"), b"q")
        assert worker.heard.get(timeout=5) == (request_topic("pi-2"), b"q")
        worker.publish(reply_topic("pi-2"), b"a")
        assert device.heard.get(timeout=5) == (reply_topic("pi-2"), b"a")


@pytest.mark.parametrize(
    ("user", "password"),
    [("", ""), ("pi-1", ""), ("pi-1", "secret of pi-2"), ("nobody", "secret of pi-1"), ("worker", "worker")],
)
def test_a_wrong_name_or_password_stays_outside(guarded, user, password):
    with Client(guarded, user, password) as client:
        assert client.connect() == "Not authorized"


def test_who_stays_outside_cannot_end_another_session(guarded):
    with (
        Client(guarded, "pi-1", "secret of pi-1", client_id="pi-1") as device,
        Client(guarded, "pi-1", "wrong password", client_id="pi-1") as thief,
    ):
        assert device.connect() == "Success"
        assert thief.connect() == "Not authorized"
        device.subscribe(reply_topic("pi-1"))
        assert not device.gone.is_set()


def test_a_will_on_anothers_topic_stays_outside(guarded):
    with Client(guarded, "pi-1", "secret of pi-1") as client:
        client.paho.will_set(status_topic("pi-2"), b"gone", qos=1, retain=True)
        assert client.connect() == "Not authorized"


def test_no_device_may_be_called_as_the_worker_is(tmp_path):
    with pytest.raises(InputError, match="the broker's own user"):
        add_user(tmp_path / "users", "worker", "a good password")


def test_a_password_can_be_changed_and_none_is_stored(tmp_path):
    file = tmp_path / "users"
    add_user(file, "pi-1", "first password")
    first = read_users(file)
    add_user(file, "pi-1", "second password")
    assert read_users(file).keys() == first.keys()
    assert read_users(file) != first
    assert b"password" not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "# nobody\n", "pi-1\n", "pi-1:zz:00\n", "a b:00:00\n", "\xff\xfe:1"])
def test_a_users_file_that_is_none_is_refused_in_one_line(tmp_path, content):
    file = tmp_path / "users"
    file.write_bytes(content.encode("latin1"))
    with pytest.raises(InputError, match=r"names nobody|is not name:salt:hash|device id"):
        read_users(file)


# ---------------------------------------------------------------- with TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    return folder / "cert.pem", folder / "key.pem"


def test_devices_come_over_tls_and_the_worker_over_loopback(tmp_path, certificate):
    add_user(tmp_path / "users", "pi-1", "secret of pi-1")
    cert, key = certificate
    with EmbeddedBroker(Listen(port=0, cert=cert, key=key, users=tmp_path / "users")) as broker:
        heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
        address = parse_address(broker.url.replace("//", "//pi-1:secret%20of%20pi-1@"), ca=cert)
        device = Connection(
            ConnectionConfig(address=address, client_id="pi-1"), subscribe=reply_topic("pi-1"), on_message=heard.put
        )
        worker = Connection(
            ConnectionConfig(
                address=parse_address(broker.worker_url.replace("//", f"//worker:{broker.worker_password}@")),
                client_id="worker",
            ),
            subscribe=request_topic("+"),
            on_message=lambda message: worker.publish(reply_topic("pi-1"), message.payload) and None,
        )
        try:
            assert address.is_tls
            assert device.start(5), device.trouble
            assert worker.start(5), worker.trouble
            assert device.publish(request_topic("pi-1"), b"over TLS")
            assert heard.get(timeout=5).payload == b"over TLS"
        finally:
            device.stop()
            worker.stop()


def test_a_certificate_that_is_none_is_refused_in_one_line(tmp_path, certificate):
    (tmp_path / "rubbish.pem").write_text("rubbish")
    with pytest.raises(InputError, match="cannot be used"):
        EmbeddedBroker(Listen(port=0, cert=tmp_path / "rubbish.pem", key=certificate[1]))


# ---------------------------------------------------------------- bounds


def test_more_connections_than_allowed_are_closed_at_once(monkeypatch):
    monkeypatch.setattr(broker_module, "MAX_CONNECTIONS", 2)
    with EmbeddedBroker(Listen(port=0)) as broker, Client(broker) as one, Client(broker) as two:
        assert (one.connect(), two.connect()) == ("Success", "Success")
        assert raw(broker, CONNECT) == b""


def test_a_publisher_waits_while_too_much_is_on_its_way():
    async def read_one(is_busy: Callable[[], bool]) -> bytes:
        stream = asyncio.StreamReader()
        stream.feed_data(CONNECT + packet(0x32, text(request_topic("a").encode()) + b"\0\1x"))
        reader = door_module.DoorReader(stream, door_module.Door(), is_busy)
        await reader.connect()
        await reader.read(len(CONNECT))
        async with asyncio.timeout(0.2):
            return await reader.read(1)

    assert asyncio.run(read_one(iter((True, True, False)).__next__)) == b"\x32"
    with pytest.raises(TimeoutError):
        asyncio.run(read_one(lambda: True))


# ---------------------------------------------------------------- where it listens


def test_a_port_in_use_is_one_clear_line(broker):
    with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{broker.port}: Address already in use"):
        EmbeddedBroker(Listen(port=broker.port)).start()


def test_an_address_that_is_not_ours_is_one_clear_line():
    listen = Listen(host="127.0.0.1", port=0)
    object.__setattr__(listen, "host", "192.0.2.1")  # past the check: a documentation address, nobody's
    with pytest.raises(InputError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
        EmbeddedBroker(listen).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
@pytest.mark.parametrize("knobs", [{}, {"users": "u"}, {"cert": "c", "key": "k"}])
def test_a_listener_beyond_loopback_needs_tls_and_users(host, knobs):
    with pytest.raises(InputError, match="give --cert, --key and --users"):
        Listen(host=host, **knobs)


def test_a_certificate_without_its_key_is_refused():
    with pytest.raises(InputError, match="needs its key"):
        Listen(cert="c")


@pytest.mark.parametrize("bind", ["", "1883", ":1883", "host", "host:", "host:x", "host:70000", "host:-1"])
def test_a_bind_that_is_none_is_refused(bind):
    with pytest.raises(InputError, match="is not host:port"):
        parse_bind(bind)


def test_a_bind_may_be_ipv6():
    assert parse_bind("[::1]:1883") == ("::1", 1883)
    assert parse_bind("127.0.0.1:0") == ("127.0.0.1", 0)


def test_stopping_closes_the_port_and_every_connection():
    broker = EmbeddedBroker(Listen(port=0))
    broker.start()
    with Client(broker) as client:
        client.connect()
        broker.stop()
        assert client.gone.wait(5)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port), timeout=1)
    broker.stop()  # again does nothing
