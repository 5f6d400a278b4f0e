# SPDX-License-Identifier: Apache-2.0
"""Which certificate an attempt shows: a new one is tried a few times, and nobody is left without the old one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hardcase_cloud.mqtt import packets
from hardcase_edge.framing.packets import Reader
from hardcase_edge.link.address import parse_address
from hardcase_edge.link.certificates import TRIES, Certificates, Pair
from hardcase_edge.link.connection import Connection, ConnectionConfig
from hardcase_edge.link.rivals import SESSION_S

OLD, NEW = (Pair(Path(f"{name}.pem"), Path(f"{name}.key")) for name in ("old", "new"))


def test_a_new_certificate_takes_the_place_of_the_old_one_when_an_attempt_with_it_comes_up():
    accepted: list[Pair] = []
    certificates = Certificates(OLD, accepted.append)
    assert certificates.next() == OLD
    certificates.came_up()
    certificates.offer(NEW)
    certificates.came_up()  # the attempt before it
    assert accepted == []
    assert certificates.next() == NEW
    certificates.came_up()
    assert accepted == [NEW]
    assert not certificates.is_trying
    assert certificates.next() == NEW


def test_a_new_certificate_that_the_broker_refuses_gives_way_to_the_old_one_until_it_is_offered_again():
    certificates = Certificates(OLD)
    certificates.offer(NEW)
    assert [certificates.next() for _ in range(TRIES + 2)] == [NEW] * TRIES + [OLD] * 2
    assert not certificates.is_trying
    certificates.offer(NEW)
    assert certificates.next() == NEW


def test_the_only_certificate_is_shown_for_ever():
    certificates = Certificates(None)
    assert certificates.next() is None
    certificates.offer(NEW)
    assert [certificates.next() for _ in range(TRIES + 2)] == [NEW] * (TRIES + 2)


def test_an_attempt_with_a_damaged_file_shows_none():
    certificates = Certificates(OLD)
    assert certificates.context(parse_address("mqtts://broker.example", environment={}), None) is None


@pytest.mark.parametrize(("certificates", "expected"), [(None, SESSION_S), (Certificates(OLD), 0)])
def test_a_connection_with_a_certificate_leaves_no_session(certificates, expected):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = parse_address(f"mqtt://127.0.0.1:{server.getsockname()[1]}", environment={})
        config = ConnectionConfig(address=address, client_id="pi-1", certificates=certificates, protocol=5)
        connection = Connection(config, subscribe="a", on_message=lambda message: None)
        connection.start()
        peer, _ = server.accept()
        with peer:
            [(first, body)] = Reader(1000).feed(peer.recv(4096))
    connection.stop()
    assert (first, body[:7]) == (0x10, b"\0\4MQTT\5")
    properties, _ = packets.read_properties(body, 10)
    assert properties.get(packets.SESSION_EXPIRY, 0) == expected
    assert properties[packets.MAXIMUM_PACKET] == config.max_packet_bytes
    assert body[7] & 0x02, "a clean start"
