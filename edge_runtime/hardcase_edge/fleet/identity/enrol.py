# SPDX-License-Identifier: Apache-2.0
"""Carries exchanges over MQTT: with a claim or the device's own certificate, on a connection of its own or a link's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ...errors import InputError, LinkError
from ...link.address import Address, parse_address
from ...link.connection import Connection
from ...link.paho_client import ConnectionConfig, Message
from ...link.wire import reply_topic
from .exchange import Exchange
from .folder import Identities, Identity
from .messages import enrol_topic, enrolled_topic

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...link.link import Link

CLAIM_PORT = 8885
POLL_S = 0.1
REPLY_S = 20.0  # how long an exchange over a link waits for its reply
MAX_PACKET_BYTES = 8_192


def broker_of_claims(identities: Identities, broker: str) -> str:
    """The URL of the listener for claims: the claim's own, or port 8885 of the device's broker.

    Raises
    ------
    InputError
        The broker's URL is unusable.
    """
    address = parse_address(broker)
    host = f"[{address.host}]" if ":" in address.host else address.host
    return identities.claim_broker() or f"mqtts://{host}:{CLAIM_PORT}"


def enrol(
    identities: Identities, shown: Identity, device: str, url: str, *, ca: str | Path | None, wait_s: float,
    clock: Clock,
) -> Identity:  # fmt: skip
    """Exchange the request for this device's certificate on a connection of its own.

    Parameters
    ----------
    shown : the claim, or the device's own identity, with which the connection is made
    url : the listener that takes it, ``mqtts://``
    ca : authority of the broker's certificate; None: the one beside ``shown``
    wait_s : seconds for all of it, the connection included
    clock : by which the broker's certificate expires

    Raises
    ------
    LinkError
        The broker cannot be reached or refuses the certificate, nobody answers, or the authority refuses.
    InputError
        The URL or a file is unusable, or no key can be made.
    """
    address = parse_address(url, ca=ca or shown.ca, cert=shown.cert, key=shown.key)
    opened, sender = identities.begin(device, shown.ca), shown.facts.name
    exchange = Exchange(opened.request)
    connection = _connection(address, sender, enrolled_topic(sender), lambda m: exchange.receive(m.payload), clock)
    connection.start()
    try:
        _carry(exchange, lambda payload: connection.publish(enrol_topic(sender), payload), lambda: False, wait_s)
        trouble = connection.trouble
    finally:
        connection.stop()
    if not exchange.certificate:
        why = exchange.refusal or trouble or f"nobody answered within {wait_s:g} s; run hardcase cloud enrol"
        raise LinkError(f"broker {address.url}: no certificate for {device}: {why}")
    return identities.finish(opened.number, exchange.certificate)


def over_link(identities: Identities, current: Identity, link: Link) -> Identity | str:
    """Renew the certificate over a link that is connected: the new identity, or why there is none.

    Raises
    ------
    InputError
        A file is unusable, or no key can be made.
    """
    name = current.facts.name
    opened = identities.begin(name, current.ca)
    exchange = Exchange(opened.request)
    link.listen(enrolled_topic(name), exchange.receive)
    try:
        _carry(exchange, lambda payload: link.send(enrol_topic(name), payload), lambda: link.is_stopped, REPLY_S)
    finally:
        link.listen(enrolled_topic(name), None)
    if not exchange.certificate:
        return exchange.refusal or f"nobody answered within {REPLY_S:g} s"
    return identities.finish(opened.number, exchange.certificate)


def shows(identity: Identity, url: str, *, ca: str | Path | None, wait_s: float, clock: Clock) -> str:
    """Connect once with an identity, as ``enrol`` does: empty if the broker accepts it, otherwise why not.

    Raises
    ------
    InputError
        The URL or a file is unusable.
    """
    address = parse_address(url, ca=ca or identity.ca, cert=identity.cert, key=identity.key)
    name = identity.facts.name
    connection = _connection(address, name, reply_topic(name), lambda message: None, clock)
    try:
        until = monotonic() + wait_s
        is_up = connection.start(wait_s)
        while not is_up and monotonic() < until:
            threading.Event().wait(POLL_S)
            is_up = connection.is_up
        return "" if is_up else connection.trouble or f"no answer within {wait_s:g} s"
    finally:
        connection.stop()


def _connection(
    address: Address, name: str, topic: str, on_message: Callable[[Message], None], clock: Clock
) -> Connection:
    if not address.is_tls:
        raise InputError(f"broker {address.url} is not encrypted, and a certificate is; use mqtts://")
    config = ConnectionConfig(address=address, client_id=name, max_packet_bytes=MAX_PACKET_BYTES, clock=clock)
    return Connection(config, subscribe=topic, on_message=on_message)


def _carry(exchange: Exchange, send: Callable[[bytes], object], is_stopped: Callable[[], bool], wait_s: float) -> None:
    """Send what is due until the exchange is over, somebody stops it, or the time is."""
    pause, until = threading.Event(), monotonic() + wait_s
    while not exchange.is_over and not is_stopped() and (now := monotonic()) < until:
        if (payload := exchange.due(now)) is not None and not send(payload):
            exchange.unsent()
        pause.wait(POLL_S)
