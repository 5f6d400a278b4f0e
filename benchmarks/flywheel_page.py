# SPDX-License-Identifier: Apache-2.0
"""The page of ``flywheel.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.pages import markdown

__all__ = ["interval", "text_of"]

GOAL = 0.95
Z = 1.96
ROWS = {
    "do nothing": "the shipped bundle",
    "retrain on f0's labels alone": "`cloud retrain` before anybody has labelled",
    "retrain on people's labels": "`cloud retrain`",
    "a forest by hand": "a forest by hand, which reads every sensor",
}
TURN = (
    "seed", "audits, cases, and decisions they came from", "labels of people", "labels of f0", "claimed by `retrain`",
    "true on devices", "new bundle on devices",
)  # fmt: skip
TITLES = {"rig": "The hydraulic rig", "people": "Phones of other people"}
ABOUT = {
    "rig": """The first 1,400 cycles of the rig train.
The last 805 come later, most of them with the cooler at full power, which none of the first has.
The shipped bundle is that of `hardcase export --method adapt-gbrt --max-loss 0`, which forwards some cases.
Each device gets every third cycle, because the rig stays in a state for ten cycles and longer.
The cycles that are held back are drawn at random, because the last 142 cycles have one answer alone.
So cycles of their states may be labelled.
Where whole states are held back in place of cycles, a forest that somebody fits to all other later cycles is right in \
{states} of theirs: what nobody has labelled, nobody has learned.""",
    "people": """The rows are windows of 10 s of a phone's accelerometer (WISDM), and the answer is what its owner does.
The windows of 24 people train, and those of 12 others come later, four people to a device.
The shipped bundle is that of `hardcase export` without a wish.""",
}
HEAD = """# The flywheel: does retraining help, by the truth?

`HARDCASE_DATA=FOLDER python -m benchmarks run flywheel` wrote this page, on a machine with 2 cores that had other work to do.

The world changes after a bundle was shipped, and the loop of [the page of the cloud](../cloud.md) closes by its commands, with no step by hand but the labels:

1. `hardcase train` and `export --monitors` make a bundle of the first rows.
2. Three `hardcase-edge run` with `--audit 50%`, `--outbox` and `--drift watch` decide over 70 % of the later rows, while `cloud worker --cases`, `cloud store` and `cloud label` serve them.
3. A person labels the audits and the forwarded cases by `cloud label --labels`; the labels are the table's truth.
4. `cloud retrain --group --canary 1` trains, compares, signs, and rolls out to one device and then to the others, which go on deciding meanwhile.
5. The devices decide over the other 30 % of the later rows, which no training has seen, and their answers are compared with the truth.

The devices have stores that trust the keys of `hardcase keys`, and certificates of `hardcase ca`.
They connect by TLS to a mosquitto with the rules of `cloud acl`.
On the same 30 % stand the shipped bundle, the bundle of a retraining before anybody has labelled, and 300 extremely randomised trees of scikit-learn, which somebody fits by hand to all first rows and all labelled ones.
The share right is that of all seeds' rows together, with its 95 % interval (Wilson), and then that of each seed.
A seed draws the rows that are held back, the split of the first rows and, for phones, the people.

The second table was chosen before any retraining.
Of three tables whose rows have a time or a person, it is the one on whose later rows 300 extremely randomised trees lose most:

"""  # noqa: E501


def interval(right: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n (Wilson)."""
    half = Z * math.sqrt(right * (1 - right) / n + Z * Z / 4 / n / n)
    low, high = ((right + Z * Z / 2 / n + sign * half) / (1 + Z * Z / n) for sign in (-1, 1))
    return low, high


def text_of(found: dict[str, Any]) -> str:
    """The page in Markdown, of the JSON that ``flywheel.py`` writes."""
    fell = [(name, f"{own:.3f}", f"{late:.3f}") for name, (own, late) in found["survey"].items()]
    head = HEAD + markdown(("table", "right on rows of the first kind", "right on later rows"), fell)
    states = ", ".join(f"{share:.2f}" for share in found["whole states"])
    sections = [_section(name, runs).replace("{states}", states) for name, runs in found["tables"].items()]
    return "\n\n".join([head, *sections, _verdict(found["tables"])]) + "\n"


def _section(name: str, runs: Sequence[dict[str, Any]]) -> str:
    """What is said of one table."""
    unit = next(said["unit"] for run in runs for said in run["retrain"]["said"] if "unit" in said)
    titles = ("on the rows that were held back", "right (95 %)", "of each seed", f"cost, {unit}", "forwarded")
    parts = [
        f"## {TITLES[name]}",
        ABOUT[name],
        markdown(titles, [(text, *_cells([run["rows"][row] for run in runs])) for row, text in ROWS.items()]),
        markdown(TURN, [_turn(run) for run in runs]),
        markdown(
            ("step", "seconds"), [(step, _mean([r["steps"][step] for r in runs], 0)) for step in runs[0]["steps"]]
        ),
    ]
    curve = [(n, _share(made)) for run in runs for n, made in run["curve"].items()]
    if curve:
        curve.append(("all " + str(runs[0]["labels"]["person"]), _share(runs[0]["rows"]["retrain on people's labels"])))
        parts += ["With fewer labels of people, of the first seed:", markdown(("labels", "right (95 %)"), curve)]
    return "\n\n".join(parts)


def _cells(made: Sequence[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Share right over all seeds, of each seed, mean cost and mean share forwarded."""
    each = ", ".join(f"{run['right']:.3f}" if "right" in run else "no bundle" for run in made)
    made = [run for run in made if "right" in run]
    if not made:
        return "none", each, "none", "none"
    n = sum(run["n"] for run in made)
    right = sum(run["right"] * run["n"] for run in made) / n
    whole = _share({"right": right, "right_95": interval(right, n)})
    return whole, each, _mean([run["cost"] for run in made], 2), _mean([run["forwarded"] for run in made], 3)


def _share(made: dict[str, Any]) -> str:
    """A share with its interval, or why there is none."""
    if "right" not in made:
        return f"no bundle: {made['none']}"
    low, high = made["right_95"]
    return f"{made['right']:.3f} ({low:.3f} to {high:.3f})"


def _mean(values: Sequence[float], digits: int) -> str:
    """The mean, and the least and the most."""
    mean = f"{sum(values) / len(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _turn(run: dict[str, Any]) -> tuple[str, ...]:
    """What one seed's loop did."""
    claim, came, labels = _claim(run), run["came"], run["labels"]
    told = "nothing" if claim is None else f"{_share(claim)}, {claim['n']} rows"
    sent = f"{came.get('audit', 0)}, {came.get('case', 0)}, {run['n_seen']}"
    by = (str(labels.get(source, 0)) for source in ("person", "f0"))
    return str(run["seed"]), sent, *by, told, _share(run["truth"]), ", ".join(run["devices"])


def _claim(run: dict[str, Any]) -> dict[str, Any] | None:
    """What ``retrain`` itself has said of its bundle, with the interval of such a share."""
    said = next((said for said in run["retrain"]["said"] if "new" in said), None)
    if said is None:
        return None
    right, n = said["new"]["right"], said["n_judged"]
    return {"right": right, "right_95": interval(right, n), "n": n}


def _verdict(tables: dict[str, list[dict[str, Any]]]) -> str:
    """Whether the goal was reached, and whether a claim was too rosy."""
    least, runs = min(run["truth"]["right"] for run in tables["rig"]), [run for of in tables.values() for run in of]
    reached = "it was, in each seed" if least >= GOAL else f"it was not: the least of a seed was {least:.3f}"
    states = [state for run in runs for state in run["devices"]]
    claims = [(claim, run["truth"]["right"]) for run in runs if (claim := _claim(run)) is not None]
    rosy = sum(truth < claim["right_95"][0] for claim, truth in claims)
    return "\n".join(
        [
            f"The goal was {GOAL} right on the cycles of the rig that were held back, on devices; {reached}.",
            f"Of all {len(states)} devices, {states.count('good')} ended with the new bundle good.",
            f"In {rosy} of {len(claims)} turns the truth lies below the 95 % interval of what `cloud retrain` claimed.",
        ]
    )
