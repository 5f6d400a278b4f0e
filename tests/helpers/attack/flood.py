# SPDX-License-Identifier: Apache-2.0
"""A process that floods a broker with one device's valid requests: ``python -m tests.helpers.attack.flood``.

It prints "begun", and at its end how many it sent; it goes on beyond its time until its input is closed.

It speaks MQTT 3.1.1 through bare sockets, because a client library is slower than what it is to overload.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys
import time

from hardcase_edge.link.wire import Request, pack_request, request_topic

from ..cloud.raw_mqtt import connect, publish
from ..cloud.requests import DTYPES

BURST = 64  # packets in one write


def request(sha256: str, deadline_ms: int = 2000) -> bytes:
    """A valid request with a random id."""
    return pack_request(Request(os.urandom(16), bytes.fromhex(sha256), deadline_ms, (1.0, 4.0)), DTYPES)


def flood(args: argparse.Namespace) -> int:
    """Send as told; returns how many requests the broker took."""
    line = socket.create_connection((args.host, args.port), timeout=10)
    line.sendall(connect(args.device, args.device, args.password or "x"))
    assert line.recv(4)[:1] == b"\x20", "no CONNACK"
    print("begun", flush=True)
    topic, n_sent, began = request_topic(args.device), 0, time.monotonic()
    while (passed := time.monotonic() - began) < args.seconds or not select.select([sys.stdin], [], [], 0)[0]:
        behind = args.rate * passed - n_sent
        if behind < 1:
            time.sleep(0.001)
            continue
        n = min(BURST, int(behind))
        packets = [publish(topic, request(args.sha), qos=args.qos, packet_id=1 + k) for k in range(n)]
        try:
            line.sendall(b"".join(packets))
            line.setblocking(False)
            while line.recv(65_536):  # acknowledgements, which nobody looks at
                pass
        except BlockingIOError:
            pass
        except OSError:  # the broker has closed the connection, or reads no more of it
            break
        line.settimeout(10)
        n_sent += n
    return n_sent


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--password", default="")
    parser.add_argument("--sha", required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--qos", type=int, default=0)
    parser.add_argument("--seconds", type=float, required=True)
    print(flood(parser.parse_args()))
