# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: opens what a run needs, makes decisions, and ends in order whatever ends it.

With a store, a run that ends because a trial has failed is followed by a run of what the store had before; SIGHUP ends
a run, too, if a newer bundle is there. What else a run does is in ``operations``.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .base.clock import Clock
from .device.formats import line_format
from .device.output import BLOCKED_S, Lines, note
from .errors import HardcaseError, InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from .bundle.load import Loaded
    from .device.device import Device, RuntimeConfig
    from .identity.keeper import Keeper
    from .link.link import Link
    from .operations.beside import Beside
    from .outbox.opening import Publisher
    from .store.folder import Store
    from .store.run import Run
    from .update.air import Air

__all__ = ["run"]

SWITCH = signal.SIGUSR1  # of this process to itself: a bundle that came over the air waits in the store
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
    signal.signal(SWITCH, beside.reload.ask)
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
            _run_loaded(args, config, loaded, lines, beside, news, stored, store)
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
    store: Store | None = None,
) -> None:
    from .device.audit import AuditedBank
    from .device.device import Device
    from .sensors.specs import open_bank, timeout_s_of

    timeout_s = timeout_s_of(args.sensor_timeout_ms)
    try:
        bank = open_bank(
            args.sensors, loaded.machine.program, loaded.manifest, timeout_s=timeout_s, isolate=args.isolate
        )
    except InputError as error:
        if run is not None:  # its sensors are not those of this device
            run.fail(str(error))
        raise
    with bank:
        make_line = line_format(args.record, args.device_id)
        for k in sorted(bank.dead):
            note(f"sensor {loaded.manifest.sensors[k]} has no source and counts as dead")
        publisher = _open_publisher(args)
        air = _updates(args, store) if store is not None else None
        link = _connect(args, loaded, beside, publisher, air, run.clock() if run is not None else Clock())
        audited = AuditedBank(bank, loaded.machine.program, config.item_size) if args.audit else None
        sources = [s.facts for s in (run, publisher, air) if s is not None]
        device = Device(
            loaded, audited or bank, link, config, facts=lambda: {k: v for facts in sources for k, v in facts().items()}
        )
        gc.freeze()
        gc.enable()
        beside.begin(device, loaded, len(loaded.manifest.sensors) * timeout_s + config.deadline_ms / 1000)
        try:
            for record in _decide(device, lines, make_line, link, run, beside, has_news, air):
                if publisher is not None:
                    publisher.decided(record, audited.request_readings if audited is not None else None)
        except KeyboardInterrupt:
            pass  # stopped between two decisions
        finally:
            if air is not None:
                air.close()
            _on_signals(beside.reload.tell if run is None else run.tell)
            beside.end()
            if publisher is not None:
                publisher.stop()
            if link is not None:
                link.stop(device.facts())
        if run is not None and not run.is_told:
            run.waited(time.monotonic())
        if link is not None:
            link.check()


def _decide(
    device: Device,
    lines: Lines,
    make_line: Callable[[Mapping[str, Any]], str],
    link: Link | None,
    run: Run | None,
    beside: Beside,
    has_news: Callable[[], bool],
    air: Air | None,
) -> Iterator[dict[str, Any]]:
    """Make decisions, write their lines, and yield each."""

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
    if air is not None and link is not None:
        air.begin(link)
    from .operations.beside import resident_bytes

    for record in device.run():
        device.counters["unwritten"] += not lines.write(make_line(record))
        beside.decided(record)
        yield record
        is_connected = link is not None and link.can_ask
        was_trial = run is not None and run.is_trial
        if run is not None and not run.decided(
            time.monotonic(), is_connected=is_connected, memory_bytes=resident_bytes
        ):
            return
        if run is not None and was_trial and not run.is_trial:
            device.report_soon()


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


def _open_publisher(args: argparse.Namespace) -> Publisher | None:
    if not (args.publish or args.outbox or args.audit):
        return None
    from .outbox.opening import Publisher

    return Publisher(args, note)


def _updates(args: argparse.Namespace, store: Store) -> Air | None:
    """What takes bundles from the broker, if there is one, into the store."""
    if args.broker is None:
        return None
    import threading

    from .update.air import Air

    def on_ready() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, SWITCH)

    return Air(store, key=args.trust, metered=args.metered, note=note, on_ready=on_ready)


def _device_id(args: argparse.Namespace) -> str:
    """The device's id, which stays the same for the whole process; ``args.id_note`` is what to tell of a new one."""
    if not args.device_id:
        from .link.identity import MACHINE_ID, default_id

        args.device_id, is_lasting = default_id()
        why = "" if is_lasting else f", for this run only, because {MACHINE_ID} is missing; name one with --device-id"
        args.id_note = f"the device id is {args.device_id}{why}"
    return str(args.device_id)


def _connect(
    args: argparse.Namespace,
    loaded: Loaded,
    beside: Beside,
    publisher: Publisher | None,
    air: Air | None,
    clock: Clock,
) -> Link | None:
    if args.broker is None:
        return None
    import logging

    from .link.link import Link, LinkConfig

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            beside.note(self.format(record))

    logging.basicConfig(handlers=[Notes()], format="%(message)s", level=logging.WARNING)
    logging.getLogger(__package__).setLevel(logging.INFO)
    keeper = _keeper(args, clock)
    if keeper is None:
        own = {"cert": args.cert, "key": args.key}
        device_id, ca = _device_id(args), args.ca
    else:
        own = {"certificates": keeper.certificates}
        device_id, ca = keeper.device_id, keeper.ca
    config = LinkConfig.to_broker(args.broker, device_id, ca=ca, clock=clock, **own)
    link = Link(
        config, loaded.machine.program, loaded.manifest, _interrupt_main_thread,
        on_up=(lambda: None) if air is None else air.came_up,
    )  # fmt: skip
    if air is not None:
        air.listen(link)
    if publisher is not None:
        publisher.start(device_id, loaded.bundle.sha256, link)
    beside.linked(link, loaded)
    if keeper is not None:
        keeper.start(link, FIRST_CONNECT_S)
        return link
    if text := vars(args).pop("id_note", ""):
        note(text)
    link.start(FIRST_CONNECT_S)
    return link


def _keeper(args: argparse.Namespace, clock: Clock) -> Keeper | None:
    """The keeper of the device's own certificate, where it has or is to get one."""
    folder = args.identity
    if folder is None and args.store is not None and args.cert is None and os.path.isdir(f"{args.store}/identity"):
        folder = f"{args.store}/identity"
    if folder is None:
        return None
    from .identity.keeper import Keeper
    from .link.identity import default_id

    if args.cert is not None:
        raise InputError("--identity and --cert both name a certificate; name one of them")
    names = {"device_id": args.device_id or "", "fallback_id": default_id()[0]}
    return Keeper(folder, args.broker, **names, ca=args.ca, clock=clock, note=note)


def _interrupt_main_thread() -> None:
    import threading

    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _on_hangup(handler: Callable[..., None]) -> None:
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup: it stays ignored
        signal.signal(signal.SIGHUP, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
