# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: opens what a run needs, makes decisions, and ends in order whatever ends it.

With a store, a run that ends because a trial has failed is followed by a run of what the store had before.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from .base.escape import json_line
from .device.output import BLOCKED_S, Lines, note
from .errors import HardcaseError, InputError

if TYPE_CHECKING:
    import argparse

    from .bundle.load import Loaded
    from .device.device import Device, RuntimeConfig
    from .link.link import Link
    from .store.folder import Store
    from .store.run import Run
    from .update.air import Air

__all__ = ["run"]

SWITCH = signal.SIGUSR1  # of this process to itself: a bundle waits in the store
FIRST_CONNECT_S = 3.0  # how long the first decision waits for a broker that neither accepts nor refuses


def run(args: argparse.Namespace) -> int:
    """Decide until the items end, until somebody ends it, or for a number of decisions; returns the exit status.

    Raises
    ------
    HardcaseError
        It cannot start, or another device uses its id.
    BrokenPipeError
        The reader of standard output has left, and there is no broker.
    """
    from .bundle.load import load_bundle
    from .device.device import RuntimeConfig

    if (args.bundle is None) == (args.store is None):
        raise InputError("name either a bundle or a store with --store")
    _on_signals(_interrupt)
    config = RuntimeConfig(
        budget=args.budget,
        deadline_ms=args.deadline_ms,
        interval_s=args.interval,
        count=args.count,
        item_size=args.item_size,
        strict_range=args.strict_range,
    )
    loaded = load_bundle(args.bundle, trust=args.trust) if args.store is None else None
    with Lines(ends_with_reader=args.broker is None, is_last=args.is_process) as lines:
        if loaded is not None:
            _run_loaded(args, config, loaded, lines)
        else:
            _run_store(args, config, lines)
    return 0


def _run_store(args: argparse.Namespace, config: RuntimeConfig, lines: Lines) -> None:
    """Run what the store has, and after a trial that has failed what it had before."""
    from .bundle.load import load_bundle
    from .errors import BundleError, SignatureError
    from .store.folder import Store
    from .store.run import Run
    from .store.trial import Rules

    deadline_s = args.trial_s or max(3_600.0, 3 * args.trial_decisions * args.interval)
    rules = Rules(decisions=args.trial_decisions, deadline_s=deadline_s)
    store = Store(args.store)
    while True:
        stored = Run(store, store.start(), rules, note)
        try:
            try:
                loaded = load_bundle(stored.started.path, trust=args.trust)
            except BundleError as error:
                if not isinstance(error, SignatureError):  # a wrong --trust is not the bundle's fault
                    stored.fail(str(error))
                raise
            _run_loaded(args, config, loaded, lines, stored, store)
        except HardcaseError:
            if not stored.has_failed:
                stored.stop()
                raise
        except (BrokenPipeError, KeyboardInterrupt):
            stored.stop()
            raise
        _on_signals(_interrupt)
        if stored.is_told or not (stored.has_failed or stored.is_switching):
            stored.stop()
            return


def _run_loaded(
    args: argparse.Namespace,
    config: RuntimeConfig,
    loaded: Loaded,
    lines: Lines,
    run: Run | None = None,
    store: Store | None = None,
) -> None:
    from .device.device import Device
    from .sensors.specs import open_bank

    timeout_s = _timeout_s(args.sensor_timeout_ms)
    try:
        bank = open_bank(
            args.sensors, loaded.machine.program, loaded.manifest, timeout_s=timeout_s, isolate=args.isolate
        )
    except InputError as error:
        if run is not None:  # its sensors are not those of this device
            run.fail(str(error))
        raise
    with bank:
        for k in sorted(bank.dead):
            note(f"sensor {loaded.manifest.sensors[k]} has no source and counts as dead")
        air = _updates(args, run, store) if run is not None and store is not None else None
        link = _connect(args, loaded, air)
        device = Device(loaded, bank, link, config, facts=lambda: _facts(run, air))
        gc.freeze()
        gc.enable()
        try:
            _decide(device, lines, link, run, air)
        except KeyboardInterrupt:
            pass  # stopped between two decisions
        finally:
            if air is not None:
                air.close()
                signal.signal(SWITCH, signal.SIG_IGN)
            _on_signals(signal.SIG_IGN if run is None else run.tell)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if link is not None:
                link.stop(device.status())
        if run is not None and not run.is_told:
            run.waited(time.monotonic())
        if link is not None:
            link.check()


def _decide(device: Device, lines: Lines, link: Link | None, run: Run | None, air: Air | None) -> None:
    def stop(number: int, frame: object) -> None:
        if run is not None and not run.is_late:
            run.tell()
        device.stop()
        if device.is_idle:  # no decision is under way: do not wait for the interval or the next item
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, BLOCKED_S, BLOCKED_S)  # a reader who does not read must not keep it alive

    _on_signals(stop)
    signal.signal(signal.SIGALRM, lambda number, frame: lines.give_up())
    if run is not None:
        run.begin(time.monotonic(), has_broker=link is not None)
        if run.is_trial:
            _at_deadline(run)
    if air is not None and link is not None:
        signal.signal(SWITCH, lambda number, frame: _switch(device))
        air.begin(link)
    for record in device.run():
        device.counters["unwritten"] += not lines.write(json_line(record))
        is_connected = link is not None and link.can_ask
        was_trial = run is not None and run.is_trial
        if run is not None and not run.decided(
            time.monotonic(), is_connected=is_connected, memory_bytes=_resident_bytes
        ):
            return
        if run is not None and was_trial and not run.is_trial:
            device.report_soon()


def _switch(device: Device) -> None:
    """End the run for a bundle that waits in the store; a decision that is under way is made first."""
    device.stop()
    if device.is_idle:
        raise KeyboardInterrupt


def _at_deadline(run: Run) -> None:
    """End the run at its trial's deadline, if it is on trial then, even if it waits for something."""
    import threading

    def end() -> None:
        if run.is_trial and not run.is_switching:
            run.is_late = True
            _interrupt_main_thread()

    timer = threading.Timer(run.deadline_s, end)
    timer.daemon = True
    timer.start()


def _resident_bytes() -> int:
    """Memory of this process, in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _updates(args: argparse.Namespace, run: Run, store: Store) -> Air | None:
    """What takes bundles from the broker, if there is one, into the store."""
    if args.broker is None:
        return None
    import threading

    from .update.air import Air

    def on_ready() -> None:
        run.switch()
        signal.pthread_kill(threading.main_thread().ident or 0, SWITCH)

    return Air(store, _device_id(args), key=args.trust, metered=args.metered, note=note, on_ready=on_ready)


def _facts(run: Run | None, air: Air | None) -> dict[str, Any]:
    return {**(run.facts() if run is not None else {}), **(air.facts() if air is not None else {})}


def _device_id(args: argparse.Namespace) -> str:
    """The device's id, which stays the same for the whole process; ``args.id_note`` is what to tell of a new one."""
    if not args.device_id:
        from .link.identity import MACHINE_ID, default_id

        args.device_id, is_lasting = default_id()
        why = "" if is_lasting else f", for this run only, because {MACHINE_ID} is missing; name one with --device-id"
        args.id_note = f"the device id is {args.device_id}{why}"
    return str(args.device_id)


def _connect(args: argparse.Namespace, loaded: Loaded, air: Air | None) -> Link | None:
    if args.broker is None:
        return None
    import logging

    from .link.link import Link, LinkConfig

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(self.format(record))

    logging.basicConfig(handlers=[Notes()], format="%(message)s", level=logging.WARNING)
    logging.getLogger(__package__).setLevel(logging.INFO)
    config = LinkConfig.to_broker(args.broker, _device_id(args), ca=args.ca, cert=args.cert, key=args.key)
    more: dict[str, Any] = {} if air is None else {"listeners": air.listeners, "on_up": air.came_up}
    link = Link(config, loaded.machine.program, loaded.manifest, _interrupt_main_thread, **more)
    if text := vars(args).pop("id_note", ""):
        note(text)
    link.start(FIRST_CONNECT_S)
    return link


def _interrupt_main_thread() -> None:
    import threading

    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _timeout_s(ms: int) -> float:
    if not 1 <= ms <= 3_600_000:
        raise InputError(f"the sensor timeout is {ms} ms; use 1 to 3600000")
    return ms / 1000


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
