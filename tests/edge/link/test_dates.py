# SPDX-License-Identifier: Apache-2.0
"""TLS on a device without a clock: chain and name are OpenSSL's to check, dates are compared with a floor."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hardcase_edge.base.clock import RELEASED, Clock
from hardcase_edge.fleet.identity.der import Facts
from hardcase_edge.fleet.identity.enrol import shows
from hardcase_edge.fleet.identity.folder import Identity
from hardcase_edge.link import address
from hardcase_edge.link.address import parse_address, tls_context
from hardcase_edge.link.certificates import Certificates
from hardcase_edge.link.certificates import Pair as OwnPair
from hardcase_edge.link.connection import ConnectionConfig
from hardcase_edge.link.link import Link, LinkConfig
from tests.helpers.edge.device import make_manifest, make_program
from tests.helpers.server import Server

YEAR = 365 * 86_400
Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def certificate(name: str, begin: float, end: float, by: Pair | None = None, *, is_ca: bool = False) -> Pair:
    """A certificate and its key, of this common and DNS name, signed by another pair or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[0].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(begin, UTC))
        .not_valid_after(datetime.fromtimestamp(end, UTC))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return builder.sign(by[1] if by else key, hashes.SHA256()), key


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, another one, and certificates of localhost whose dates and issuers differ."""
    folder, now = tmp_path_factory.mktemp("dates"), time()
    ca = certificate("ours", now - YEAR, now + 9 * YEAR, is_ca=True)
    other = certificate("theirs", now - YEAR, now + 9 * YEAR, is_ca=True)
    old = certificate("old intermediate", now - 2 * YEAR, now - 1000, ca, is_ca=True)
    servers = {
        "valid": (certificate("localhost", now - 1000, now + YEAR, ca),),
        "early": (certificate("localhost", now + YEAR, now + 2 * YEAR, ca),),
        "expired": (certificate("localhost", now - YEAR, now - 1000, ca),),
        "other": (certificate("localhost", now - YEAR, now + YEAR, other),),
        "elsewhere": (certificate("broker.example", now - YEAR, now + YEAR, ca),),
        "below_expired": (certificate("localhost", now - 1000, now + YEAR, old), old),
    }
    (folder / "ca.pem").write_bytes(pem(ca[0]))
    for name, chain in servers.items():
        key = chain[0][1].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{name}.pem").write_bytes(pem(*[c for c, _ in chain]) + key)
    return folder


@contextmanager
def serving(folder: Path, server: str) -> Iterator[int]:
    """The port of a server with this certificate, for one connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{server}.pem")

    def talk(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as line:
            line.recv(1)  # OSError: the client has refused the certificate

    with Server(talk) as running:
        yield running.port


def handshake(folder: Path, server: str, clock: Clock | None) -> str:
    """What a client with this clock says of a server with this certificate; "" if it is content."""
    client = tls_context(parse_address("mqtts://localhost", ca=folder / "ca.pem"), clock)
    assert client is not None
    with serving(folder, server) as port, socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        try:
            client.wrap_socket(plain, server_hostname="localhost").close()
        except ssl.SSLError as error:
            return str(error)
    return ""


WRONG = {
    "expired": "the certificate of localhost expired at",
    "below_expired": "the certificate of old intermediate expired at",
    "other": "unable to get local issuer certificate",
    "elsewhere": "Hostname mismatch",
}


@pytest.mark.parametrize("server", ["valid", "early", *WRONG])
def test_a_clock_that_is_right_refuses_all_but_the_valid_one_and_the_one_that_begins_later(
    folder: Path, server: str
) -> None:
    told = handshake(folder, server, Clock())
    assert WRONG.get(server, "") in told
    assert bool(told) == (server in WRONG)
    by_openssl = handshake(folder, server, None)  # a machine whose clock is right, as before
    assert bool(by_openssl) == (server != "valid")


@pytest.mark.parametrize("server", ["valid", "early", *WRONG])
def test_a_clock_of_1970_changes_nothing_where_the_floor_is_right(
    folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = int(time())
    monkeypatch.setattr("hardcase_edge.base.clock.time", lambda: 0.0)
    assert bool(handshake(folder, server, Clock(floor))) == (server in WRONG)


def test_a_certificate_that_expired_above_the_floor_is_taken_by_a_device_that_cannot_know(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = time() - YEAR / 2
    monkeypatch.setattr("hardcase_edge.base.clock.time", lambda: 0.0)
    monkeypatch.setattr("hardcase_edge.base.clock.RELEASED", 0)
    assert handshake(folder, "expired", Clock(int(floor))) == ""
    assert handshake(folder, "other", Clock(int(floor))) != ""
    assert handshake(folder, "elsewhere", Clock(int(floor))) != ""


def test_without_the_dates_of_the_chain_an_expired_intermediate_would_be_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_chain", lambda socket: [socket.getpeercert()])
    assert handshake(folder, "below_expired", Clock()) == ""


@pytest.mark.parametrize("has_own", [False, True], ids=["", "with a certificate of its own"])
def test_a_link_says_that_the_brokers_certificate_has_expired(folder: Path, has_own: bool) -> None:
    assert "the certificate of localhost expired at" in trouble_of_a_link(folder, "expired", has_own)


@pytest.mark.parametrize("has_own", [False, True], ids=["", "with a certificate of its own"])
def test_a_link_takes_a_certificate_that_a_clock_of_1970_calls_not_yet_valid(folder: Path, has_own: bool) -> None:
    assert "certificate" not in trouble_of_a_link(folder, "early", has_own)  # the server hangs up behind the handshake


def trouble_of_a_link(folder: Path, server: str, has_own: bool) -> str:
    pair = OwnPair(folder / "valid.pem", folder / "valid.pem")  # the key is in the same file
    more = {"certificates": Certificates(pair)} if has_own else {}
    with serving(folder, server) as port:
        url = f"mqtts://localhost:{port}"
        config = LinkConfig.to_broker(url, "d", ca=folder / "ca.pem", clock=Clock(), retry_first_s=9.0, **more)
        link = Link(config, make_program(), make_manifest())
        link.start(5)
        link.stop()
    return link.trouble


def test_a_claim_is_shown_by_the_same_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SeenError(Exception):
        pass

    def connection(config: ConnectionConfig, **more: object) -> None:
        raise SeenError(config)

    monkeypatch.setattr("hardcase_edge.fleet.identity.enrol.Connection", connection)
    clock = Clock()
    with pytest.raises(SeenError) as seen:
        shows(Identity(tmp_path, Facts("d", 0, 1, b"")), "mqtts://localhost", ca=None, wait_s=1.0, clock=clock)
    assert seen.value.args[0].clock is clock


def test_the_runtime_knows_a_day_that_has_passed() -> None:
    assert 1_795_305_600 <= RELEASED <= time() + 86_400
    assert RELEASED % 86_400 == 0
