# SPDX-License-Identifier: Apache-2.0
"""``hardcase inspect``: the contents, costs and claims of a bundle."""

from __future__ import annotations

import argparse
import json
from typing import Any

__all__ = ["HELP", "arguments", "run"]

HELP = "Show the contents, costs, size and claims of a bundle."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a .hcb file")
    parser.add_argument("--trust", metavar="KEY", help="public key whose signature the bundle must carry")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Verify the bundle as a device would, and print its description."""
    from hardcase_edge.bundle.load import load_bundle
    from hardcase_export.summary import describe

    facts = describe(load_bundle(args.bundle, trust=args.trust))
    print(json.dumps(facts) if args.json else "\n".join(_lines(facts)))
    return 0


def _lines(f: dict[str, Any]) -> list[str]:
    from hardcase_export.picking.risk_choice import say_promise

    unit, cost, request = f["unit"], f["cost"], f["request"]
    mean = "not claimed" if cost["mean"] is None else f"{cost['mean']:.2f}"
    bound = "" if cost["is_exact"] else " (bounds)"
    lines = [
        f"{f['name']}: {f['target']} in {len(f['classes'])} classes ({_some(f['classes'])})",
        f"  sha256      {f['sha256']}",
        f"  cost        worst {cost['worst']:g}, mean {mean}, best {cost['best']:g} {unit}{bound}",
        f"  operations  {f['operations']} on the longest path of {f['longest_path']} nodes",
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
    lines += [f"  {'sensor':<24}{'cost':>12} {unit}  features"]
    lines += [f"  {s['name']:<24}{s['cost']:>12g} {' ' * len(unit)}  {_some(s['features'])}" for s in f["sensors"]]
    lines += [f"  texts       {name}: {_some(texts)}" for name, texts in f["categories"].items()]
    promise = say_promise(f["claims"].get("promise"))
    if promise is not None:
        lines.append(f"  promise     {promise}")
    lines += [f"  claims      {key}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(f["claims"].items())]
    return lines


def _some(values: list[Any], limit: int = 8) -> str:
    """The first values, and the number of the others."""
    shown = ", ".join(map(str, values[:limit]))
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"
