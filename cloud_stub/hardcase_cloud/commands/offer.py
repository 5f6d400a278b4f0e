# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud offer``: a bundle for devices, over the air."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from hardcase_edge.errors import HardcaseError, InputError

from .shared import log_lines, on_stop_signals, say, tenant_argument, warn, without_attempts

if TYPE_CHECKING:
    from hardcase_edge.link.address import Address

    from ..rollout.updates.campaign import Campaign

HELP = "Offer a bundle to devices, and serve it until each of them runs it."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", help="the .hcb or .hcr file; its signature is read from BUNDLE.sig if there is one")
    parser.add_argument("--broker", required=True, metavar="URL", help="mqtt[s]://host:port")
    parser.add_argument("--metadata", metavar="DIR", help="signed metadata: a TUF repository's JSON files")
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--device", action="append", metavar="NAME", help="a device that is to run it; repeatable")
    who.add_argument("--all", action="store_true", help="every device whose status the broker has")
    tenant_argument(parser)
    parser.add_argument("--wait", action="store_true", help="serve on for devices that come later (default: end)")
    parser.add_argument(
        "--replace-program", action="store_true", help="offer it to devices that run another program, too"
    )
    anyway_argument(parser)
    tls = parser.add_argument_group("TLS")
    tls.add_argument("--ca", metavar="PEM", help="CA certificate that verifies --broker")
    tls.add_argument("--cert", metavar="PEM", help="client certificate, if --broker requires one")
    tls.add_argument("--key", metavar="PEM", help="private key of --cert")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Offer and serve until the devices run it; the exit status."""
    from hardcase_edge.bundle.compatible import identity_in
    from hardcase_edge.fleet.release.content import bundle_in
    from hardcase_edge.link.address import parse_address
    from hardcase_edge.link.wire import check_device_id, tenant_of

    from ..rollout.updates.campaign import Campaign
    from ..rollout.updates.offer import make_offer
    from ..rollout.updates.serve import Server

    named = None if args.all else frozenset(map(check_device_id, args.device))
    if strange := sorted(device for device in named or () if tenant_of(device) != args.tenant):
        raise InputError(f"{strange[0]} is not a device of {args.tenant or 'no tenant'}; say --tenant, or name others")
    address = parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)
    made = make_offer(args.bundle, args.metadata, replaces=args.replace_program)
    held = bundle_in(made[0])  # none, where devices go on with their own
    without_attempts()
    served = check_f0(address, held, args) if held else {}
    campaign = Campaign(*made, identity=identity_in(held) if held else None, named=named)

    def reload() -> None:
        data, offer, release = make_offer(args.bundle, args.metadata, replaces=args.replace_program)
        if data != campaign.bundle:
            raise InputError(f"{args.bundle} is another bundle now; start again to offer it")
        campaign.offer, campaign.release = offer, release

    def on_change(device: str, state: str, reason: str) -> None:
        say(args.json, "device", {"device": device, "state": state, **({"reason": reason} if reason else {})})

    server = Server(campaign, address, reload=reload, on_change=on_change, on_open=log_lines, tenant=args.tenant)
    on_stop_signals(server.stop)
    offer = campaign.offer
    say(
        args.json,
        "offering",
        {"sha256": offer.sha256.hex(), "bytes": offer.size, "release": _dotted(campaign), **served},
    )
    server.run(waits=args.wait)
    counts = Counter(state for state, _ in campaign.states().values())
    say(args.json, "stopped", {**counts, "chunks": campaign.sent_chunks, "offers": campaign.sent_offers})
    _check(counts)
    return 0


def anyway_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--anyway``."""
    parser.add_argument(
        "--anyway", action="store_true", help="go on although only workers of another f0 than the bundle's answer"
    )


def check_f0(address: Address, bundle: bytes, args: argparse.Namespace, tenant: str = "") -> dict[str, bool]:
    """Warn if no worker of the bundle's f0 answers; returns ``f0_answers`` for an event, nothing if it asks nobody.

    Raises
    ------
    HardcaseError
        Only workers of another f0 answer, and nobody has said ``--anyway``.
    LinkError
        The broker cannot be reached.
    """
    from ..rollout.updates.served import ask_f0

    served = ask_f0(address, bundle, tenant or getattr(args, "tenant", ""))
    if served.other and not served.answers and not args.anyway:
        raise HardcaseError(
            f"{served.words}: devices would decide alone; start hardcase cloud worker with the right --hpc, or say "
            "--anyway"
        )
    if served.words:
        warn(f"{served.words}; until one does, devices decide hard cases alone, and trials wait or fail")
    return {"f0_answers": served.answers} if served.hpc else {}


def _check(counts: Counter[str]) -> None:
    from ..rollout.updates.campaign import OTHER, REFUSED, ROLLED_BACK

    if n := counts[OTHER]:
        raise HardcaseError(
            f"{n} of {sum(counts.values())} devices run another program, and nothing was sent to them; the lines above "
            "say what differs, offer the right bundle or say --replace-program"
        )
    if lost := counts[REFUSED] + counts[ROLLED_BACK]:
        raise HardcaseError(
            f"{lost} of {sum(counts.values())} devices run what they ran before; the lines above say why, mend the "
            "bundle and offer it again in newer targets"
        )


def _dotted(campaign: Campaign) -> str:
    return ".".join(map(str, campaign.release))
