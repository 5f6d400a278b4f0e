# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: opens what a run needs, makes decisions, and ends in order whatever ends it.

With a store, a run that ends because a trial has failed is followed by a run of what the store had before; SIGHUP ends
a run, too, if a newer bundle is there. What else a run does is in ``operations``.
"""

from __future__ import annotations

import gc
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .base.escape import json_line
from .device.output import BLOCKED_S, Lines, note
from .errors import HardcaseError, InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from .bundle.load import Loaded
    from .device.device import Device, RuntimeConfig
    from .link.link import Link
    from .operations.beside import Beside
    from .store.run import Run

__all__ = ["run"]

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
    from . import __version__
    from .bundle.load import load_bundle
    from .device.device import RuntimeConfig
    from .operations.beside import Beside

    if (args.bundle is None) == (args.store is None):
        raise InputError("name either a bundle or a store with --store")
    _on_signals(_interrupt)
    beside = Beside(args, note, __version__)
    _on_hangup(beside.reload.ask)
    config = RuntimeConfig(
        budget=args.budget,
        deadline_ms=args.deadline_ms,
        interval_s=args.interval,
        count=args.count,
        item_size=args.item_size,
        strict_range=args.strict_range,
    )
    loaded = load_bundle(args.bundle, trust=args.trust) if args.store is None else None
    output = Lines(ends_with_reader=args.broker is None, is_last=args.is_process, tell=beside.note)
    with output as lines, beside:
        if loaded is not None:
            _run_file(args, config, loaded, lines, beside)
        else:
            _run_store(args, config, lines, beside)
    return 0


def _run_file(args: argparse.Namespace, config: RuntimeConfig, loaded: Loaded, lines: Lines, beside: Beside) -> None:
    """Run a bundle, and after a reload what its file holds then."""
    from .operations.reload import newer

    news: list[Loaded] = [loaded]

    def has_news() -> bool:
        new = newer(args.bundle, args.trust, news[-1], note)
        news.extend([new] if new is not None else [])
        return new is not None

    while True:
        _run_loaded(args, config, news[-1], lines, beside, has_news)
        _on_signals(_interrupt)
        if not beside.reload.take():
            return


def _run_store(args: argparse.Namespace, config: RuntimeConfig, lines: Lines, beside: Beside) -> None:
    """Run what the store has, and after a trial that has failed or a reload what it has then."""
    from .bundle.load import load_bundle
    from .errors import BundleError, SignatureError
    from .operations.reload import has_news
    from .store.folder import Store
    from .store.run import Run
    from .store.trial import Rules

    deadline_s = args.trial_s or max(3_600.0, 3 * args.trial_decisions * args.interval)
    rules = Rules(decisions=args.trial_decisions, deadline_s=deadline_s)
    store = Store(args.store)
    while True:
        stored = Run(store, store.start(), rules, beside.note)
        try:
            try:
                loaded = load_bundle(stored.started.path, trust=args.trust)
            except BundleError as error:
                if not isinstance(error, SignatureError):  # a wrong --trust is not the bundle's fault
                    stored.fail(str(error))
                raise
            news = partial(has_news, store, stored.started, beside.note)
            _run_loaded(args, config, loaded, lines, beside, news, stored)
        except HardcaseError:
            if not stored.has_failed:
                stored.stop()
                raise
        except (BrokenPipeError, KeyboardInterrupt):
            stored.stop()
            raise
        _on_signals(_interrupt)
        is_reload = beside.reload.take()
        if stored.is_told or not stored.has_failed:
            stored.stop()
            if stored.is_told or not is_reload:
                return


def _run_loaded(
    args: argparse.Namespace,
    config: RuntimeConfig,
    loaded: Loaded,
    lines: Lines,
    beside: Beside,
    has_news: Callable[[], bool],
    run: Run | None = None,
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
        link = _connect(args, loaded, beside)
        device = Device(loaded, bank, link, config, facts=run.facts if run is not None else dict)
        gc.freeze()
        gc.enable()
        beside.begin(device, loaded, len(loaded.manifest.sensors) * timeout_s + config.deadline_ms / 1000)
        try:
            _decide(device, lines, link, run, beside, has_news)
        except KeyboardInterrupt:
            pass  # stopped between two decisions
        finally:
            _on_signals(beside.reload.tell if run is None else run.tell)
            beside.end()
            if link is not None:
                link.stop(device.status())
        if run is not None and not run.is_told:
            run.waited(time.monotonic())
        if link is not None:
            link.check()


def _decide(
    device: Device, lines: Lines, link: Link | None, run: Run | None, beside: Beside, has_news: Callable[[], bool]
) -> None:
    def stop(number: int, frame: object) -> None:
        if run is None or not run.is_late:
            beside.reload.tell()
        if run is not None and not run.is_late:
            run.tell()
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

    _on_signals(stop)
    beside.watch()
    beside.reload.begin(reload)
    if run is not None:
        run.begin(time.monotonic(), has_broker=link is not None)
        if run.is_trial:
            _at_deadline(run)
    from .operations.beside import resident_bytes

    for record in device.run():
        device.counters["unwritten"] += not lines.write(json_line(record))
        beside.decided(record)
        is_connected = link is not None and link.can_ask
        if run is not None and not run.decided(
            time.monotonic(), is_connected=is_connected, memory_bytes=resident_bytes
        ):
            return


def _at_deadline(run: Run) -> None:
    """End the run at its trial's deadline, if it is on trial then, even if it waits for something."""
    import threading

    def end() -> None:
        if run.is_trial:
            run.is_late = True
            _interrupt_main_thread()

    timer = threading.Timer(run.deadline_s, end)
    timer.daemon = True
    timer.start()


def _connect(args: argparse.Namespace, loaded: Loaded, beside: Beside) -> Link | None:
    if args.broker is None:
        return None
    import logging

    from .link.identity import MACHINE_ID, default_id
    from .link.link import Link, LinkConfig

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            beside.note(self.format(record))

    logging.basicConfig(handlers=[Notes()], format="%(message)s", level=logging.WARNING)
    logging.getLogger(__package__).setLevel(logging.INFO)
    device_id, is_lasting = (args.device_id, True) if args.device_id else default_id()
    config = LinkConfig.to_broker(args.broker, device_id, ca=args.ca, cert=args.cert, key=args.key)
    link = Link(config, loaded.machine.program, loaded.manifest, _interrupt_main_thread)
    if not args.device_id:
        why = "" if is_lasting else f", for this run only, because {MACHINE_ID} is missing; name one with --device-id"
        note(f"the device id is {device_id}{why}")
    beside.linked(link, loaded)
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


def _on_hangup(handler: Callable[..., None]) -> None:
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup: it stays ignored
        signal.signal(signal.SIGHUP, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
