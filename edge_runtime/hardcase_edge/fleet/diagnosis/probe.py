# SPDX-License-Identifier: Apache-2.0
"""One CONNECT to a broker, to hear what it says to it; nothing is subscribed to and nothing published.

The client has an id of its own, so that it does not throw off the device that uses the same broker.
"""

from __future__ import annotations

import os
from time import monotonic

from ...link.address import Address, tls_context
from ...link.paho_client import V5, V311, Client, ConnectionConfig

WRONG_VERSION = 132  # reason of a CONNACK; another version is tried


def connect_reason(address: Address, timeout_s: float = 5.0) -> int | None:
    """The reason in the broker's CONNACK: 0 if it accepts, None if what answers does not speak MQTT.

    Raises
    ------
    OSError, ValueError
        There is no connection.
    """
    config = ConnectionConfig(address=address, client_id=f"doctor-{os.urandom(4).hex()}", connect_timeout_s=timeout_s)
    reasons: list[int] = []
    for version in (V5, V311):
        client = Client(config, version, tls_context(address), None)
        client.on_connect = lambda _client, reason, _words, _has_session: reasons.append(reason)
        try:
            client.connect()
            until = monotonic() + timeout_s
            while not reasons and monotonic() < until and client.loop(0.25):
                pass
        finally:
            client.close()
        if reasons and reasons[-1] != WRONG_VERSION:
            break
    return reasons[-1] if reasons else None
