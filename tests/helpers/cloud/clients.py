# SPDX-License-Identifier: Apache-2.0
"""Bare MQTT clients that ask as devices do, for the cloud's tests."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from hardcase_edge.link.address import parse_address
from hardcase_edge.link.wire import reply_topic


@contextmanager
def asking(
    url: str, device: str, protocol: int = 5
) -> Iterator[tuple[paho.Client, queue.SimpleQueue[paho.MQTTMessage]]]:
    """A bare client of one device, or of all for "+"; yields it and the queue of replies."""
    address = parse_address(url)
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=protocol)
    heard: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
    ready = threading.Event()
    client.on_message = lambda _c, _d, message: heard.put(message)
    client.on_subscribe = lambda *_: ready.set()
    client.connect(address.host, address.port)
    client.loop_start()
    client.subscribe(reply_topic(device), 1)
    assert ready.wait(60)
    try:
        yield client, heard
    finally:
        client.disconnect()
        client.loop_stop()
