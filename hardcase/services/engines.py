# SPDX-License-Identifier: Apache-2.0
"""What ``--broker`` and ``--hpc`` of a worker name: an MQTT broker, and a file, a function or a server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    from hardcase_cloud.answer.asking import Answerer
    from hardcase_edge.link.address import Address

__all__ = ["broker_of", "open_model"]

NATS = ("nats://", "natss://")  # which workers took before


def broker_of(args: argparse.Namespace) -> Address:
    """The broker that ``--broker`` and the flags of TLS name.

    Raises
    ------
    InputError
        ``--broker`` is not a URL of MQTT.
    """
    from hardcase_edge.link.address import parse_address

    if args.broker.lower().startswith(NATS):
        raise InputError(
            "a worker has no client for nats:// any more; give --broker the MQTT port of the NATS server, "
            "mqtt://host:1883 or mqtts://host:8883, with one worker for each --tenant"
        )
    return parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)


def open_model(hpc: str, bundle: str, *, limit_s: float | None = None, threads: int = 1) -> Answerer:
    """The f0 of this name.

    Parameters
    ----------
    hpc : a path, ``module:function``, or the URL of a back end, such as ``kserve+http://host/v2/models/NAME``
    bundle : path of a bundle that forwards to it; a file needs none
    limit_s : seconds that one call of a function or a server may take; None: the default
    threads : of a file's model

    Raises
    ------
    InputError
        It cannot be used.
    """
    from hardcase_cloud.answer.backends import backend_of
    from hardcase_edge.sensors.plugin import is_function_name

    backend = backend_of(hpc)
    if backend is None and not is_function_name(hpc):
        from hardcase_cloud.answer.onnx_model import Hpc

        return Hpc(hpc, threads=threads)
    from hardcase_cloud.answer.function import LIMIT_S, function_for

    limit_s = LIMIT_S if limit_s is None else limit_s
    return function_for(hpc, bundle, limit_s=limit_s) if backend is None else backend.open(hpc, bundle, limit_s)
