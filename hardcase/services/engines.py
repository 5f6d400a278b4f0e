# SPDX-License-Identifier: Apache-2.0
"""What ``--broker`` of a worker names: a broker of MQTT, or servers of NATS."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardcase_edge.link.address import Address

__all__ = ["engine_of"]


def engine_of(args: argparse.Namespace) -> tuple[Address, str, dict[str, Any]]:
    """The address, its URL without the password, and what a ``Worker`` needs for it beside the address.

    Raises
    ------
    InputError
        ``--broker`` is not a URL of a known engine.
    """
    from hardcase_cloud.nats.servers import NATS_SHAPE, is_nats, parse_servers, url_of
    from hardcase_edge.link.address import parse_address

    tls = {"ca": args.ca, "cert": args.cert, "key": args.key}
    if not is_nats(args.broker):
        address = parse_address(args.broker, **tls, or_else=f", or {NATS_SHAPE}")
        return address, address.url, {}
    from hardcase_cloud.nats.client import NatsClient

    servers = parse_servers(args.broker, **tls)

    def opener(config: Any, is_stopping: Any, clock: Any) -> NatsClient:
        return NatsClient(config, servers, is_stopping=is_stopping, clock=clock)

    return servers[0], url_of(servers[0], servers), {"opener": opener}
