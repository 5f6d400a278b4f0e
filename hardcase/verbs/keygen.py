"""``hardcase keygen``: a pair of keys, one to sign bundles with and one that devices trust."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from pathlib import Path

from hardcase_edge.errors import InputError

__all__ = ["HELP", "arguments", "run"]

HELP = "Make a pair of keys: NAME.key signs bundles, NAME.pub goes to devices."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--out", required=True, metavar="NAME", help="path without ending; NAME.key and NAME.pub")
    parser.add_argument("--json", action="store_true", help="one JSON object")


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
    """A file that was not there before: an existing key is never overwritten, a half-written one never left."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise InputError(f"{path} is already there and a key is never overwritten; choose another --out") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; name a folder that can be") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise InputError(f"{path} cannot be written: {error.strerror}; make room and try again") from error
