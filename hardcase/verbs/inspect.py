# SPDX-License-Identifier: Apache-2.0
"""``hardcase inspect``: the contents, costs and claims of a bundle, and a picture of its policy."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from ..options import add_force, add_hpc, add_json, add_trust, report

if TYPE_CHECKING:
    from hardcase_edge.bundle.load import Loaded

HELP = "Show the contents, costs, size and claims of a bundle, and draw its policy."
EXAMPLES = """\
hardcase inspect model.hcb
hardcase inspect model.hcb --svg policy.svg --rows build/test.npz   # with the share of rows at each node"""
TERMS = (
    "worst cost: proved for every case; claims: what the exporter measured; node: a step of the policy, which buys "
    "sensors, asks a model, answers or forwards"
)
INTERRUPTED = "no picture was written"
FIGURES = ("quality", "cost", "forward_rate")
CLAIMS = {  # what the keys of a manifest's claims mean
    "agreement": "share of rows that the program's integers decide as its floats did",
    "costs": "where the costs are from",
    "audits": "test rows that the policy answers alone, and those of them with which f0 agrees",
    "hpc": "f0's own figure",
    "measure": "what the figures measure",
    "mix": "two points of the front, and how often the coin takes the second",
    "test": "test rows, which no choice has seen",
    "valid": "validation rows",
}
ENDS = ("where it is answered", "where the cloud is silent")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a .hcb file")
    picture = parser.add_argument_group("picture")
    picture.add_argument("--svg", type=Path, metavar="FILE", help="write a picture of the policy there")
    picture.add_argument(
        "--rows", type=Path, metavar="DATA", help="labelled rows, whose shares, costs and errors the picture shows"
    )
    add_hpc(picture, "hpc.onnx beside the bundle or DATA, or the answers in DATA")
    add_force(picture)
    add_trust(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify the bundle as a device would, print its description, and draw it if asked."""
    from hardcase_edge.base.files import check_replaceable
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_export.summary import describe

    if args.svg is None and (args.rows or args.hpc):
        raise InputError("--rows and --hpc are for the picture; name its file with --svg")
    if args.svg is not None:
        check_replaceable(args.svg, "a picture that hardcase drew", is_picture_head, force=args.force)
    loaded = load_bundle(args.bundle, trust=args.trust, allow_joint=True)
    if loaded.joint is not None and args.rows is not None:
        raise InputError("--rows draws rows of one part, but this bundle decides items of several; leave it out")
    facts = describe(loaded)
    lines = _lines(facts)
    if loaded.joint is not None:
        from ..measuring.items import joint_lines

        of_items, item_lines = joint_lines(loaded)
        facts, lines = facts | of_items, lines + item_lines
    if args.svg is not None:
        _draw(loaded, args)
        lines.append(f"  picture     {args.svg}")
    report(args, facts, lines)
    return 0


def _draw(loaded: Loaded, args: argparse.Namespace) -> None:
    from hardcase_edge.base.files import write_whole

    from ..measuring.bars import rows_bar
    from ..measuring.labelled_rows import rows_for
    from ..measuring.measure import measure, quality_of, steps_of
    from ..reports.policy_picture import policy_svg

    program, manifest = loaded.bundle.program, loaded.manifest
    if args.rows is None:
        svg = policy_svg(program, manifest, note=_claimed(manifest.claims, manifest.unit))
    else:
        rows = rows_for(program, manifest, args.rows, args.hpc, [Path(args.bundle).parent])
        with rows_bar("inspect", len(rows.y)):
            decisions = measure(program, rows, quality_of(manifest), steps=steps_of(manifest)).decisions
        svg = policy_svg(
            program, manifest, decisions, rows.y.tolist(), note=f"{len(rows.y):,} rows of {args.rows.name}",
            sizes=() if rows.sizes is None else rows.sizes.tolist(),
        )  # fmt: skip
    write_whole(args.svg, svg.encode())


def is_picture_head(head: bytes) -> bool:
    """Whether a file that begins so is a picture of hardcase: what may be replaced by another."""
    return head.startswith(b'<svg class="hc ')


def _claimed(claims: dict[str, Any], unit: str) -> str:
    """What the bundle claims of its test rows, in a line; empty if it does not."""
    test = claims.get("test")
    figures: list[Any] = [dict(test).get(key) for key in FIGURES] if isinstance(test, dict) else []
    if not figures or not all(type(f) in (int, float) and abs(f) < 1e15 for f in figures):  # a bundle claims anything
        return "give rows for the share of rows at each node"
    quality, cost, forwarded = figures
    name = claims.get("quality", "quality")
    return f"claimed for its test rows: {name} {quality:.4f}, {cost:.2f} {unit}, {forwarded:.1%} forwarded"


def _milliseconds(worst: dict[str, float]) -> str:
    return ", ".join(f"{ms:g} ms in {name}" for name, ms in worst.items())


def _cost(sensor: dict[str, Any]) -> str:
    """What a sensor costs, from the smallest item to the largest."""
    low, high = sensor["cost"], sensor["largest_cost"]
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _lines(f: dict[str, Any]) -> list[str]:
    from hardcase_edge.bundle.agreement import promised_share
    from hardcase_export.picking.promise_words import say_parts, say_promise

    unit, cost, request = f["unit"], f["cost"], f["request"]
    mean = "not claimed" if cost["mean"] is None else f"{cost['mean']:.2f}"
    bound = "" if cost["is_exact"] else " (bounds)"
    lines = [
        f"{f['name']}: {f['target']} in {_answers(f)}",
        f"  sha256      {f['sha256']}",
        f"  cost        worst {cost['worst']:g}, mean {mean}, best {cost['best']:g} {unit}{bound}",
        f"  operations  at most {f['operations']}; the longest path has {f['longest_path']} nodes",
        *([f"  waking up   {cost['start']:g} {unit} of each decision, in these costs"] if cost["start"] else []),
        f"  decision    at most {_milliseconds(f['worst_decision_ms'])} on a computer, without sensors and cloud",
        f"  memory      {f['session_bytes']} bytes per session",
        f"  nodes       {', '.join(f'{n} {kind}' for kind, n in f['nodes'].items())}",
        f"  scorers     {', '.join(f'{n} {kind}' for kind, n in f['scorers'].items())}; {f['columns']} columns",
        f"  golden      {f['golden']} cases, all pass",
        f"  bytes       {', '.join(f'{part} {n}' for part, n in f['bytes'].items())}",
    ]
    if request["is_used"]:
        where = f"{f['hpc_name']}, {f['hpc'][:16]}" if f["hpc_name"] else f["hpc"][:16]
        lines.append(f"  forwards    {request['bytes']} bytes, {request['cost']:g} {unit} per request, to {where}")
    if f["unproved"]:
        lines.append(f"  unproved    scorers {_some(f['unproved'])}: the user's own model, which cannot be verified")
    costs = [_cost(s) for s in f["sensors"]]
    width = max([12, *map(len, costs)])
    lines += [f"  {'sensor':<24}{'cost':>{width}} {unit}  features"]
    lines += [
        f"  {s['name']:<24}{cost:>{width}} {' ' * len(unit)}  {_some(s['features'])}{_from(s['window'])}"
        for s, cost in zip(f["sensors"], costs, strict=True)
    ]
    lines += [f"  texts       {name}: {_some(texts)}" for name, texts in f["categories"].items()]
    for node, *pairs in f["value"]["interval"] if f["value"] else ():
        which = [f"{pair[0]:+g} to {pair[1]:+g} {say}" for pair, say in zip(pairs, ENDS, strict=True) if pair]
        lines.append(f"  90 % of truths lie within the value {'; '.join(which)}, at node {node}")
    lines += _origins(f)
    lines.append(f"  monitors    {_watched(f['monitors'])}")
    promise = say_promise(f["claims"].get("promise"))
    if promise is not None:
        lines += [f"  promise     {promise}", *(f"              {x}" for x in say_parts(f["claims"]["promise"]))]
    elif "promise" not in f["claims"]:
        lines.append("  promise     none about the truth; hardcase export --risk makes one")
    share = promised_share(f["claims"])
    if share is not None:
        lines.append(f"  audits      f0 is to agree with at least {share:.2%} of the answers given alone")
    for key, value in sorted(f["claims"].items()):
        means = f" ({CLAIMS[key]})" if key in CLAIMS else ""
        name = "integers" if key == "agreement" else key
        lines.append(f"  claims      {name}{means}: {json.dumps(value, sort_keys=True)}")
    return lines


def _origins(f: dict[str, Any]) -> list[str]:
    """Where costs are from, as far as the bundle says so; a bundle claims anything."""
    from hardcase_export.drafts.costs import costs_of, origin_words

    if "costs" not in f["claims"]:
        return ["  costs from  unknown: the bundle does not say"]
    try:
        costs = costs_of(f["claims"]["costs"], "claims")
    except InputError:
        return ["  costs from  unknown: the bundle's claim about it cannot be read"]
    return [f"  costs from  {origin_words(costs, [s['name'] for s in f['sensors']])}"]


def _from(window: int | None) -> str:
    """From what the device computes a sensor's features."""
    return "" if window is None else f" (a read gives {window} samples, oldest first)"


def _watched(monitors: dict[str, Any] | None) -> str:
    """What ``--drift`` can notice."""
    if monitors is None:
        return "none, so --drift watches no readings; hardcase export --monitors adds them"
    parts = [f"{monitors['features']} features", "confidences" if monitors["confidence"] else ""]
    others = f"others predict {_some(monitors['sensors'])}" if monitors["sensors"] else "no sensor predicts another"
    return f"distributions of {' and '.join(p for p in parts if p)}; {others}"


def _answers(f: dict[str, Any]) -> str:
    """What the bundle answers: classes, or values with their unit and scale."""
    if f["classes"]:
        return f"{len(f['classes'])} classes ({_some(f['classes'])})"
    if f["value"] is None:
        return "integers of an unknown scale; export the bundle again"
    steps = -f["value"]["steps"]
    return f"{f['value']['unit'] or 'the unit of training'}, steps of 2^{steps} ({2.0**steps:.2g})"


def _some(values: list[Any], limit: int = 8) -> str:
    """The first values, and the number of the others."""
    shown = ", ".join(map(str, values[:limit]))
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"
