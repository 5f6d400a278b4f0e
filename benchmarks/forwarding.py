# SPDX-License-Identifier: Apache-2.0
"""The rule "forward" of a broken promise: what a device still answers alone under drift, and how well, old and new.

``recertify.py`` runs this and writes the section of its page. From the break on, the same cases come to a device with
the rule that cells rest and answer (``hardcase_edge/more/drift/reaction.py``) and to one with the rule before it:
forward a quarter of its own answers, those with the lowest confidence, and at each further break by audits a quarter
more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.pages import markdown, rest
from hardcase_edge.base.change import Change
from hardcase_edge.more.drift.promise import ALPHA, Promise
from hardcase_edge.more.drift.reaction import ALLOWED, DOUBLING, PROBE
from hardcase_edge.settings.values import FORWARD

CASES = 40_000  # from the break on; at one a minute four weeks
SHARE = 0.005  # of the answers given alone, audited
QUARTERS = (0.25, 0.5, 0.75, 1.0)  # of its own answers that a device forwarded by the old rule
BINS, FADE = 50, 2_048  # of confidences, by the old rule


class Answers(NamedTuple):
    """What program and f0 answer to each row."""

    local: np.ndarray  # is it answered alone
    agrees: np.ndarray  # does f0 agree
    confidence: np.ndarray
    place: np.ndarray  # its cell
    right: np.ndarray  # is the program's own answer the label of the table


class Drift(NamedTuple):
    """A drift that breaks a promise."""

    policy: str
    name: str
    promised: float
    answers: Answers


class Quarters:
    """The old rule: of its own answers a device forwards the least sure, a quarter more at each break."""

    def __init__(self, promised: float) -> None:
        self._promised, self._breaks = promised, 0
        self._counts, self._n = [0.0] * BINS, 0.0
        self._begin()

    def _begin(self) -> None:
        self._breaks += 1
        self._change = Change(1 - self._promised, ALPHA / 2 ** (self._breaks + 1))

    def takes(self, confidence: float) -> bool:
        """Whether this answer is forwarded."""
        place = min(BINS - 1, int(confidence * BINS))
        if self._n >= FADE:
            self._counts, self._n = [n / 2 for n in self._counts], self._n / 2
        self._counts[place] += 1
        self._n += 1
        return sum(self._counts[:place]) < QUARTERS[self._breaks - 1] * self._n

    def audited(self, agrees: bool) -> None:
        """F0 has answered an audit."""
        self._change.see(float(not agrees), 1)
        if self._change.is_noticed and self._breaks < len(QUARTERS):
            self._begin()


def followed(drift: Drift, seed: int) -> dict[str, Any]:
    """One drift from the break on: by both rules the share of cases answered alone, and how many of these were good."""
    world = random.Random(seed)
    rows = [world.randrange(len(drift.answers.local)) for _ in range(CASES)]
    probes, audits = [world.random() for _ in range(CASES)], [world.random() < SHARE for _ in range(CASES)]
    old, promise = Quarters(drift.promised), Promise(drift.promised, None, FORWARD)
    while promise.rest is None:
        promise.audited(False)
    local, agrees, confidence, place, right = (x.tolist() for x in drift.answers)
    counts = {rule: [0, 0, 0, 0] for rule in ("old", "new")}  # alone, f0 agrees, right, alone in the last quarter
    is_kept = True
    for k, row in enumerate(rows):
        if not local[row]:
            continue
        takes = {"old": old.takes(confidence[row]), "new": promise.rest.takes(place[row], probes[k])}
        if takes["new"]:
            promise.rest.answered(agrees=agrees[row])
        for rule, judge in (("old", old), ("new", promise)):
            if not takes[rule]:
                some = counts[rule]
                some[0] += 1
                some[1] += agrees[row]
                some[2] += right[row]
                some[3] += 4 * k >= 3 * CASES
                if audits[k]:
                    judge.audited(agrees[row])
        alone, good = counts["new"][:2]
        most = (1 - drift.promised) * alone + ALLOWED * (1 + (promise.rest.n // DOUBLING).bit_length())
        is_kept = is_kept and alone - good <= most
    found: dict[str, Any] = {"policy": drift.policy, "drift": drift.name, "promised": drift.promised, "seed": seed,
                             "local": float(drift.answers.local.mean())}  # fmt: skip
    for rule, (alone, good, n_right, late) in counts.items():
        shares = [x / alone if alone else None for x in (good, n_right)]
        found[rule] = {"alone": alone / CASES, "agreement": shares[0], "right": shares[1], "late": 4 * late / CASES}
    before = drift.answers.agrees[drift.answers.local]
    return {**found, "before": float(before.mean()), "within": is_kept, "breaks": promise.breaks}


def kept(found: dict[str, Any], rule: str) -> bool:
    """Whether f0 agrees with the promised share of what was answered alone."""
    share = found[rule]["agreement"]
    return share is None or share >= found["promised"]


def section(measured: list[dict[str, Any]], is_whole: bool) -> str:
    """The section of the page; a row for each drift, or for each way of a sensor."""
    text = (
        "\n## The rule forward\n\nWith `--on-broken forward`, "
        f"{CASES:,} cases from the break on (four weeks), of whose answers alone {SHARE:.1%} are audited.\n"
        "*Old* forwards the least sure quarter of the answers, and a quarter more at each break; *new*: answers rest "
        f"until f0 agrees, and {PROBE:.0%} of the rest are probes ([how](../drift.md)).\n"
        "The rule was designed on the first policy; *itself* is the share answered alone without the rule.\n\n"
    )
    lines, policies = [], list(dict.fromkeys(x["policy"] for x in measured))
    for name in policies:
        some = [x for x in measured if x["policy"] == name]
        cells = [_mean(x[rule]["alone"] for x in some) for rule in ("old", "new")]
        n_kept = [f"{sum(kept(x, rule) for x in some)} of {len(some)}" for rule in ("old", "new")]
        within = f"{sum(x['within'] for x in some)} of {len(some)}"
        late = _mean(x["new"]["late"] for x in some)
        lines.append(
            [
                name,
                f"{some[0]['promised']:.4f}",
                _mean(x["local"] for x in some),
                cells[0],
                n_kept[0],
                cells[1],
                late,
                n_kept[1],
                within,
            ]
        )
    head = (
        "policy",
        "promised",
        "itself",
        "old: alone",
        "kept",
        "new: alone",
        "last week",
        "kept",
        "within the ledger's bound",
    )
    text += markdown(head, lines) + "\n\n"
    rule = ("alone", "agreement")
    head = ("policy", "drift", "agreement before", "itself", *(f"{x}: {y}" for x in ("old", "new") for y in rule))
    head = (*head, "right", "last week")
    ways = {
        x["policy"] + way(x): [y for y in measured if (y["policy"], way(y)) == (x["policy"], way(x))] for x in measured
    }
    some = [[x] for x in measured] if is_whole else ways.values()
    about = "*Agreement* is f0's with what was answered alone, *right* is by the table's label.\n\n"
    return text + rest("the rule by each drift", about + markdown(head, [_line(x, is_whole) for x in some]))


def way(found: dict[str, Any]) -> str:
    """A drift without its size."""
    return str(found["drift"]).rpartition(" of ")[0]


def _line(found: list[dict[str, Any]], is_whole: bool) -> list[str]:
    """Of one drift, or of all sizes of a sensor's."""
    keys = [
        ("old", "alone"),
        ("old", "agreement"),
        ("new", "alone"),
        ("new", "agreement"),
        ("new", "right"),
        ("new", "late"),
    ]
    cells = [
        _ends([x["before"] for x in found], lambda v: f"{v:.3f}"), _ends([x["local"] for x in found], "{:.0%}".format),
        *(
            _ends([v for x in found if (v := x[rule][key]) is not None],
                  "{:.0%}".format if key in ("alone", "late") else _share)
            for rule, key in keys
        ),
    ]  # fmt: skip
    told = found[0]["drift"] if is_whole else way(found[0]) + f" ({len(found)})"
    return [found[0]["policy"], told, *cells]


def _ends(values: list[float], said: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys(said(v) for v in (min(values), max(values)))) if values else ""


def _share(share: float) -> str:
    return f"{math.floor(1_000 * share) / 1_000:.3f}"


def _mean(shares: Any) -> str:
    return f"{np.mean(list(shares)):.0%}"
