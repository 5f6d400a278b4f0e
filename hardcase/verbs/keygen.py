# SPDX-License-Identifier: Apache-2.0
"""``hardcase keygen``: create a key pair: a private key that signs bundles, and a public key for devices."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hardcase_edge.errors import InputError

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
    """Write both files; where a killed run has left the private key alone, its public key."""
    from hardcase_edge.bundle.signature import make_keys

    private, public = Path(f"{args.out}.key"), Path(f"{args.out}.pub")
    if public.exists():
        raise InputError(f"{public} exists, and a key is never overwritten; choose another --out")
    is_half = private.exists()
    if is_half:
        shared = _public_half(private)
    else:
        secret, shared = make_keys()
        _write_new(private, secret, 0o600)
    try:
        _write_new(public, shared, 0o644)
    except BaseException:
        if not is_half:
            private.unlink(missing_ok=True)
        raise
    if args.json:
        print(json.dumps({"private": str(private), "public": str(public)}))
    else:
        print(f"{private}: signs bundles (hardcase export --key), keep it secret\n{public}: for devices (--trust)")
    return 0


def _public_half(private: Path) -> bytes:
    """The public key of a private key that is there already."""
    from hardcase_edge.base.files import read_bounded
    from hardcase_edge.bundle.signature import MAX_KEY_BYTES, public_of

    try:
        return public_of(read_bounded(private, MAX_KEY_BYTES, "private key", remedy="choose another --out"))
    except InputError as error:
        raise InputError(f"{private} exists, and a key is never overwritten; choose another --out") from error


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a new file; an existing key is never overwritten, and a partial one never left."""
    from hardcase_edge.base.files import write_new

    try:
        write_new(path, data, mode=mode)
    except FileExistsError as error:
        raise InputError(f"{path} exists, and a key is never overwritten; choose another --out") from error
