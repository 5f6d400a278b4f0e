# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud rollout``: a bundle for a group of devices step by step, kept in a store."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import HardcaseError, InputError, LinkError

from .offer import anyway_argument, check_f0
from .shared import (
    broker_argument,
    log_lines,
    on_stop_signals,
    parse_time,
    positive,
    say,
    store_argument,
    tls_arguments,
    without_attempts,
)

if TYPE_CHECKING:
    from hardcase_edge.bundle.load import Loaded
    from hardcase_edge.link.address import Address

    from ..keep.records.rollouts import Rollouts
    from ..rollout.waves.plan import Plan

HELP = "Bring a bundle to a group of devices in waves, and stop when it is not good."
MAX_NAME = 64  # characters of a group's name
MOST_REASONS = 5  # of devices, that status prints for each roll-out
WISHES = {"pause": "Release no further devices.", "resume": "Go on.", "stop": "End it; no device is offered more."}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their flags."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    group = commands.add_parser("group", help="Make a group of devices.")
    group.add_argument("name", help="of the group")
    group.add_argument("--devices", required=True, metavar="FILE", help="text file with a device id a line")
    store_argument(group)
    group.set_defaults(act=_group)
    _start_arguments(commands.add_parser("start", help="Begin a roll-out, and serve it until it is over."))
    serve = commands.add_parser("serve", help="Continue a roll-out whose process has ended.")
    serve.add_argument("id", type=positive, help="number of the roll-out")
    _serving_arguments(serve)
    serve.set_defaults(act=_serve_again)
    for wish, text in WISHES.items():
        command = commands.add_parser(wish, help=text)
        command.add_argument("id", type=positive, help="number of the roll-out")
        store_argument(command)
        command.set_defaults(act=_wish)
    status = commands.add_parser("status", help="Print the state of roll-outs and of their devices.")
    status.add_argument("id", type=positive, nargs="?", help="number of the roll-out (default: all)")
    store_argument(status)
    status.add_argument("--json", action="store_true", help="one JSON object per roll-out")
    status.set_defaults(act=_status)


def _start_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", help="the .hcb file; its signature is read from BUNDLE.sig if there is one")
    parser.add_argument("--group", required=True, metavar="NAME", help="the devices, as of rollout group")
    parser.add_argument("--metadata", metavar="DIR", help="signed metadata: a TUF repository's JSON files")
    anyway_argument(parser)
    quality = add_plan(parser)
    quality.add_argument("--budget", type=float, metavar="COST", help="highest mean cost of a decision")
    _serving_arguments(parser)
    parser.set_defaults(act=_start)


def add_plan(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare how a roll-out goes, for every command that begins one; returns the group of flags about quality."""
    waves = parser.add_argument_group("waves")
    waves.add_argument("--canary", default="1%", metavar="N", help="devices of the first wave, or a percentage (1%%)")
    waves.add_argument("--factor", type=float, default=4.0, help="how many times larger each wave is (4)")
    waves.add_argument("--soak", default="0s", metavar="TIME", help="pause after each wave, such as 30m (0s)")
    ends = parser.add_argument_group("what ends it")
    ends.add_argument("--abort-above", default="5%", metavar="SHARE", help="share of failed devices that ends it (5%%)")
    ends.add_argument("--abort-after", type=positive, default=10, metavar="N", help="only after so many devices (10)")
    ends.add_argument("--offer-time", default="1h", metavar="TIME", help="a device must begin to load within it (1h)")
    ends.add_argument("--load-time", default="6h", metavar="TIME", help="for a device to load (6h)")
    ends.add_argument("--trial-time", default="6h", metavar="TIME", help="for a device's trial (6h)")
    ends.add_argument("--supersede", action="store_true", help="end roll-outs that have one of these devices")
    parser.add_argument(
        "--replace-program", action="store_true", help="bring it to devices that run another program, too"
    )
    quality = parser.add_argument_group("quality")
    quality.add_argument(
        "--agreement", metavar="SHARE",
        help="least agreement with f0 in audits: 95%%, or none (default: what the bundle promises)",
    )  # fmt: skip
    quality.add_argument("--tolerance", default="2%", metavar="SHARE", help="how far a canary may fall short (2%%)")
    quality.add_argument(
        "--quality-time", default="7d", metavar="TIME", help="the quality must be certain within it (7d)"
    )
    return quality


def _serving_arguments(parser: argparse.ArgumentParser) -> None:
    store_argument(parser)
    broker_argument(parser)
    tls_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    return int(args.act(args))


# ---------------------------------------------------------------- commands


def _open(url: str) -> Rollouts:
    from ..keep.records.database import Database
    from ..keep.records.rollouts import Rollouts

    return Rollouts(Database(url, makes=False))


def _group(args: argparse.Namespace) -> int:
    from ..broker.acl import read_devices
    from ..keep.records.database import Database
    from ..keep.records.devices import Devices

    if not 1 <= len(args.name) <= MAX_NAME or not args.name.isprintable():
        raise InputError(f"the name of a group is 1 to {MAX_NAME} characters; choose another")
    devices = read_devices(args.devices)
    one_tenant(devices)
    database = Database(args.store)
    n = Devices(database).set_group(args.name, devices)
    database.close()
    print(terminal(f"group {args.name}: {n} devices"))
    return 0


def _start(args: argparse.Namespace) -> int:
    from hardcase_edge.bundle.load import load_bytes
    from hardcase_edge.fleet.release.archive import is_archive

    from ..keep.records.devices import Devices
    from ..rollout.updates.offer import make_offer
    from ..rollout.waves.machine import Rollout
    from ..rollout.waves.serve import facts_of_bundle

    address = _address(args)  # what is wrong with it is said before a roll-out begins
    data, offer, release = make_offer(args.bundle, args.metadata)
    if is_archive(data):
        raise InputError(f"{args.bundle} is a release file, and roll-outs take bundles; use cloud offer")
    loaded = load_bytes(data)
    rollouts = _open(args.store)
    try:
        devices = Devices(rollouts.database).group(args.group)
        plan = _plan(args, loaded, len(devices))
        without_attempts()
        if devices:
            with suppress(LinkError):  # ``_serve`` meets it, too, and says how to go on
                check_f0(address, data, args, one_tenant(devices))
        bundle = {
            "sha256": offer.sha256.hex(), "name": loaded.manifest.name, "bytes": offer.size, "root": release[0],
            "targets": release[1], "manifest": json.dumps(facts_of_bundle(loaded)),
        }  # fmt: skip
        now = time.time()
        machine = Rollout(plan, offer.sha256.hex(), devices, now).to_json()
        path = str(Path(args.bundle).absolute())
        metadata = "" if args.metadata is None else str(Path(args.metadata).absolute())
        number = rollouts.begin(bundle, path, metadata, args.group, machine, devices, now, supersedes=args.supersede)
        try:
            return _serve(args, rollouts, number)
        except LinkError as error:
            raise LinkError(
                f"{error}; roll-out {number} has begun, and hardcase cloud rollout serve {number} goes on with it"
            ) from error
    finally:
        rollouts.database.close()


def _plan(args: argparse.Namespace, loaded: Loaded, n_devices: int) -> Plan:
    from hardcase_edge.settings.values import parse_share

    from ..rollout.waves.plan import Plan
    from ..rollout.waves.serve import facts_of_bundle

    facts = facts_of_bundle(loaded)
    tolerance = parse_share(args.tolerance, "--tolerance")
    if args.agreement is None:
        agreement = _promised(facts, tolerance)
    else:
        agreement = None if args.agreement == "none" else parse_share(args.agreement, "--agreement")
    try:
        share = parse_share(args.canary, "--canary") if args.canary.endswith("%") else 0.0
        canary = max(1, round(share * n_devices)) if share else int(args.canary)
    except ValueError as error:
        raise InputError(
            f"--canary is {args.canary!r}; give a number of devices, or a percentage such as 1%"
        ) from error
    return Plan(
        canary=canary, factor=args.factor, soak_s=parse_time(args.soak, "--soak"),
        abort_above=parse_share(args.abort_above, "--abort-above"), abort_after=args.abort_after,
        offer_s=parse_time(args.offer_time, "--offer-time"), load_s=parse_time(args.load_time, "--load-time"),
        trial_s=parse_time(args.trial_time, "--trial-time"), agreement=agreement,
        tolerance=tolerance, budget=args.budget,
        cost_limit=facts["cost_limit"] if args.budget is not None else None,
        quality_s=parse_time(args.quality_time, "--quality-time"), replaces=args.replace_program,
    )  # fmt: skip


def _promised(facts: dict[str, Any], tolerance: float) -> float | None:
    """The least agreement that a bundle promises; None if it promises none that says more than the tolerance.

    That is its claim of audits, which the device's trial takes, too; else 1 minus the promised risk of an error.
    """
    from ..rollout.waves.plan import LEAST_SPARE, MOST_AGREEMENT

    share, promise = facts["agreement"], facts["promise"] or {}
    if share is None:
        risk = promise.get("risk")
        is_of_classes = promise.get("of") == "error" and "tolerance" not in promise  # f0 agrees as a whole, or not
        share = 1 - risk if is_of_classes and isinstance(risk, float) and 0 < risk < 0.9 else 0.0
    return min(share, MOST_AGREEMENT) if share > tolerance + LEAST_SPARE else None


def _address(args: argparse.Namespace) -> Address:
    from hardcase_edge.link.address import parse_address

    return parse_address(args.broker, ca=args.ca, cert=args.cert, key=args.key)


def _serve_again(args: argparse.Namespace) -> int:
    rollouts = _open(args.store)
    try:
        return _serve(args, rollouts, args.id)
    finally:
        rollouts.database.close()


def _serve(args: argparse.Namespace, rollouts: Rollouts, number: int) -> int:
    from hardcase_edge.bundle.compatible import identity_in
    from hardcase_edge.bundle.load import load_bytes

    from ..keep.records.rollouts import OPEN
    from ..rollout.updates.campaign import OTHER, Campaign
    from ..rollout.updates.offer import make_offer
    from ..rollout.updates.serve import Server
    from ..rollout.updates.served import Question, Served, ask_f0, name_of
    from ..rollout.waves.machine import DONE
    from ..rollout.waves.serve import Serving, summary

    row = rollouts.rollout(number)
    if row.state not in OPEN:
        raise InputError(f"roll-out {number} has ended: {row.state}; start another one")
    address = _address(args)
    replaces = bool(json.loads(row.machine)["plan"].get("replaces"))
    made = make_offer(row.path, row.metadata or None, replaces=replaces)
    if made[1].sha256.hex() != row.bundle:
        raise InputError(f"{row.path} is another bundle than roll-out {number} has begun with; put it back")
    campaign = Campaign(*made, identity=identity_in(made[0]), named=frozenset(rollouts.instances(number)))

    def reload() -> None:
        data, offer, release = make_offer(row.path, row.metadata or None, replaces=replaces)
        if data == campaign.bundle:
            campaign.offer, campaign.release = offer, release
        server.ask(Question(data, name), note)

    def note(served: Served) -> None:
        serving.f0 = served.words

    tenant = one_tenant(rollouts.instances(number))
    name = name_of(address, tenant)  # one for all questions, because each has a subscription
    serving = Serving(
        rollouts, row, campaign, on_change=lambda line: say(args.json, "rollout", {"id": number, "now": line}),
        shipped=load_bytes(made[0]).manifest.shipped, is_up=lambda: server.is_up,
    )  # fmt: skip

    def on_step() -> None:
        if serving.step():
            server.stop()

    def on_change(device: str, state: str, reason: str) -> None:
        if state == OTHER:
            say(args.json, "device", {"device": device, "state": state, "reason": reason})

    server = Server(
        campaign, address, reload=reload, on_change=on_change, on_step=on_step, on_open=log_lines, tenant=tenant
    )
    on_stop_signals(server.stop)
    without_attempts()
    agreement = serving.rollout.plan.agreement
    held_to: dict[str, Any] = {} if agreement is None else {"agreement": agreement}
    with suppress(LinkError):
        served = ask_f0(address, made[0], tenant)
        serving.f0 = served.words
        held_to |= {"f0_answers": served.answers} if served.hpc else {}
    say(args.json, "serving", {"id": number, "sha256": row.bundle, "group": row.members, **held_to})
    server.run(waits=True)
    rollout = serving.rollout
    say(args.json, "stopped", {"id": number, "state": rollout.state})
    if rollout.is_over and rollout.state != DONE:
        raise HardcaseError(f"roll-out {number}: {summary(rollout)}")
    return 0


def one_tenant(devices: Iterable[str]) -> str:
    """The tenant of these devices.

    Raises
    ------
    InputError
        They have several.
    """
    from hardcase_edge.link.wire import tenant_of

    tenants = sorted({tenant_of(device) for device in devices})
    if len(tenants) > 1:
        raise InputError(
            f"the devices are of {len(tenants)} tenants, such as {tenants[0] or 'none'} and {tenants[1]}; make a group "
            "for each"
        )
    return tenants[0] if tenants else ""


def _wish(args: argparse.Namespace) -> int:
    rollouts = _open(args.store)
    rollouts.wish(args.id, args.what)
    row = rollouts.rollout(args.id)
    rollouts.database.close()
    is_served = time.time() - row.served < 10
    print(
        f"roll-out {args.id}: {args.what}"
        + ("" if is_served else f" is noted; nobody serves it now, and hardcase cloud rollout serve {args.id} does it")
    )
    return 0


def _status(args: argparse.Namespace) -> int:
    from ..keep.records.rollouts import OPEN

    rollouts = _open(args.store)
    rows = rollouts.rollouts() if args.id is None else [rollouts.rollout(args.id)]
    if not rows and not args.json:
        print("there are no roll-outs")
    for row in rows:
        instances = rollouts.instances(row.id)
        counts = Counter(state for state, _, _ in instances.values())
        machine = json.loads(row.machine)
        if args.json:
            reasons = {device: reason for device, (_, _, reason) in sorted(instances.items()) if reason}
            fields: dict[str, Any] = {
                "id": row.id, "bundle": row.bundle, "group": row.members, "state": row.state,
                "reason": machine["reason"], "began": row.began, "served": row.served, "devices": counts,
                "reasons": reasons, "f0": machine.get("f0", ""),
            }  # fmt: skip
            print(json.dumps(fields))
            continue
        began = datetime.fromtimestamp(row.began, UTC).strftime("%Y-%m-%d %H:%M")
        states = ", ".join(f"{n} {state}" for state, n in counts.most_common())
        why = f" ({machine['reason']})" if machine["reason"] else ""
        print(terminal(f"{row.id}  {began}  {row.members}  {row.bundle[:12]}  {row.state}{why}: {states}"))
        if machine.get("f0") and row.state in OPEN:
            print(terminal(f"    {machine['f0']}"))
        said = Counter((state, reason) for state, _, reason in instances.values() if reason)
        for (state, reason), n in said.most_common(MOST_REASONS):
            print(terminal(f"    {n} {state}: {reason}"))
    rollouts.database.close()
    return 0
