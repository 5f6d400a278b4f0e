# SPDX-License-Identifier: Apache-2.0
"""``hardcase costs``: fit cost polynomials to measured times, or check declared costs against them."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from hardcase_edge.base.escape import terminal
from hardcase_edge.base.toml import toml_value
from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    from .fit import CostFit, Times

__all__ = ["EXAMPLES", "HELP", "arguments", "run"]

HELP = "Fit costs of sensors to times that a device has measured: polynomials in the item's size, from above."
EXAMPLES = """\
hardcase-edge measure my_camera --repeat 50 --out times.jsonl   # on the device
hardcase costs times.jsonl --quantile 0.5
hardcase costs times.jsonl --check hardcase.toml                # is a declared cost below what was measured?"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("times", help="the file that hardcase-edge measure --out has written")
    parser.add_argument(
        "--quantile", type=float, default=0.5, help="share of the times that a cost does not fall below (default 0.5)"
    )
    parser.add_argument("--degree", type=int, default=2, help="of the polynomials, 0 to 7 (default 2)")
    parser.add_argument("--check", metavar="TOML", help="refuse costs in this hardcase.toml that are too low")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the costs as lines of a hardcase.toml, with their excess and the spread of the times."""
    from .fit import check_declared, fit, own_ms, read_times

    if not 0 < args.quantile <= 1:
        raise InputError(f"--quantile is {args.quantile:g}; use more than 0, up to 1")
    if not 0 <= args.degree <= 7:
        raise InputError(f"--degree is {args.degree}; use 0 to 7")
    times = read_times(args.times)
    if args.check is not None:
        from hardcase_train.settings.toml import read_config
        from hardcase_train.tasks.task import matching

        config = read_config(args.check)
        if config.unit != "ms":
            raise InputError(f"{args.check} counts costs in {config.unit!r}, but times are in ms; check costs in ms")
        names = [name for name in times.sensors if not any(matching((name,), pattern) for pattern in config.drop)]
        default = dict.fromkeys(names, config.default_sensor)  # of those that no [[sensor]] names
        check_declared(default | {s.name: s.cost for s in config.sensors}, times, args.quantile)
    own = own_ms(times, args.quantile)
    fits = {name: fit(t, args.quantile, degree=args.degree, more=own) for name, t in times.sensors.items()}
    if args.json:
        print(json.dumps({"own_ms": own, "sensors": {name: _plain(f) for name, f in fits.items()}}))
    else:
        print("\n".join(_lines(fits, times, own)))
    return 0


def _plain(found: CostFit) -> dict[str, object]:
    return {
        "cost": found.cost,
        "largest_excess": found.largest_excess,
        "mean_excess": found.mean_excess,
        "spread": found.spread,
        "step": found.step,
    }


def _lines(fits: dict[str, CostFit], times: Times, own: float) -> list[str]:
    """TOML, with what people should know in comments."""
    lines = [f"# in ms; the decision itself takes {own:.6g} ms a reading, which is in each c0"]
    if not times.own:
        lines = ["# in ms; the decision's own time was not measured and is not in these"]
    for name, found in fits.items():
        sizes = sorted(times.sensors[name])
        lines += [
            "",
            f"[[sensor]]  # {len(sizes)} sizes from {sizes[0]} to {sizes[-1]}: excess {found.mean_excess:.1%} in the "
            f"mean, {found.largest_excess:.1%} at most; p90 is {found.spread:.2f} times the median",
            f"name = {toml_value(name)}",
            f"cost = {found.cost}",
            'cost_origin = "measured"',
        ]
        if found.step > 1:
            lines.append(f"# rounding to micro-units adds over 1 %: count sizes in steps of {found.step}, rounded up")
        elif not found.step:
            lines.append("# rounding to micro-units adds over 1 % with coarser sizes too: the times are short")
    return [terminal(line) for line in lines]
