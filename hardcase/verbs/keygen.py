# SPDX-License-Identifier: Apache-2.0
"""``hardcase keygen``: create a key pair: a private key that signs bundles, and a public key for devices."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from pathlib import Path

from hardcase_edge.errors import InputError

__all__ = ["EXAMPLES", "HELP", "arguments", "run"]

HELP = "Create a key pair: NAME.key signs bundles, NAME.pub goes to devices."
EXAMPLES = """\
hardcase keygen --out fleet
hardcase export build --key fleet.key --out model.hcb   # devices then take --trust fleet.pub"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--out", required=True, metavar="NAME", help="path without extension; writes NAME.key and NAME.pub"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Write both files, or neither."""
    from hardcase_edge.bundle.signature import make_keys

    private, public = Path(f"{args.out}.key"), Path(f"{args.out}.pub")
    secret, shared = make_keys()
    _write_new(private, secret, 0o600)
    try:
        _write_new(public, shared, 0o644)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    if args.json:
        print(json.dumps({"private": str(private), "public": str(public)}))
    else:
        print(f"{private}: signs bundles (hardcase export --key), keep it secret\n{public}: for devices (--trust)")
    return 0


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file; an existing key is never overwritten, and a partial one never left."""
    try:
        binary = getattr(os, "O_BINARY", 0)  # of Windows, which otherwise writes other line ends
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | binary, mode)
    except FileExistsError as error:
        raise InputError(f"{path} exists, and a key is never overwritten; choose another --out") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; choose another folder with --out") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise InputError(f"{path} cannot be written: {error.strerror}; free some space and try again") from error
