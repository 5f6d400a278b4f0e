# SPDX-License-Identifier: Apache-2.0
"""A new key and the request for its certificate, made by the command ``openssl``, and the check of what comes back.

Nothing secret is on a command line: the key is read from standard output, and then from its file.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import InputError
from ...link.wire import check_name

LIMIT_S = 60.0  # a board without entropy at its first boot waits for some
CONFIG = b"[req]\ndistinguished_name=names\n[names]\n"  # in place of the system's, which may lack or be anything


def make_key() -> bytes:
    """A new private key on P-256, as PEM.

    Raises
    ------
    InputError
        The command is missing, or fails.
    """
    return _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def make_request(key: Path, device: str) -> bytes:
    """A certificate request (PKCS#10, DER) for this name, signed by the private key in a file.

    Raises
    ------
    InputError
        The name is not a device id, the command is missing, or it cannot use the key.
    """
    subject = f"/CN={check_name(device)}"
    return _openssl("req", "-new", "-key", str(key), "-subj", subject, "-outform", "DER", "-config", "/dev/stdin")


def check_issued(certificate: bytes, ca: Path) -> None:
    """Return if an authority has signed a certificate (PEM) for a client, whatever the time is.

    Raises
    ------
    InputError
        It has not, or the command is missing.
    """
    _openssl("verify", "-CAfile", str(ca), "-no_check_time", "-purpose", "sslclient", given=certificate)


def _openssl(*arguments: str, given: bytes = CONFIG) -> bytes:
    import subprocess  # imported here: it takes 8 ms, and a device makes a key a few times a year

    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        process = subprocess.run(
            ["openssl", *arguments], input=given, capture_output=True, timeout=LIMIT_S, env=environment, check=True
        )
    except FileNotFoundError as error:
        raise InputError("the command openssl is missing; install it: sudo apt install openssl") from error
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise InputError(f"openssl {arguments[0]} failed: {lines[-1][:200] if lines else error}") from error
    return process.stdout
