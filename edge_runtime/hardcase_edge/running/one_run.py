# SPDX-License-Identifier: Apache-2.0
"""One run of one bundle: opens what it needs, makes decisions, and ends in order whatever ends it."""

from __future__ import annotations

import gc
import signal
import time
from typing import TYPE_CHECKING, Any

from ..base.clock import Clock
from ..base.record import record
from ..device.formats import line_format
from ..device.output import BLOCKED_S, Lines, note
from ..errors import InputError
from .connecting import connect, publisher_of, updates_of
from .signals import end_main_thread, on_end

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from ..bundle.load import Loaded
    from ..device.device import Device, RuntimeConfig
    from ..link.link import Link
    from ..operations.beside import Beside
    from ..store.folder import Store
    from ..store.run import Run

__all__ = ["Process", "run_bundle"]


@record(frozen=True, slots=True)
class Process:
    """What the runs of one process have in common."""

    args: argparse.Namespace
    config: RuntimeConfig
    lines: Lines
    beside: Beside


def run_bundle(
    process: Process,
    loaded: Loaded,
    has_news: Callable[[], bool],
    *,
    store: Store | None = None,
    stored: Run | None = None,
) -> None:
    """Decide by this bundle until the run ends.

    Parameters
    ----------
    has_news : says at a reload whether another bundle is there, for which the run ends
    store, stored : the store that the bundle is from, and this run of its slot

    Raises
    ------
    HardcaseError
        It cannot start, or another device uses its id.
    """
    from ..device.audit import AuditedBank
    from ..device.device import Device
    from ..sensors.specs import open_bank, timeout_s_of

    args, beside = process.args, process.beside
    timeout_s = timeout_s_of(args.sensor_timeout_ms)
    try:
        bank = open_bank(
            args.sensors, loaded.machine.program, loaded.manifest, timeout_s=timeout_s, isolate=args.isolate
        )
    except InputError as error:
        if stored is not None:  # its sensors are not those of this device
            stored.fail(str(error))
        raise
    with bank:
        for k in sorted(bank.dead):
            note(f"sensor {loaded.manifest.sensors[k]} has no source and counts as dead")
        publisher = publisher_of(args)
        air = updates_of(args, store) if store is not None else None
        link = connect(args, loaded, beside, publisher, air, stored.clock() if stored is not None else Clock())
        audited = AuditedBank(bank, loaded.machine.program, process.config.item_size) if args.audit else None
        sources = [s.facts for s in (stored, publisher, air) if s is not None]
        device = Device(
            loaded, audited or bank, link, process.config,
            facts=lambda: {key: value for facts in sources for key, value in facts().items()},
        )  # fmt: skip
        gc.freeze()
        gc.enable()
        beside.begin(device, loaded, len(loaded.manifest.sensors) * timeout_s + process.config.deadline_ms / 1000)
        try:
            _begin(process, device, link, stored, has_news)
            if air is not None and link is not None:
                air.begin(link)
            for made in _decisions(process, device, link, stored):
                if publisher is not None:
                    publisher.decided(made, audited.request_readings if audited is not None else None)
        except KeyboardInterrupt:
            pass  # stopped between two decisions
        finally:
            if air is not None:
                air.close()
            on_end(beside.reload.tell if stored is None else stored.tell)
            beside.end()
            if publisher is not None:
                publisher.stop()
            if link is not None:
                link.stop(device.facts())
        if stored is not None and not stored.is_told:
            stored.waited(time.monotonic())
        if link is not None:
            link.check()


def _begin(
    process: Process, device: Device, link: Link | None, stored: Run | None, has_news: Callable[[], bool]
) -> None:
    """Have signals and a trial's deadline end the run from now on."""
    beside, lines = process.beside, process.lines

    def stop(number: int, frame: object) -> None:
        if stored is None or not stored.is_late:
            beside.reload.tell()
        if stored is not None and not stored.is_late:
            stored.tell()
        end()

    def end() -> None:
        device.stop()
        if device.is_idle:  # no decision is under way: do not wait for the interval or the next item
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, lambda number, frame: lines.give_up())
        signal.setitimer(signal.ITIMER_REAL, BLOCKED_S, BLOCKED_S)  # a reader who does not read must not keep it alive

    def reload() -> None:
        if has_news():
            beside.reload.is_due = True
            end()

    on_end(stop)
    beside.watch()
    beside.reload.begin(reload)
    if stored is not None:
        stored.begin(time.monotonic(), has_broker=link is not None)
        if stored.is_trial:
            _at_deadline(stored)


def _decisions(process: Process, device: Device, link: Link | None, stored: Run | None) -> Iterator[dict[str, Any]]:
    """Make decisions, write their lines, and yield each; a trial that has failed ends them."""
    from ..operations.beside import resident_bytes

    make_line = line_format(process.args.record, process.args.device_id)
    for made in device.run():
        device.counters["unwritten"] += not process.lines.write(make_line(made))
        process.beside.decided(made)
        yield made
        if stored is None:
            continue
        was_trial, is_connected = stored.is_trial, link is not None and link.can_ask
        if not stored.decided(time.monotonic(), is_connected=is_connected, memory_bytes=resident_bytes):
            return
        if was_trial and not stored.is_trial:
            device.report_soon()


def _at_deadline(stored: Run) -> None:
    """End the run at its trial's deadline, if it is on trial then, even if it waits for something."""
    import threading

    def end() -> None:
        if stored.is_trial:
            stored.is_late = True
            end_main_thread()

    timer = threading.Timer(stored.deadline_s, end)
    timer.daemon = True
    timer.start()
