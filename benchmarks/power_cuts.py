# SPDX-License-Identifier: Apache-2.0
"""Power cuts within each routine that writes: how many states, how many wrong, and what each flush is there for.

    python -m benchmarks run power_cuts [--seconds 60] [--seed 0] [--only outbox]
    python -m benchmarks run power_cuts --only lives [--lives 10000]

Random runs of each routine are cut at every call; ``tests/helpers/edge/power_cuts.py`` says which states a cut may
leave. Then every kind of flush, and every kind of rename, is left out in turn, until a state is wrong.
Lives of a store from an empty folder (``tests/helpers/edge/store_lives.py``) say whether what has worked is ever lost.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from benchmarks.pages import markdown, rest
from tests.helpers.edge import store_lives
from tests.helpers.edge.cut_runs import Cuts
from tests.helpers.edge.identity_cuts import identity_runs, without_openssl
from tests.helpers.edge.outbox_cuts import outbox_runs
from tests.helpers.edge.store_cuts import store_runs
from tests.helpers.edge.update_cuts import update_runs
from tests.helpers.flash_cuts import folder_runs, image_runs
from tests.helpers.places import in_memory

TRIES = 8  # runs until a missing call counts as not found
MOST_S = 10.0  # for one missing call
LIVES_OF_WORSE = 200  # of stores in which one rule is another one


class Routine(Protocol):
    """What ``tests/helpers`` has of each routine."""

    n_states: int
    wrong: set[str]
    kinds: set[str]

    def sample(self, seed: int) -> None: ...


Make = Callable[[Path, Callable[[str], bool]], Routine]
ROUTINES: dict[str, tuple[Make, float]] = {  # and their share of the time
    "store: put, trial, rotation": (partial(Cuts, routine=store_runs), 0.4),
    "update over the air": (partial(Cuts, routine=update_runs), 0.2),
    "identity: enrolment, renewal": (partial(Cuts, routine=identity_runs), 0.15),
    "flash of a boot folder": (partial(Cuts, routine=folder_runs), 0.1),
    "flash of an image (FAT)": (partial(Cuts, routine=image_runs), 0.15),
    "outbox: SQLite's own calls": (partial(Cuts, routine=outbox_runs), 0.3),
}
HEAD = """# Power cuts

`python -m benchmarks run power_cuts` runs random steps of each routine that writes, and cuts the power at every call \
that changes a file or a name, in every combination of what was not flushed: a name is there or not, a file is old, \
cut off, torn, or zeros in part (of an image, and of an outbox at random calls, by a coin).
A state is wrong if

- a store then runs neither what it ran nor what the step brings, has lost something acknowledged, or cannot take the \
next bundle; the start after each cut is cut, too,
- an update has lost a flushed chunk, a ready bundle or the newest metadata, or does not go on,
- an identity is neither the old nor the new one, or a key or claim is gone too early,
- an outbox has lost a committed record or has one twice, or does not take the next one,
- a flash has damaged the system's own files, starts a part of an archive, or is not mended by a repeat.

**{states:,} states** in {seconds:.0f} s on one core of {machine}: **{wrong} wrong**.

"""
MIDDLE = """
Without one call that the code makes, the same cuts find a wrong state, but for calls of which the last column counts \
the others ([why](#what-is-not-found)).

"""
LIVES = """
## A bundle that has worked

`python -m benchmarks run power_cuts --only lives` lives **{lives:,} random sequences** of a device with the real \
store, its runs and its updates: {events:,} events, of which {offer:,} offers over the air, {put:,} bundles put by \
hand, {start:,} starts, {stop:,} stops and {kill:,} kills; {cuts:,} times the power went at a write, or a check killed \
the process.
Bundles are good, lack sensors, crash at once or later, differ from f0, or break their own check; {worked:,} worked, \
{rolled_back:,} were rolled back, and {without:,} starts found no bundle.
Of {states:,} states, one is wrong if a bundle had worked, and none that had would run or stand behind the one on trial.

**{wrong:,} states without a working bundle where one had worked**, and {stuck:,} lives in which the good bundle at \
their end did not come to stay.

Lives of stores in which one rule is another one, {tried:,} for each rule:

"""
TAIL = """
## What is not found

- A slot is `loading` while its bundle and signature are written, and nobody looks into it.
- A key and an authority without a request need no rename: the device begins the next number.
- In an image a later flush of the table or of the next file covers the others.
- SQLite's journal serves only before the first record.

Not covered are a flash over ssh and the files of training, exports and the cloud; \
[cuts on ext4](README.md#retired), measured once, have a mounted root, store and outbox.
"""


def measure(seconds: float, seed: int, only: str = "") -> dict[str, Any]:
    """All figures, or those of the routines whose names begin so."""
    chosen = {name: routine for name, routine in ROUTINES.items() if name.startswith(only)}
    with pytest.MonkeyPatch.context() as patch, without_openssl():
        patch.setattr(os, "fsync", lambda descriptor: None)  # these files need not outlive the machine
        rows = {name: measured(make, seconds * share, seed) for name, (make, share) in chosen.items()}
    return {"machine": platform.machine(), "rows": rows}


def measured(make: Make, seconds: float, seed: int) -> dict[str, Any]:
    """The figures of one routine."""
    with in_memory() as folder:
        cuts, began, runs = make(Path(folder), lambda kind: False), time.monotonic(), 0
        while time.monotonic() < began + seconds:
            cuts.sample(seed + runs)
            runs += 1
        elapsed = time.monotonic() - began
        missing = {call: tried(make, seed, call) for call in sorted(cuts.kinds) if call.startswith(("sync", "rename"))}
    figures = {"runs": runs, "states": cuts.n_states, "wrong": len(cuts.wrong), "seconds": elapsed}
    return {**figures, "missing": missing}


def tried(make: Make, seed: int, call: str) -> dict[str, Any]:
    """How many runs and states it took to find that a call is missing; ``found`` is false if none did."""
    end = time.monotonic() + MOST_S
    with in_memory() as folder:
        cuts = make(Path(folder), lambda kind: kind == call)
        for runs in range(1, TRIES + 1):
            cuts.sample(seed + runs - 1)
            if cuts.wrong or time.monotonic() > end:
                break
    return {"found": bool(cuts.wrong), "runs": runs, "states": cuts.n_states}


def lived(n: int, seed: int) -> dict[str, int]:
    """What random lives of a store came to: states that were judged, and how many of them had lost what had worked."""
    seen: Counter[str] = Counter()
    with store_lives.world(), in_memory() as folder:
        for k in range(n):
            life = store_lives.live(Path(folder), store_lives.random_events(seed + k))
            stuck = [line for line in life.wrong if line == store_lives.STUCK]
            seen += life.seen
            seen["states"] += life.n_states
            seen["wrong"] += len(life.wrong) - len(stuck)
            seen["stuck"] += len(stuck)
            seen["lives that lost it"] += len(life.wrong) > len(stuck)
    events = sum(seen[event] for event in set(store_lives.EVENTS))
    return {
        **seen,
        "lives": n,
        "events": events,
        **{key: seen[key] for key in ("wrong", "stuck", "lives that lost it")},
    }


def lives(n: int, seed: int) -> dict[str, Any]:
    """The figures of lives, and of fewer in which one rule is another one."""
    began, worse = time.monotonic(), {}
    figures: dict[str, Any] = lived(n, seed)
    for what, (name, _) in store_lives.WORSE.items():
        with store_lives.worse(name):
            worse[what] = lived(min(n, LIVES_OF_WORSE), seed)
    return {**figures, "worse": worse, "seconds": time.monotonic() - began}


def page_of_lives(figures: dict[str, Any]) -> str:
    """The part of the page about lives."""
    worse = figures["worse"]
    rows = [[what, f"{row['lives that lost it']:,}"] for what, row in worse.items()]
    words = {key.replace(" ", "_"): value for key, value in figures.items()}
    return (
        LIVES.format(
            **words,
            cuts=figures[store_lives.CUT],
            without=figures["no bundle"],
            tried=next(iter(worse.values()))["lives"],
        )
        + markdown(("instead", "lives that lost a bundle that had worked"), rows)
        + "\n"
    )


def page(measured: dict[str, Any]) -> str:
    """The Markdown page."""
    rows, missing = [], list[tuple[str, str, str]]()
    for name, row in measured["rows"].items():
        calls = row["missing"]
        found = f"{sum(call['found'] for call in calls.values())} of {len(calls)}"
        rows.append(
            [name, f"{row['runs']:,}", f"{row['states']:,}", f"{row['wrong']:,}", f"{row['seconds']:.0f}", found]
        )
        by = {is_found: [f"`{c}`" for c, f in calls.items() if f["found"] == is_found] for is_found in (True, False)}
        missing.append((name.partition(":")[0], *(", ".join(some) for some in by.values())))
    total = {key: sum(row[key] for row in measured["rows"].values()) for key in ("states", "wrong", "seconds")}
    top = markdown(("routine", "runs", "states", "wrong", "s", "missing calls found"), rows)
    below = rest("the calls left out", markdown(("routine", "left out, and found", "not found"), missing))
    return HEAD.format(**measured, **total) + top + "\n" + MIDDLE + below + page_of_lives(measured["lives"]) + TAIL


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lives", type=int, default=10_000, help="random sequences of a store's life")
    parser.add_argument(
        "--only", default="", metavar="NAME", help="routines whose names begin so; others stay as they are"
    )


def run(args: Any) -> dict[str, Any]:
    """Measure all, or some beside what was measured before."""
    before = args.known() if args.only else {"rows": {}}
    if args.only == "lives":
        return {**before, "lives": lives(args.lives, args.seed)}
    now = measure(args.seconds, args.seed, args.only)
    figures = before["lives"] if args.only else lives(args.lives, args.seed)
    return {**now, "rows": {**before["rows"], **now["rows"]}, "lives": figures}
