# SPDX-License-Identifier: Apache-2.0
"""Passwords of mosquitto's users: random ones, and their hashes in the form that ``mosquitto_passwd`` writes.

A hash is ``$7$ITERATIONS$SALT$DIGEST``: PBKDF2 with HMAC-SHA-512, salt and digest in base64. The passwords are random,
of 192 bits, so few iterations are enough, and wrong passwords do not keep the broker from its clients.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode

ITERATIONS = 101  # as mosquitto_passwd 2.0
SALT_BYTES = 12
PASSWORD_BYTES = 24


def new_password() -> str:
    """A random password of characters that need no quoting in URLs, shells and files."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def hash_of(password: str, salt: bytes | None = None) -> str:
    """What mosquitto keeps of a password; with a random salt unless one is given.

    >>> hash_of("secret", b"twelve bytes").split("$")[1:4]
    ['7', '101', 'dHdlbHZlIGJ5dGVz']
    """
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def parse_lines(text: str, separator: str) -> dict[str, str]:
    """Names and values of the lines that have both; comments begin with ``#``.

    >>> parse_lines("# a comment\\npi-1:$7$...\\n", ":")
    {'pi-1': '$7$...'}
    """
    lines = [line.partition(separator) for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, _, value in lines if name and value}
