# SPDX-License-Identifier: Apache-2.0
"""A host is flashed over the system's own ssh: one tar file in, its digests back, the script run, its report read.

Each call has a time limit and asks for no password: keys are the user's matter. Names in the URL never become options
or shell words.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import subprocess
import tarfile
from typing import Any, NamedTuple

from hardcase_edge.errors import InputError

from .boot import FIRST
from .contents import Card

CONNECT_S, RUN_S, SEND_S = 10, 600, 600
_URL = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252})"
    r"(?::(?P<port>\d{1,5}))?(?P<root>/[A-Za-z0-9_./-]*)?",
    re.ASCII,
)
_PLACE = "$HOME/.hardcase-flash"
_RECEIVE = f'umask 077 && rm -rf "{_PLACE}" && mkdir "{_PLACE}" && cd "{_PLACE}" && tar -xf - && sync && sha256sum *'
_END = f'rm -rf "{_PLACE}"'
_PROBE = """python3 -c '
import json, os, platform, sys
root = "{root}"
places = [root + p for p in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")] if root else ["/run/systemd/system"]
has_systemd = any(map(os.path.exists, places))
has_openssl = any(os.path.exists(root + p) for p in ("/usr/bin/openssl", "/bin/openssl", "/usr/local/bin/openssl"))
print(json.dumps([list(sys.version_info[:2]), platform.machine(), os.getuid(), has_systemd, has_openssl]))'"""


class _Probe(NamedTuple):
    """What a host says of itself, and of the root folder there."""

    version: list[int]
    machine: str
    user: int
    has_systemd: bool
    has_openssl: bool


class Host(NamedTuple):
    """Where to, and the root folder there; "/" for the host's own system."""

    address: str
    port: str
    root: str


def host_of(url: str) -> Host:
    """The host that a URL names.

    Raises
    ------
    InputError
        It is not ``ssh://[user@]host[:port][/root]``.
    """
    match = _URL.fullmatch(url)
    if match is None or ".." in (match["root"] or "") or not 0 < int(match["port"] or 22) < 65_536:
        raise InputError(f"{url} is not ssh://user@host, with :port or a root folder after it; correct it")
    address = f"{match['user']}@{match['host']}" if match["user"] else match["host"]
    return Host(address, match["port"] or "22", match["root"] or "/")


def flash_host(host: Host, card: Card, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Send a card's files and put them down there.

    Parameters
    ----------
    options : further ones of ssh, such as ``-F FILE``

    Raises
    ------
    InputError
        The host cannot be reached, its system is too old, or something fails there.
    """
    version, machine, user, has_systemd, has_openssl = _probe(host, options)
    if version < [3, 11]:
        raise InputError(f"{host.address} has Python {version[0]}.{version[1]}, and 3.11 or later is needed; update it")
    if host.root == "/" and not has_systemd:
        raise InputError(f"{host.address} does not run systemd, which starts the device; name a root folder there")
    if not has_systemd:
        raise InputError(
            f"{host.root} on {host.address} has no systemd, which starts the device; name the root of a system that has"
        )
    files = {"card.pyz": card.archive, "first.sh": FIRST.encode()}
    files |= {"identity.zip": card.identity} if card.identity else {}
    words = _ssh(host, options, _RECEIVE, SEND_S, _tar(files)).split()
    digests = dict(zip(words[1::2], words[::2], strict=False))
    wrong = [n for n, data in files.items() if digests.get(n) != hashlib.sha256(data).hexdigest()]
    if wrong:
        raise InputError(
            f"{wrong[0]} arrived at {host.address} otherwise than it was sent; make room there, and repeat"
        )
    sudo = "" if user == 0 else "sudo -n "
    root = "" if host.root == "/" else f" {shlex.quote(host.root)}"
    run = f'{sudo}sh "{_PLACE}/first.sh" ssh{root}; status=$?; {sudo}cat "{_PLACE}/log.txt"; {sudo}{_END}; exit $status'
    text = _ssh(host, options, run, RUN_S)
    try:
        report = json.loads(text.strip().splitlines()[-1])
        told = {k: report[k] for k in ("store", "identity", "evaluator", "reason")}
        return {"system": f"{machine} over ssh", **told, "openssl": has_openssl}
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise InputError(f"{host.address} gave no report: {' '.join(text.split())[:200]}; repeat") from error


def verify_host(host: Host, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is on a host, by its own report and its own store.

    Raises
    ------
    InputError
        It cannot be reached, or has nothing of hardcase.
    """
    root = host.root.rstrip("/")
    store, runtime = shlex.quote(f"{root}/var/lib/hardcase"), shlex.quote(f"{root}/usr/local/lib/hardcase")
    user = _probe(host, options).user
    sudo = "" if user == 0 else "sudo -n "
    show = f"{sudo}env PYTHONPATH={runtime} python3 -B -m hardcase_edge.cli store show {store} --json"
    text = _ssh(host, options, f"{sudo}cat {store}/first-boot.json && echo && {show}", RUN_S)
    try:
        first, shown = [json.loads(line) for line in text.strip().splitlines()[-2:]]
        slots = {k: v for k, v in shown.items() if k.startswith("slot") or k == "runs"}
        return {"runtime": first["runtime"], "system": "over ssh", "first_boot": first, "store": slots}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{host.address} gave no report: {' '.join(text.split())[:200]}; flash it") from error


def _probe(host: Host, options: tuple[str, ...]) -> _Probe:
    text = _ssh(host, options, _PROBE.replace("{root}", host.root.rstrip("/")), 60)
    try:
        version, machine, user, *has = json.loads(text.strip().splitlines()[-1])
        has_systemd, has_openssl = map(bool, has)
        return _Probe([int(v) for v in version], str(machine)[:40], int(user), has_systemd, has_openssl)
    except (ValueError, IndexError, TypeError) as error:
        raise InputError(f"{host.address} has no python3 that answers: {' '.join(text.split())[:200]}") from error


def _ssh(host: Host, options: tuple[str, ...], command: str, seconds: float, data: bytes = b"") -> str:
    words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ServerAliveInterval=5"]
    words += [*options, "-p", host.port, "--", host.address, command]
    try:
        process = subprocess.run(words, input=data, capture_output=True, timeout=seconds, check=False)
    except FileNotFoundError as error:
        raise InputError("ssh is not installed here: apt install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{host.address} did not end within {seconds:.0f} s; see what it does, and repeat") from error
    if process.returncode != 0:
        lines = (process.stdout + b"\n" + process.stderr).decode(errors="replace").strip().splitlines() or [
            "no reason given"
        ]
        reason = " ".join(lines[-1].split())[:200]
        remedy = (
            f"see that ssh {host.address} works without a password" if process.returncode == 255 else "mend that there"
        )
        raise InputError(f"{host.address}: {reason}; {remedy}, and repeat")
    return process.stdout[:1_048_576].decode(errors="replace")


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
