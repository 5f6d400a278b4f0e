# SPDX-License-Identifier: Apache-2.0
"""The address of the embedded broker: on loopback only, as it has neither passwords nor encryption."""

from __future__ import annotations

import ipaddress

from hardcase_edge.errors import InputError

DEFAULT_BIND = "127.0.0.1:1883"


def parse_bind(bind: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host is in brackets.

    Raises
    ------
    InputError
        The text does not have this form.
    """
    host, colon, port = bind.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        raise InputError(f"--bind {bind[:80]!r} is not host:port; for example {DEFAULT_BIND}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_loopback(host: str) -> str:
    """The host as it is, if only this machine can reach it.

    Raises
    ------
    InputError
        The host is not a loopback address.
    """
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback:
        raise InputError(
            f"the embedded broker serves this machine alone and cannot listen on {host[:80]!r}; run mosquitto or EMQX "
            "there and name it with --broker (hardcase cloud acl writes its access rules)"
        )
    return host
