# SPDX-License-Identifier: Apache-2.0
"""``hardcase flash``: a bundle and all that it needs on a card, an image, a host, or over the air."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError

HELP = "Put a bundle, the runtime and a unit on a card, an image file or a host; first boot needs no network."
INTERRUPTED = "the card boots as it did, or as it will; the same command again finishes it"
EXAMPLES = """\
hardcase flash --list
hardcase flash model.hcb /dev/sdb --run '--sensors thermal: --interval 60'
hardcase flash model.hcb /media/bootfs --file my_sensors.py --run '--sensors my_sensors:read --interval 60'
hardcase flash model.hcb ssh://pi@raspberrypi --trust fleet.pub --run '--sensors thermal:'
hardcase flash model.hcb mqtts://broker.example:8884/pi-1 --ca ca.pem --metadata fleet
hardcase flash --verify /dev/sdb"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", nargs="?", help="the .hcb file; its signature is read from BUNDLE.sig")
    parser.add_argument(
        "target", nargs="?", help="a mounted root or boot folder, image file, block device, ssh:// or mqtts:// URL"
    )
    parser.add_argument("--list", action="store_true", help="print the block devices, and why one is not flashed")
    parser.add_argument("--verify", metavar="TARGET", help="print what is on a target")
    parser.add_argument(
        "--run", dest="words", metavar="ARGS", default="",
        help="arguments of hardcase-edge run on the device, as one word, such as '--sensors thermal: --interval 60'",
    )  # fmt: skip
    parser.add_argument(
        "--file", metavar="FILE", action="append", default=[],
        help="a file that --run names, such as a sensor's module; on the device in /usr/local/lib/hardcase; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--identity", metavar="DIR", help="the device's identity or claim, as hardcase ca device or ca claim makes it"
    )
    parser.add_argument(
        "--device", metavar="FILE", action="append", default=[],
        help="file below /dev that a sensor needs, such as /dev/i2c-1; repeatable",
    )  # fmt: skip
    parser.add_argument("--group", action="append", default=[], help="group that may open such files; repeatable")
    parser.add_argument(
        "--trust", metavar="KEY", help="public key (PEM) that must have signed the bundle, here and there"
    )
    parser.add_argument(
        "--root", dest="first_root", metavar="JSON", help="first root of TUF metadata, which the device begins to trust"
    )
    parser.add_argument("--metadata", metavar="DIR", help="the other metadata: a TUF repository's JSON files")
    parser.add_argument("--wheels", metavar="DIR", help="take kernels from the wheels of make wheels, and compile none")
    parser.add_argument("--ssh-config", metavar="FILE", help="ssh's -F, for an ssh:// target")
    tls = parser.add_argument_group("TLS of an mqtts:// target")
    tls.add_argument("--ca", metavar="PEM", help="CA certificate that verifies the broker")
    tls.add_argument("--cert", metavar="PEM", help="client certificate, if the broker requires one")
    tls.add_argument("--key", metavar="PEM", help="private key of --cert")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Flash, verify or list."""
    from ..flashing.devices import candidates
    from ..flashing.target import Wishes, flash, offer, verify

    ssh = ("-F", args.ssh_config) if args.ssh_config else ()
    n_jobs = args.list + (args.verify is not None) + (args.bundle is not None)
    if n_jobs != 1 or (args.bundle is not None and args.target is None):
        raise InputError("name a bundle and a target, or --verify TARGET, or --list")
    if args.list:
        cards = candidates()
        if args.json:
            print(json.dumps([c._asdict() for c in cards]))
        for card in [] if args.json else cards:
            text = f"{card.path}  {card.size / 1e9:.1f} GB  {card.model}  {card.refusal or 'can be flashed'}"
            print(terminal(text))
        return 0
    if args.verify is not None:
        return _print(verify(args.verify, ssh), as_json=args.json)
    tls = {name: getattr(args, name) for name in ("ca", "cert", "key")}
    if args.target.startswith(("mqtt://", "mqtts://")):
        written = ("words", "file", "identity", "device", "group", "trust", "first_root", "wheels", "ssh_config")
        if any(getattr(args, name) for name in written):
            raise InputError("a broker takes a bundle alone: beside it, name --metadata, --ca, --cert or --key")
        return offer(args.bundle, args.target, {"metadata": args.metadata, **tls})
    if any(tls.values()):
        raise InputError("--ca, --cert and --key are of an mqtts:// target; those of the device belong into --run")
    try:
        words = tuple(shlex.split(args.words))
    except ValueError as error:
        raise InputError(f"--run: {str(error).lower()}; quote it as for a shell") from error
    wishes = Wishes(words, args.identity, args.trust, args.first_root, args.metadata, args.wheels, args.file, ssh,
                    args.device, args.group)  # fmt: skip
    return _print(flash(args.bundle, args.target, wishes), as_json=args.json)


def _print(report: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            for entry in value if key == "notes" else [value]:
                words = json.dumps(entry) if isinstance(entry, (dict, list)) else entry
                print(terminal(f"{'note' if key == 'notes' else key:<12}{words}"))
    return 0
