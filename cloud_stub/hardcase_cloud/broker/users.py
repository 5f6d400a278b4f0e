"""Names and passwords of the embedded broker: a text file, one ``name:salt:hash`` per line, scrypt, hex."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from hardcase_edge.base.files import write_whole
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import check_device_id

__all__ = ["WORKER", "Users", "add_user", "is_password", "read_users"]

MAX_USERS_BYTES = 4 * 1024 * 1024
WORKER = "worker"  # reads all requests and writes all replies; its password changes with every start
SALT_BYTES, HASH_BYTES = 16, 32
SCRYPT = {"n": 2**14, "r": 8, "p": 1}  # about 50 ms and 16 MB per check
MAX_PASSWORD_BYTES = 1024

Users = dict[str, tuple[bytes, bytes]]  # name: salt, hash


def hash_password(password: bytes, salt: bytes) -> bytes:
    """Scrypt of a password; slow on purpose."""
    return hashlib.scrypt(password, salt=salt, dklen=HASH_BYTES, **SCRYPT)


def is_password(users: Users, name: str | None, password: bytes | None) -> bool:
    """Whether this is the name's password; as slow for an unknown name as for a known one."""
    salt, expected = users.get(name or "", (b"\0" * SALT_BYTES, b""))
    if password is None or len(password) > MAX_PASSWORD_BYTES:
        return False
    return hmac.compare_digest(hash_password(password, salt), expected)


def read_users(path: str | Path) -> Users:
    """The users in this file.

    Raises
    ------
    InputError
        It cannot be read, holds nobody, or a line is not one of ours.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_USERS_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"users file {path} cannot be read: {error.strerror}; hardcase cloud user writes it"
        ) from error
    if len(data) > MAX_USERS_BYTES:
        raise InputError(f"users file {path} has more than {MAX_USERS_BYTES} bytes")
    users: Users = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, salt, digest = line.strip().split(":")
            users[check_device_id(name)] = bytes.fromhex(salt), bytes.fromhex(digest)
        except ValueError as error:
            raise InputError(
                f"users file {path}, line {number}, is not name:salt:hash; write it with hardcase cloud user"
            ) from error
    if not users:
        raise InputError(f"users file {path} names nobody; add a user with hardcase cloud user")
    return users


def add_user(path: str | Path, name: str, password: str) -> None:
    """Add a user or change a password; the file is readable by its owner alone.

    Raises
    ------
    InputError
        A name that no device may have, an empty or overlong password, or a file that cannot be used.
    """
    if check_device_id(name) == WORKER:
        raise InputError(f"{WORKER!r} is the broker's own user; choose another device id")
    secret = password.encode()
    if not 8 <= len(secret) <= MAX_PASSWORD_BYTES:
        raise InputError(f"a password of {len(secret)} bytes was given; choose one of 8 to {MAX_PASSWORD_BYTES}")
    users = read_users(path) if os.path.exists(path) else {}
    salt = secrets.token_bytes(SALT_BYTES)
    users[name] = salt, hash_password(secret, salt)
    lines = [f"{n}:{s.hex()}:{h.hex()}\n" for n, (s, h) in sorted(users.items())]
    write_whole(path, "".join(lines).encode(), mode=0o600)
