# SPDX-License-Identifier: Apache-2.0
"""A folder of settings for mosquitto: passwords, access rules, and limits that no device can pass.

Devices have a listener of their own, at which a client's id is its user name, so that no device can take over the
connection of another. Workers have another listener, which takes no device's password, because several workers share
a user name. Devices ``TENANT/DEVICE`` make a tenant, who gets users of every role. A user who is there already keeps
the password.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hardcase_edge.base.files import check_replaceable, read_bounded, sweep, write_whole
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import check_device_id, tenant_of
from hardcase_edge.program.readings import MAX_REQUEST_BYTES

from .rules import rules_for, users_of

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_DEVICES = 100_000
MAX_FACTS_BYTES = 8_192  # of a device, with its status, as a store takes them
MARK = "# Written by hardcase cloud acl"
CONF, RULES, DEVICES, WORKERS = "hardcase.conf", "hardcase.acl", "hardcase.devices", "hardcase.workers"
PASSWORDS = "hardcase.passwords"


@dataclass(frozen=True, slots=True)
class Written:
    """What a run did: names of users with a new password, and how many kept theirs and how many are gone."""

    new: tuple[str, ...]
    n_kept: int
    n_removed: int


def read_devices(path: str | Path) -> list[str]:
    """The device ids in a file: one a line; blank lines and lines that begin with ``#`` say nothing.

    Raises
    ------
    InputError
        The file cannot be read, is too large, names no device or one twice, or a line is not a device id.
    """
    data = read_bounded(path, MAX_FILE_BYTES, "list of devices", remedy="give a text file with a device id a line")
    lines = [line.strip() for line in data.decode("utf-8", errors="replace").splitlines()]
    devices: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            check_device_id(line)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
        if line in devices:
            raise InputError(f"{path}, line {number}: {line} is in line {devices[line]} already; remove one")
        devices[line] = number
    if not 1 <= len(devices) <= MAX_DEVICES:
        raise InputError(f"{path} names {len(devices)} devices; name 1 to {MAX_DEVICES}, one a line")
    return list(devices)


def write_acl(folder: str | Path, devices: Sequence[str], *, listen: str = "", **users: str | None) -> Written:
    """Write all files into a folder, which is made if need be; runs into one folder wait for each other.

    Parameters
    ----------
    folder : where the files go, and where mosquitto will read them
    devices : device ids, as of ``read_devices``
    listen : IP address of the listeners; empty: all of the machine
    users : as for ``rules.users_of``

    Raises
    ------
    InputError
        A name is not valid or has two roles, the folder cannot be written, or a file there is not of an earlier run.
    """
    tenants = sorted({tenant_of(device) for device in devices} - {""})
    rules = rules_for("mosquitto", tenants, **users)
    workers = list(users_of(tenants, **users))
    if both := sorted(set(workers) & set(devices)):
        raise InputError(f"{both[0]} is a device and cannot have another role too; choose another name")
    here = Path(folder).absolute()
    if not str(here).isprintable():
        raise InputError(f"the folder's path {str(here)[:80]!r} does not fit a line of settings; choose another --out")
    with locked(here):
        for name in (CONF, RULES, DEVICES, WORKERS, PASSWORDS):
            check_own(here / name)
        written = write_users(here, list(devices), workers)
        write_whole(here / RULES, f"{MARK}: acl_file\n{without_head(rules)}".encode(), mode=0o640)
        write_whole(here / CONF, _conf(here, len(devices), listen).encode())
        return written


def write_users(here: Path, devices: list[str], workers: list[str]) -> Written:
    """Write the passwords of these users and their hashes; those who are there already keep theirs."""
    hashes_before = {**_read(here / DEVICES, ":"), **_read(here / WORKERS, ":")}
    passwords = _read(here / PASSWORDS, " ")
    users = devices + workers
    new = tuple(user for user in users if user not in hashes_before)
    passwords |= {user: passwords.get(user) or new_password() for user in new}
    hashes = {user: hashes_before.get(user) or hash_of(passwords[user]) for user in users}
    shown = "".join(f"{user} {passwords[user]}\n" for user in users if user in passwords)
    # passwords first: a run that ends between two files leaves no user whose password nobody knows
    write_whole(here / PASSWORDS, f"{MARK}: give each user its password; keep secret\n{shown}".encode(), mode=0o600)
    for name, of in ((DEVICES, devices), (WORKERS, workers)):
        lines = "".join(f"{user}:{hashes[user]}\n" for user in of)
        write_whole(here / name, f"{MARK}: password_file\n{lines}".encode(), mode=0o640)
    return Written(new, len(users) - len(new), len(set(hashes_before) - set(users)))


def without_head(rules: str) -> str:
    """The rules without the settings in the comments at their top, as those of ``hardcase.conf`` take their place."""
    return "".join(line for line in rules.splitlines(keepends=True) if not line.startswith("#")).lstrip("\n")


def _conf(here: Path, n_devices: int, listen: str) -> str:
    at = f" {listen}" if listen else ""
    return CONF_TEXT.format(mark=MARK, here=here, max_connections=2 * n_devices + 16, at=at) + limits(n_devices)


def _read(path: Path, separator: str) -> dict[str, str]:
    if not path.exists():
        return {}
    data = read_bounded(path, MAX_FILE_BYTES, "file", remedy="remove it, and all users get new passwords")
    return parse_lines(data.decode("utf-8", errors="replace"), separator)


def check_own(path: Path) -> None:
    """Refuse to replace a file that this module did not write."""
    remedy = "choose another folder with --out, or move the file away"
    check_replaceable(path, "a file of hardcase cloud acl", lambda head: head.startswith(MARK.encode()), remedy=remedy)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder, and hold it against other runs until the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; choose another folder with --out") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        sweep(folder, "hardcase.*")
        yield
    finally:
        os.close(descriptor)


CONF_TEXT = """\
{mark}: include_dir of mosquitto.conf, or its whole
# Put the broker's certificate and its key where the lines below look for them.

per_listener_settings true

# for devices: a client's id is its user name
listener 8883{at}
certfile /etc/mosquitto/certs/broker.pem
keyfile /etc/mosquitto/certs/broker.key
allow_anonymous false
use_username_as_clientid true
max_connections {max_connections}
password_file {here}/hardcase.devices
acl_file {here}/hardcase.acl

# for workers, the watcher and the store
listener 8884{at}
certfile /etc/mosquitto/certs/broker.pem
keyfile /etc/mosquitto/certs/broker.key
allow_anonymous false
max_connections 256
password_file {here}/hardcase.workers
acl_file {here}/hardcase.acl
"""


def limits(n_devices: int) -> str:
    """Settings for all listeners; what waits for one client may be status and facts of all devices, which come once."""
    return f"""
# for all
set_tcp_nodelay true
persistence false
persistent_client_expiration 1h
message_size_limit {MAX_REQUEST_BYTES}
max_packet_size {MAX_REQUEST_BYTES + 1024}
max_inflight_messages 200
max_queued_messages {1000 + 2 * n_devices}
max_queued_bytes {8388608 + MAX_FACTS_BYTES * n_devices}
memory_limit {536870912 + 2 * MAX_FACTS_BYTES * n_devices}
"""


# Passwords of mosquitto's users: random ones, and their hashes in the form that ``mosquitto_passwd`` writes.
#
# A hash is ``$7$ITERATIONS$SALT$DIGEST``: PBKDF2 with HMAC-SHA-512, salt and digest in base64. The passwords are
# random, of 192 bits, so few iterations are enough, and wrong passwords do not keep the broker from its clients.


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
