# SPDX-License-Identifier: Apache-2.0
"""The part of the page on streams: where ``hardcase`` is behind, and how the methods were run."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.budgeted.cases import STREAMS
from benchmarks.budgeted.hard_page import AHEAD, BEHIND, OURS, accuracies, cell, difference
from benchmarks.pages import markdown

PEERS = ("CALIMERA", "ECONOMY-gamma", "confidence cut", "fixed prefix")
ABOUT = """## Streams

A window is read in segments of cost 1, in the order of time: who reads one has paid for all before it.
The rig's cycles of a minute have ten segments, of which the mean and the rise of one sensor are read, and 60 % of \
2,205 train; drift has 20 readings of a normal variable around ±0.2 or ±0.8, and 1,000 training rows.
`hardcase` has no word for sensors that come in order: its sensors are prefixes, and a policy that reads two believes \
to pay the first one twice.

**CALIMERA** (Bilski and Jastrzebska 2023) and **ECONOMY-gamma** (Achenchabe et al. 2021) are written anew, with a \
forest for each prefix and rules for 12 prices of time mixed by a coin; ml_edm, which has both, could not be installed.
**Confidence cut** stops where the largest chance reaches one cut, **fixed prefix** is the static answer, and \
**posterior by hand** is told how the drift is drawn.
"""


def gaps(results: dict[str, Any], peer: str) -> tuple[list[str], int, int]:
    """Verdicts beside a peer at each budget of the streams with two seeds, how many these are, and the fewest seeds."""
    found, n, seeds = list[str](), 0, 10**9
    for name in STREAMS:
        methods = results.get(name, {})
        both = methods.get(OURS, {}).keys() & methods.get(peer, {}).keys()
        if len(both) < 2:  # no interval
            continue
        wishes = next(iter(methods[peer].values()))["wishes"]
        found += [difference(methods, peer, wish)[0] for wish in wishes]
        n, seeds = n + 1, min(seeds, len(both))
    return found, n, seeds


def verdicts(results: dict[str, Any]) -> str:
    """A line for each peer."""
    lines = []
    for peer in PEERS:
        found, n, seeds = gaps(results, peer)
        if not found:
            lines.append(f"- {peer}: not run beside `{OURS}` on two seeds of any stream, so there is no interval.")
            continue
        lines.append(
            f"- {peer}: `{OURS}` is less accurate at {found.count(BEHIND)} and more accurate at {found.count(AHEAD)} "
            f"of {len(found)} budgets (at least {seeds} seeds)."
        )
    for name, case in STREAMS.items():
        n = len(results.get(name, {}).get(OURS, {}))
        lines += [f"- {case.title}: {n} of {len(case.seeds)} seeds have been run with `{OURS}`."] * (
            n < len(case.seeds)
        )
    return "\n".join(lines) + "\n"


def about(results: dict[str, Any]) -> str:
    """Verdicts first, then how it was done."""
    title, _, rest = ABOUT.partition("\n\n")
    return f"{title}\n\n{verdicts(results)}\n{rest}\n{_each(results)}"


def _each(results: dict[str, Any]) -> str:
    """A row for each stream: accuracies at its budgets, and by how much these are ahead of the first two peers."""
    rows = []
    for name, case in STREAMS.items():
        methods = results.get(name, {})
        if not methods.get(OURS):
            continue
        asked = sorted(next(iter(methods[OURS].values()))["wishes"], key=lambda wish: float(wish.split()[1]))
        own = [cell(list(accuracies(methods, OURS, wish).values())) for wish in asked]
        gaps = [[difference(methods, peer, wish)[1] or "not run" for wish in asked] for peer in PEERS[:2]]
        rows.append([case.title, ", ".join(w.split()[1] for w in asked), *("; ".join(x) for x in (own, *gaps))])
    heads = ["stream", "mean cost at most", OURS, *(f"ahead of {peer} by" for peer in PEERS[:2])]
    return markdown(heads, rows) + "\n"


def shortfall(results: dict[str, Any]) -> str:
    """A line for the page's beginning; empty where nothing is behind."""
    found, n, _ = gaps(results, PEERS[0])
    k = found.count(BEHIND)
    if not k:
        return ""
    less = [gap for name in STREAMS for gap in _mean_gaps(results.get(name, {}))]
    return (
        f"- [Streams](#streams): less accurate than {PEERS[0]} at {k} of {len(found)} budgets of {n} "
        f"stream{'s' * (n > 1)}, by up to {max(less):.3f}: sensors that come in order cannot be said to it.\n"
    )


def _mean_gaps(methods: dict[str, Any]) -> list[float]:
    """By how much the first peer is more accurate at each budget, on the seeds that both have, if these are two."""
    own, other = methods.get(OURS, {}), methods.get(PEERS[0], {})
    both = sorted(own.keys() & other.keys())
    if len(both) < 2:
        return []
    each = [{w: other[s]["wishes"][w]["accuracy"] - f["accuracy"] for w, f in own[s]["wishes"].items()} for s in both]
    return [float(np.mean([gaps[w] for gaps in each])) for w in each[0]]
