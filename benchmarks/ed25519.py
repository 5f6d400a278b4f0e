# SPDX-License-Identifier: Apache-2.0
"""The device's check of Ed25519 signatures on the 1,024 vectors of ``cryptography_vectors``, and beside OpenSSL.

    pip install -c constraints.txt -e '.[bench]'
    python -m benchmarks run ed25519 [--seconds 20] [--seed 0]

Each vector is checked as it is, with another message, and with S plus the group's order. The crafted cases of
``tests/helpers/attack/signatures.py`` follow. Ends with status 1 where a verdict is wrong. The vectors take 126 MB of
disk, so the tests do without them: they have the RFC's own, and OpenSSL makes and judges the rest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import cryptography_vectors

from hardcase_edge.bundle.ed25519 import is_signed
from tests.helpers.attack.signatures import L, attack


def vectors() -> list[tuple[bytes, bytes, bytes]]:
    """Message, signature and public key of each vector."""
    with cryptography_vectors.open_vector_file("asymmetric/Ed25519/sign.input", "r") as file:
        lines = [line.split(":") for line in file if line.strip()]
    return [(bytes.fromhex(m), bytes.fromhex(signed)[:64], bytes.fromhex(public)) for _, public, m, signed, _ in lines]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--seconds", type=float, default=20, help="of crafted cases (default 20)")
    parser.add_argument("--seed", type=int, default=0)


def run(args: Any) -> int:
    """Check, and print; 1 if a vector is judged wrongly."""
    right, wrong_message, beyond, ms = [], [], [], []
    for message, signature, public in vectors():
        began = time.process_time()
        right.append(is_signed(message, signature, public))
        ms.append((time.process_time() - began) * 1000)
        wrong_message.append(is_signed(message + b"\0", signature, public))
        s = int.from_bytes(signature[32:], "little") + L
        beyond.append(is_signed(message, signature[:32] + s.to_bytes(32, "little"), public))
    print(f"{sum(right)} of {len(right)} vectors accepted, {sum(wrong_message)} with another message, "
          f"{sum(beyond)} with S plus the order; {statistics.median(ms):.2f} ms CPU each")  # fmt: skip
    outcomes = attack(args.seconds, args.seed)
    for outcome in outcomes:
        print(f"{outcome.what}: {outcome.inputs:,} cases, {outcome.wrong} wrong")
    return int(not all(right) or any(wrong_message) or any(beyond) or any(o.wrong for o in outcomes))
