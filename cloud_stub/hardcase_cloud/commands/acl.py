# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud acl``: the settings of a broker of yours: who may connect, publish and read, and how much."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    from ..broker.acl import Written

HELP = "Print access rules for your own broker, or write them with passwords and limits."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--broker", required=True, choices=("mosquitto", "emqx"), help="type of the broker")
    parser.add_argument("--devices", metavar="FILE", help="with --out: text file with a device id a line")
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="write the whole folder of mosquitto's settings, which it reads there (default: print the rules alone)",
    )
    parser.add_argument("--worker", default="worker", metavar="USER", help="user name of all workers (default worker)")
    parser.add_argument(
        "--watcher", metavar="USER", help="user that may read the devices' states, facts and decisions (default: none)"
    )
    parser.add_argument("--store", metavar="USER", help="user name of hardcase cloud store (default: none)")
    parser.add_argument("--updater", metavar="USER", help="user name of hardcase cloud offer (default: none)")
    parser.add_argument(
        "--tenant", action="append", default=[], metavar="NAME",
        help="when rules are printed: a tenant, which gets users of these roles, too; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--authority", metavar="DIR", help="with --out: know devices by certificates of this folder of hardcase ca init"
    )
    parser.add_argument(
        "--listen", metavar="IP", default="", type=_ip,
        help="with --out: address of this machine at which the broker listens (default: all)",
    )  # fmt: skip


def _ip(text: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text)) if text else ""  # argparse checks the default, too
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not an IP address") from error


def run(args: argparse.Namespace) -> int:
    """Print or write; the exit status."""
    from ..broker.acl import read_devices, write_acl
    from ..broker.mutual_tls import write_mutual_tls
    from ..broker.rules import rules_for

    users = {"worker": args.worker, "watcher": args.watcher, "store": args.store, "updater": args.updater}
    if args.authority is not None:
        if args.devices is not None or args.out is None or args.broker != "mosquitto":
            raise InputError("--authority writes settings of mosquitto with --out, and takes no --devices")
        _told(args.out, write_mutual_tls(args.out, args.authority, listen=args.listen, **users))
        return 0
    if (args.devices is None) != (args.out is None):
        raise InputError("--devices and --out belong together; name both, or neither to print the rules alone")
    if args.tenant and args.out is not None:
        raise InputError("--out finds the tenants in the names of --devices, such as acme/pump-7; leave out --tenant")
    if args.listen and args.out is None:
        raise InputError("--listen is for the settings of --out, and rules alone have no listener; leave it out")
    if args.out is None:
        sys.stdout.write(rules_for(args.broker, args.tenant, **users))
        return 0
    if args.broker != "mosquitto":
        raise InputError("--out writes settings of mosquitto only; leave --devices and --out away to print rules")
    _told(args.out, write_acl(args.out, read_devices(args.devices), listen=args.listen, **users))
    return 0


def _told(out: str, written: Written) -> None:
    print(f"{out}: {len(written.new)} new users, {written.n_kept} as before, {written.n_removed} removed")
    print(f"hardcase.passwords has the passwords of new users; mosquitto -c {out}/hardcase.conf runs the broker")
