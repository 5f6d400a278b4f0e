# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of Linux for one thread, and tun devices in them; by system calls, without the command ``ip``.

A socket belongs to the namespace of the thread that made it, for as long as it lives. So a thread may enter a
namespace, make its sockets, and leave. All of it needs the capability CAP_SYS_ADMIN, as root has it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from contextlib import suppress

CLONE_NEWNET = 0x4000_0000  # linux/sched.h
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000  # linux/if_tun.h
SET_FLAGS, SET_ADDRESS, SET_MASK, SET_QUEUE = 0x8914, 0x8916, 0x891C, 0x8943  # SIOCSIF* of linux/sockios.h
IFF_UP = 0x1
QUEUE = 10_000  # packets that the kernel keeps until we read them; the default, 500, is less than a fleet's first SYNs
_libc = ctypes.CDLL(None, use_errno=True)


def here() -> int:
    """A file descriptor of this thread's namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def new_namespace() -> None:
    """Move this thread into a new namespace, which has nothing but an interface ``lo`` that is down.

    Raises
    ------
    OSError
        The process may not, or the kernel has no namespaces.
    """
    _checked(_libc.unshare(CLONE_NEWNET))


def enter(namespace: int) -> None:
    """Move this thread into the namespace of a file descriptor.

    Raises
    ------
    OSError
        The process may not.
    """
    _checked(_libc.setns(namespace, CLONE_NEWNET))


def add_tun(name: str, address: str, mask: str) -> int:
    """Make a tun device with this address in this thread's namespace; its file gives and takes IP packets.

    Raises
    ------
    OSError
        There is no ``/dev/net/tun``, or the process may not.
    """
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        _configure(name, address, mask)
    except OSError:
        os.close(file)
        raise
    return file


def all_local(address: str, mask: str) -> None:
    """Make every address of a network this namespace's own: ``lo`` gets the network."""
    _configure("lo", address, mask)


def _configure(name: str, address: str, mask: str) -> None:
    label = name.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for what, value in ((SET_ADDRESS, address), (SET_MASK, mask)):
            fcntl.ioctl(sock, what, struct.pack("16sHH4s16x", label, socket.AF_INET, 0, socket.inet_aton(value)))
        with suppress(PermissionError):  # root of a user namespace may all but this
            fcntl.ioctl(sock, SET_QUEUE, struct.pack("16si20x", label, QUEUE))
        fcntl.ioctl(sock, SET_FLAGS, struct.pack("16sH22x", label, IFF_UP))


def _checked(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
