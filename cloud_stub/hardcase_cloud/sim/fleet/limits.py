# SPDX-License-Identifier: Apache-2.0
"""How many connections this machine lets one process have: open files and ports, and what to do for more."""

from __future__ import annotations

import resource
from pathlib import Path

from hardcase_edge.errors import InputError

SPARE_FILES = 64  # of Python, the event loop and what the process writes
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def raise_file_limit(n_devices: int, each: int = 1) -> None:
    """Have as many open files as the devices need, within what the system allows this process and those it starts.

    Parameters
    ----------
    each : open files of one device in one process

    Raises
    ------
    InputError
        They are too few, with the number and the command.
    """
    needed = each * n_devices + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"{n_devices} devices need {needed} open files, and this process may have {hard}; raise the limit with "
            f"`ulimit -Hn {needed}` as root, or use --devices {max(1, (hard - SPARE_FILES) // each)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def check_ports(n_devices: int, path: Path = PORT_RANGE) -> None:
    """Check that there are as many local ports as connections to one address of a broker.

    Raises
    ------
    InputError
        They are too few, with the number and the command.
    """
    try:
        first, last = (int(word) for word in path.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no Linux: then the connections themselves tell
        return
    if n_devices > last - first + 1:
        raise InputError(
            f"{n_devices} devices need as many local ports, and this machine has {last - first + 1}; widen the range "
            f'with `sysctl net.ipv4.ip_local_port_range="1024 65535"`, or use fewer --devices'
        )
