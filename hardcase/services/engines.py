# SPDX-License-Identifier: Apache-2.0
"""What ``--broker`` and ``--hpc`` of a worker name: a broker or servers of NATS, and a file, a function or a server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardcase_cloud.answering.asking import Answerer
    from hardcase_edge.link.address import Address

__all__ = ["engine_of", "open_model"]


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


def open_model(hpc: str, bundle: str, *, limit_s: float | None = None, threads: int = 1) -> Answerer:
    """The f0 of this name.

    Parameters
    ----------
    hpc : a path, ``module:function``, or ``kserve+http://host/v2/models/NAME``
    bundle : path of a bundle that forwards to it; a file needs none
    limit_s : seconds that one call of a function or a server may take; None: the default
    threads : of a file's model

    Raises
    ------
    InputError
        It cannot be used.
    """
    from hardcase_cloud.answering.kserve import is_kserve
    from hardcase_edge.sensors.plugin import is_function_name

    if not (is_kserve(hpc) or is_function_name(hpc)):
        from hardcase_cloud.answering.onnx_model import Hpc

        return Hpc(hpc, threads=threads)
    from hardcase_cloud.answering.function import LIMIT_S, function_for
    from hardcase_cloud.answering.kserve import kserve_for

    open_it = kserve_for if is_kserve(hpc) else function_for
    return open_it(hpc, bundle, limit_s=LIMIT_S if limit_s is None else limit_s)
