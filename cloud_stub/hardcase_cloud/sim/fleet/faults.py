# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a fleet on real sockets: the faults of a scenario that processes and connections can have.

A worker is killed, or stopped for a time, and devices are cut off for a time. Where the scenario has a ``[network]``,
all packets go over a link that does to them what it says. Other faults and roll-outs happen in virtual time alone, and
are refused here, because a fleet that leaves them out would look well.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge

from hardcase_edge.errors import InputError
from hardcase_edge.link.address import Address

from ..slow_link.link import SlowLink
from ..slow_link.way import Weather
from .limits import raise_file_limit
from .scenario import Fault, Scenario

POSSIBLE = ("worker", "worker-pause", "partition")
OF_WORKERS = ("worker", "worker-pause")


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do at a time, in seconds from the first decision."""

    at_s: float
    what: str
    act: Callable[[], None]


def check_scenario(scenario: Scenario, n_workers: int) -> None:
    """Check that real sockets can do all of it.

    Raises
    ------
    InputError
        They cannot, or it is about workers and there are none of ours.
    """
    for fault in scenario.faults:
        if fault.kind not in POSSIBLE:
            raise InputError(
                f"{scenario.name}: [[fault]] {fault.kind!r} happens in virtual time only (hardcase fleet replay); real "
                f"sockets can do {', '.join(POSSIBLE)}"
            )
        if fault.kind in OF_WORKERS and not n_workers:
            raise InputError(
                f"{scenario.name}: [[fault]] {fault.kind!r} needs workers of this command; name their model with --hpc"
            )
    if scenario.rollout is not None:
        raise InputError(
            f"{scenario.name}: [rollout] happens in virtual time only (hardcase fleet replay); leave it out"
        )


def link_of(scenario: Scenario, address: Address, n_devices: int) -> SlowLink | None:
    """The link that the scenario asks for, not open yet; None if it has no ``[network]``.

    Raises
    ------
    InputError
        This machine has too few open files for so many devices, each of which has two in the link's process.
    """
    if not scenario.has_network:
        return None
    raise_file_limit(n_devices, each=2)
    network = scenario.network
    weather = Weather(
        network.loss, network.duplicate, network.reorder, network.delay_ms / 1000,
        (network.delay_ms + network.jitter_ms) / 1000,
    )  # fmt: skip
    return SlowLink(address.host, address.port, weather, n_devices)


def steps_of(
    faults: Sequence[Fault],
    seconds: float,
    pids: Callable[[], Sequence[int]],
    cut: Callable[[float, float], None],
) -> Iterator[Step]:
    """What to do and when, in order of time, and one by one: of a long run, all of it would fill the memory.

    Parameters
    ----------
    seconds : after which nothing begins, and workers that stand still go on
    pids : the processes of the workers, as they are then
    cut : cuts this share of the devices off for so many seconds
    """
    streams = []
    for fault in faults:
        if fault.kind == "partition":
            acts = [(0.0, f"{fault.share:.0%} of the devices cut off", _cutting(cut, fault))]
        elif fault.kind == "worker":
            acts = [(0.0, "worker killed", _signalling(pids, fault.share, signal.SIGKILL))]
        else:
            acts = [(0.0, "worker stopped", _signalling(pids, fault.share, signal.SIGSTOP))]
            acts += [(fault.for_s, "worker goes on", _signalling(pids, 1.0, signal.SIGCONT))]
        streams += [_again(fault, seconds, *act) for act in acts]
    return merge(*streams, key=lambda step: step.at_s)


def _again(fault: Fault, seconds: float, after_s: float, what: str, act: Callable[[], None]) -> Iterator[Step]:
    """A step so many seconds after each time at which the fault begins."""
    at_s = fault.at_s
    while at_s < seconds:
        yield Step(min(at_s + after_s, seconds), what, act)
        if not fault.every_s:
            return
        at_s += fault.every_s


def _cutting(cut: Callable[[float, float], None], fault: Fault) -> Callable[[], None]:
    return lambda: cut(fault.share, fault.for_s)


def _signalling(pids: Callable[[], Sequence[int]], share: float, number: signal.Signals) -> Callable[[], None]:
    def act() -> None:
        all_pids = [pid for pid in pids() if pid]
        for pid in all_pids[: max(1, round(share * len(all_pids)))]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    return act
