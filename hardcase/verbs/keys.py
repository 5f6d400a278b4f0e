# SPDX-License-Identifier: Apache-2.0
"""``hardcase keys``: several keys for a fleet, keys that change, and the signed list of its bundles (TUF 1.0)."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

from ..options import add_json, report

if TYPE_CHECKING:
    from types import ModuleType

    from ..keys.repository import Lives, Places, Summary

HELP = "Keep a fleet's keys, and sign the list of bundles that its devices take."
EXAMPLES = """\
hardcase keys init fleet --root-keys /media/one --root-keys /media/two --root-keys /media/three
hardcase keys sign fleet model.hcb                  # devices: hardcase-edge store put STORE model.hcb --metadata fleet
hardcase keys renew fleet --expires 30d             # the same list counts for another month
hardcase keys rotate fleet --role targets --root-keys /media/one --root-keys /media/two"""
TERMS = (
    "root: the keys that say which keys count; targets: the list of bundles; timestamp: says which list is the newest; "
    "metadata: all of these, as signed JSON files of The Update Framework (TUF)"
)
ROLES = ("root", "targets", "snapshot", "timestamp")
MAX_KEYS = 16  # of a role; a device takes no more
MAX_SECONDS = 100 * 365 * 86_400
UNITS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_LIFE = re.compile(r"([1-9][0-9]{0,4})([hdwy])", re.ASCII)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the commands ``init``, ``sign``, ``renew`` and ``rotate``."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    init = commands.add_parser("init", help="Make keys and the first root, which you give to devices by hand.")
    sign = commands.add_parser("sign", help="List bundles that devices may take.")
    renew = commands.add_parser("renew", help="Extend the validity of the same list.")
    rotate = commands.add_parser("rotate", help="Replace keys, in a new root that the old root's keys sign.")
    for command, act in ((init, _init), (sign, _sign), (renew, _renew), (rotate, _rotate)):
        command.add_argument("folder", metavar="DIR", help="folder of the metadata, which devices may read")
        command.add_argument(
            "--private", metavar="DIR", help="folder of the private keys, which nobody else reads (default: DIR-keys)"
        )
        command.add_argument(
            "--expires", type=_seconds, default="30d", metavar="TIME",
            help="how long the list is valid: 12h, 30d, 8w, 1y (default %(default)s)",
        )  # fmt: skip
        add_json(command)
        command.set_defaults(act=act)
    for command in (init, rotate):
        command.add_argument(
            "--root-keys", metavar="DIR", action="append",
            help="folder of root keys, such as a medium that is kept in a safe; repeatable: the keys are dealt out in "
            "turn (default: the folder of --private)",
        )  # fmt: skip
        command.add_argument(
            "--root-expires", type=_seconds, default="10y", metavar="TIME",
            help="how long the root is valid (default %(default)s)",
        )  # fmt: skip
    init.add_argument("--keys", type=int, default=3, metavar="N", help="number of root keys (default %(default)s)")
    init.add_argument(
        "--threshold", type=int, default=2, metavar="N", help="how many of them must sign (default %(default)s)"
    )
    sign.add_argument("bundles", nargs="+", metavar="BUNDLE", help="bundles to list, by their files' names")
    sign.add_argument("--only", action="store_true", help="list these bundles and no others from now on")
    rotate.add_argument(
        "--role", action="append", choices=ROLES,
        help="whose keys are replaced; repeatable (default: targets, snapshot and timestamp)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    act: Callable[[argparse.Namespace, ModuleType], Summary] = args.act
    try:
        from ..keys import repository
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("tuf", "securesystemslib"):
            raise
        raise InputError("the tuf package is missing; pip install 'hardcase[keys]'") from error
    from hardcase_edge.base.files import sweep

    from ..training.folders import locked

    folder = Path(args.folder)
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder; name one that is there")
    with locked(folder):
        sweep(folder, "*.json")
        sweep(keys_beside(folder), "*.key")
        summary = act(args, repository)
    bundles = f"{len(summary.bundles)} bundle{'' if len(summary.bundles) == 1 else 's'}"
    line = f"{folder}: root {summary.root}, targets {summary.targets} with {bundles}, until {summary.expires}"
    report(args, summary.to_json(), [line, *_next_step(args)])
    return 0


def keys_beside(folder: Path) -> Path:
    """The folder of private keys that belongs to a folder of metadata: DIR-keys for DIR."""
    whole = folder.resolve() if folder.name in ("", "..") else folder
    return whole.with_name(f"{whole.name}-keys")


def _init(args: argparse.Namespace, repository: ModuleType) -> Summary:
    if not 1 <= args.threshold <= args.keys <= MAX_KEYS:
        raise InputError(
            f"{args.threshold} of {args.keys} root keys cannot sign; use 1 to {MAX_KEYS} keys and no higher threshold"
        )
    places, lives = _places(args, repository), _lives(args, repository)
    summary: Summary = repository.begin(places, lives, int(time.time()), n_keys=args.keys, threshold=args.threshold)
    return summary


def _sign(args: argparse.Namespace, repository: ModuleType) -> Summary:
    from hardcase_edge.bundle.file import read_bundle_bytes
    from hardcase_edge.fleet.release.content import check_offered

    bundles: dict[str, bytes] = {}
    for path in args.bundles:
        name, data = Path(path).name, read_bundle_bytes(path)
        check_offered(data)  # what no device would run is not signed
        if bundles.get(name, data) != data:
            raise InputError(f"two bundles are called {name}; give each its own name")
        bundles[name] = data
    return _listed(args, repository, bundles, only=args.only)


def _renew(args: argparse.Namespace, repository: ModuleType) -> Summary:
    return _listed(args, repository, {}, only=False)


def _listed(args: argparse.Namespace, repository: ModuleType, bundles: dict[str, bytes], *, only: bool) -> Summary:
    places, lives = _places(args, repository), _lives(args, repository)
    summary: Summary = repository.sign(places, bundles, lives, int(time.time()), only=only)
    return summary


def _rotate(args: argparse.Namespace, repository: ModuleType) -> Summary:
    roles = args.role or list(repository.LOWER)
    places, lives = _places(args, repository), _lives(args, repository)
    summary: Summary = repository.rotate(places, [r for r in ROLES if r in roles], lives, int(time.time()))
    return summary


def _places(args: argparse.Namespace, repository: ModuleType) -> Places:
    folder = Path(args.folder)
    private = Path(args.private) if args.private else keys_beside(folder)
    root_keys = tuple(map(Path, getattr(args, "root_keys", None) or [private]))
    for each in (private, *root_keys):
        if each.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"private keys in {each} would go to every device with {folder}; name another folder")
    places: Places = repository.Places(folder, private, root_keys)
    return places


def _lives(args: argparse.Namespace, repository: ModuleType) -> Lives:
    lives: Lives = repository.Lives(args.expires, getattr(args, "root_expires", 0))
    return lives


def _next_step(args: argparse.Namespace) -> list[str]:
    folder = Path(args.folder)
    if args.command == "init":
        return [f"devices begin with: hardcase-edge store trust STORE {shlex.quote(str(folder / '1.root.json'))}"]
    return [f"devices take it with: hardcase-edge store put STORE BUNDLE --metadata {shlex.quote(str(folder))}"]


def _seconds(text: str) -> int:
    """Seconds of a length of time such as 30d."""
    match = _LIFE.fullmatch(text)
    seconds = int(match[1]) * UNITS[match[2]] if match else 0
    if not 0 < seconds <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; use 12h, 30d, 8w or 1y, at most 100y")
    return seconds
