# SPDX-License-Identifier: Apache-2.0
"""Attack on bounds: bundles and programs made to be slow, up to the limits, each in a process of its own."""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from hardcase_edge.bundle.load import load_bytes
from hardcase_edge.errors import BundleError
from hardcase_edge.kernel.machine import KERNEL, PYTHON, decide, has_kernel, open_machine
from hardcase_edge.program.definition import Program
from hardcase_edge.program.limits import worst_decision_ms
from hardcase_edge.verifier.verify import verify
from tests.helpers.edge.bundles import bundle_of
from tests.helpers.edge.crafted import LONG_DECISIONS, LONG_PROOFS

from .outcome import Attack, Outcome, least_seconds

MOST_SECONDS = 2.0  # of CPU, to load or refuse any bundle
MOST_MEGABYTES = 256  # while loading any bundle: 32 times the largest file
LARGEST = 130_000  # of the number that a maker takes
PACKING_S = 5  # of CPU: a program that takes longer to make is left out
ENDLESS_S = 60  # of CPU: a bundle that takes longer to load hangs
LOADED = f"bounds: crafted bundles, at most {MOST_SECONDS:g} s"
DECIDED = "bounds: decisions of crafted programs"
MAKERS = {**LONG_PROOFS, **LONG_DECISIONS}


def apart(work: Callable[[], bytes], seconds: int, gigabytes: int = 4) -> bytes | None:
    """What ``work`` returns in a process of its own; None if it dies, of its limits of CPU and memory too."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (gigabytes << 30, gigabytes << 30))
        try:
            with os.fdopen(writing, "wb") as out:
                out.write(work())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(pid, 0)
    return data if status == 0 else None


def packed(make: Callable[[int], Program], size: int) -> bytes:
    """The bundle of a program; empty if it does not fit a file, or no such program has this size."""
    try:
        return bundle_of(make(size))
    except (BundleError, ValueError, IndexError, OverflowError):
        return b""


def loading_cost(data: bytes) -> bytes:
    """CPU seconds and megabytes that loading or refusing these bytes takes, and whether they are accepted, as JSON."""
    before, started = _megabytes(), time.process_time()
    try:
        load_bytes(data)
    except BundleError:
        is_accepted = False
    else:
        is_accepted = True
    return json.dumps([time.process_time() - started, _megabytes() - before, is_accepted]).encode()


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decision_cost(program: Program, evaluator: str, operations: int, together: int = 20_000) -> float:
    """Milliseconds of a decision of so many proved operations: the slowest of three worlds, each the best of three.

    ``together``: operations that are timed together, about.
    """
    machine, row = open_machine(program, evaluator), [0.75] * len(program.features)
    worlds: tuple[dict[str, Any], ...] = ({}, {"budget": 0}, {"dead": range(len(program.sensors))})
    calls = [partial(decide, machine, row, None, **world) for world in worlds]
    return 1e3 * max(least_seconds(call, count=1 + together // operations) for call in calls)


def drawn(rng: random.Random) -> Generator[tuple[str, int, bytes], None, None]:
    """Crafted bundles of random sizes, each with its maker."""
    while True:
        name, size = rng.choice(list(MAKERS)), round(LARGEST ** rng.random())
        if data := apart(partial(packed, MAKERS[name], size), PACKING_S):
            yield name, size, data


def loaded(case: tuple[str, int, bytes]) -> list[Any]:
    """What loading costs: the first of three that is within its time, which other work on the processor adds to."""
    for _ in range(3):
        answer = apart(partial(loading_cost, case[2]), ENDLESS_S)
        assert answer is not None, "dead, or without an end"
        cost: list[Any] = json.loads(answer)
        if cost[0] <= MOST_SECONDS:
            break
    return cost


def within_bounds(case: tuple[str, int, bytes], cost: list[Any]) -> list[Outcome]:
    """No more time or memory to load than any bundle may take, or to decide than was proved."""
    (name, size, _), (took, megabytes, is_accepted) = case, cost
    rows = [Outcome(LOADED, 0, 0, took > MOST_SECONDS or megabytes > MOST_MEGABYTES, took)]
    if is_accepted and size <= 3_000:
        program = MAKERS[name](size)
        operations = verify(program).operations
        for evaluator in (PYTHON, KERNEL) if has_kernel() else (PYTHON,):
            ms = decision_cost(program, evaluator, operations)
            rows.append(Outcome(DECIDED, 1, 0, ms > worst_decision_ms(operations, evaluator), ms / 1e3))
    return rows


attack = Attack(LOADED, drawn, loaded, within_bounds, rows=(DECIDED,), is_timed=False)
