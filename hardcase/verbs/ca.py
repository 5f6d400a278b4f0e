# SPDX-License-Identifier: Apache-2.0
"""``hardcase ca``: a certificate authority for a fleet: the broker's certificate, identities, claims, revocations."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

from ..options import add_json, report

if TYPE_CHECKING:
    from hardcase_cloud.rollout.enrolment.book import Book
    from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder

HELP = "Make and revoke the certificates by which devices and the broker know each other."
EXAMPLES = """\
hardcase ca init authority
hardcase ca server authority broker.example 192.0.2.7
hardcase ca device authority pi-1 --out pi-1.identity   # for a device's card
hardcase ca claim authority --uses 20 --out claim       # for a card that serves 20 devices
hardcase ca revoke authority pi-1"""
TERMS = "claim: a short-lived certificate that a new device exchanges for its own, over MQTT"
MAX_DAYS = 7_300


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of all commands."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help_: str, act: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=help_, description=help_)
        one.add_argument("dir", metavar="DIR", help="the authority's folder")
        one.set_defaults(act=act)
        return one

    init = command("init", "Make an authority.", _init)
    init.add_argument("--name", default="hardcase", help="what its certificates call it (default hardcase)")
    server = command("server", "Make the broker's certificate.", _server)
    server.add_argument("hosts", nargs="+", metavar="HOST", help="name or address at which devices reach the broker")
    server.add_argument("--days", type=_days, default=825, help="how long it is valid (default %(default)s)")
    device = command("device", "Make a device's key and certificate, for its card.", _device)
    device.add_argument("device", metavar="DEVICE", help="the device's id")
    device.add_argument("--out", required=True, metavar="FOLDER", help="a new folder, for hardcase-edge run --identity")
    device.add_argument("--days", type=_days, default=365, help="how long it is valid (default %(default)s)")
    claim = command("claim", "Make a claim, which devices exchange for certificates of their own.", _claim)
    claim.add_argument("--out", required=True, metavar="FOLDER", help="a new folder, for hardcase-edge run --identity")
    claim.add_argument("--uses", type=_uses, default=1, metavar="N", help="how many devices it serves (default 1)")
    claim.add_argument("--days", type=_days, default=7, help="how long it is valid (default %(default)s)")
    claim.add_argument("--device", default="", metavar="ID", help="the only device that it serves (default: any)")
    claim.add_argument(
        "--broker",
        default="",
        metavar="URL",
        help="its listener for claims (default: port 8885 of the device's broker)",
    )
    revoke = command("revoke", "Revoke all certificates of a device or claim.", _revoke)
    revoke.add_argument("name", metavar="NAME", help="the device, claim or broker")
    for one in (*commands.choices.values(), command("list", "List what was issued.", _list)):
        add_json(one)


def run(args: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _init(args: argparse.Namespace) -> int:
    from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder

    authority = AuthorityFolder.init(args.dir, args.name, _now())
    values = {"folder": str(authority.folder), "ca": str(authority.folder / "public" / "devices.pem")}
    secret_line = (
        f"{authority.folder}: the authority; its folder private signs for it, keep it secret and keep a copy",
    )
    report(args, values, (*secret_line, f"{values['ca']}: by it devices know the broker (--ca)"))
    return 0


def _server(args: argparse.Namespace) -> int:
    folder = _open(args).server(args.hosts, now=_now(), days=args.days)
    values = {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem"), "hosts": args.hosts}
    lines = (f"{values['certificate']}: the broker's certificate", f"{values['key']}: its key; let the broker read it")
    report(args, values, lines)
    return 0


def _device(args: argparse.Namespace) -> int:
    certificate = _open(args).device(args.device, args.out, now=_now(), days=args.days)
    ends = int(certificate.not_valid_after_utc.timestamp())
    values = {"device": args.device, "folder": args.out, "ends": _time(ends)}
    report(args, values, (f"{args.out}: the identity of {args.device} until {_time(ends)}; keep it secret",))
    return 0


def _claim(args: argparse.Namespace) -> int:
    from hardcase_edge.link.address import parse_address

    if args.broker and not parse_address(args.broker, environment={}).is_tls:
        raise InputError(f"broker {args.broker} is not encrypted; use mqtts://")
    claim = _open(args).claim(
        args.out, now=_now(), days=args.days, uses=args.uses, device=args.device, broker=args.broker
    )
    values = {"claim": claim.name, "folder": args.out, "uses": claim.uses, "ends": _time(claim.expires)}
    whom = args.device or f"{claim.uses} device{'s' * (claim.uses > 1)}"
    report(args, values, (f"{args.out}: {claim.name}, for {whom}, until {values['ends']}; keep it secret",))
    return 0


def _revoke(args: argparse.Namespace) -> int:
    authority = _open(args)
    n = authority.revoke(args.name, now=_now())
    crl = authority.folder / "public" / "crl.pem"
    line = f"{args.name}: {n} certificates revoked; {crl} lists them, and the broker reads it again on SIGHUP"
    report(args, {"name": args.name, "revoked": n, "crl": str(crl)}, (line,))
    return 0


def _list(args: argparse.Namespace) -> int:
    rows = list(_rows(_open(args).read(), _now()))
    if args.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(terminal(f"{row['kind']:6}  {row['state']:8}  {row['ends']}  {row['name']}{row['note']}"))
    return 0


def _rows(book: Book, now: int) -> Iterator[dict[str, Any]]:
    for entry in book.entries:
        if entry.kind == "revoked":
            continue
        state = "revoked" if book.revocation(entry) else "over" if entry.expires <= now else "valid"
        notes = [f"{book.n_uses(entry.name)} of {entry.uses} used"] if entry.kind == "claim" else []
        notes += [f"for {entry.device}"] if entry.device else []
        notes += [f"by {entry.claim}"] if entry.claim else []
        yield {
            "kind": entry.kind,
            "name": entry.name,
            "state": state,
            "ends": _time(entry.expires),
            "serial": entry.serial,
            "note": f" ({', '.join(notes)})" if notes else "",
        }


def _open(args: argparse.Namespace) -> AuthorityFolder:
    from hardcase_cloud.rollout.enrolment.folder import AuthorityFolder

    return AuthorityFolder(Path(args.dir))


def _now() -> int:
    return int(time.time())


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _days(text: str) -> float:
    value = float(text)
    if not 0 < value <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and at most {MAX_DAYS}")
    return value


def _uses(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 100_000:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and 100000")
    return value
