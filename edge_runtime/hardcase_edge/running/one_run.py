# SPDX-License-Identifier: Apache-2.0
"""One run of one bundle: opens what it needs, makes decisions, and ends in order whatever ends it."""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from contextlib import nullcontext
from functools import cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..base.clock import Clock
from ..base.record import record
from ..device.lines import line_format
from ..device.output import BLOCKED_S, Lines, note
from ..device.surroundings import Companion, Part, Surroundings
from ..errors import InputError, UnfitError
from ..program.inner import inner_sensors
from .checks import asked, check_one_part
from .signals import on_end, switch_main_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from ..bundle.load import Loaded
    from ..device.device import Device
    from ..device.machine import RuntimeConfig
    from ..fleet.store.folder import Store
    from ..fleet.store.run import Run
    from ..link.link import Link
    from ..settings.config import RunConfig
    from .beside import Beside
    from .connecting import OwnId


@record(frozen=True, slots=True)
class Process:
    """What the runs of one process have in common."""

    config: RunConfig
    loop: RuntimeConfig
    lines: Lines
    beside: Beside
    own_id: OwnId | None  # None: without a broker, nobody hears it


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
    from ..device.device import Device
    from ..sensors.specs import timeout_s_of

    config, beside = process.config, process.beside
    timeout_s = timeout_s_of(config.sensor_timeout_ms)
    try:
        process.loop.check_fits(loaded)
        bank = _bank(config, loaded, timeout_s, beside.note)
    except InputError as error:
        if stored is not None:  # its sensors or costs are not for this device
            stored.fail(str(error))
        raise UnfitError(str(error)) from error
    with bank, _pace(loaded):
        for k in sorted(bank.dead):
            note(f"sensor {loaded.manifest.sensors[k]} has no source and counts as dead")
        link, clock = None, stored.clock() if stored is not None else Clock()
        if process.own_id is not None:
            from .connecting import connect, own_facts

            link, start = connect(config, process.own_id, loaded, beside, clock)
            beside.link = link
        parts = list[Part]()
        run = Surroundings(config, loaded, bank, link, clock, beside.note, switch_main_thread, store, stored, parts)
        for module in asked(config, is_trial=run.is_trial):
            if hasattr(module, "make") and (part := module.make(run)) is not None:
                parts.append(part)
        if link is not None:
            start()
        sources = [source.facts for source in (stored, *parts) if source is not None]
        sources += [lambda: {"runtime": __version__}] if link is None else [partial(own_facts, link), link.served.facts]
        about, seen_by = cache(partial(_about, loaded)), [part.bank for part in parts if part.bank is not None]
        device = Device(
            loaded, [bank, *seen_by][-1], link, process.loop,
            facts=lambda: {**about(), **{key: value for facts in sources for key, value in facts().items()}},
            tell=beside.note, companions=[part for part in parts if isinstance(part, Companion)],
        )  # fmt: skip
        inner = inner_sensors(loaded.machine.program, loaded.manifest.features, loaded.manifest.sensors)
        complaints = Complaints(loaded.manifest, inner, beside.note)
        gc.freeze()
        gc.enable()
        most = 1 if loaded.joint is None else loaded.joint.joint.max_parts
        longest_s = most * (len(loaded.manifest.sensors) * timeout_s + config.deadline_ms / 1000)
        beside.begin(device, loaded, longest_s)
        try:
            _begin(process, device, link, stored, has_news)
            if stored is not None:
                _begin_stored(stored, run)
            for part in parts:
                part.begins()
            for decision in _decisions(process, device, link, stored):
                complaints.decided(decision)
                for part in parts:
                    if part.decided(decision):
                        device.report_soon()
        except KeyboardInterrupt:
            pass  # stopped between two decisions
        finally:
            beside.reload.act = None  # a part may still ask for a look at the store: the next run takes it
            on_end(beside.reload.tell if stored is None else stored.tell)
            beside.end()
            for part in parts:
                part.ended()
            for part in parts:
                part.stop()
            if link is not None:
                link.stop(device.facts())
        if stored is not None and not stored.is_told:
            stored.waited(time.monotonic())
        if link is not None:
            link.check()


def _pace(loaded: Loaded) -> AbstractContextManager[None]:
    """How often threads change meanwhile: of decisions by the clock, often."""
    if not loaded.manifest.clock:
        return nullcontext()
    from ..device.by_clock import short_switches

    return short_switches()


def _about(loaded: Loaded) -> dict[str, Any]:
    """What a device says of its program; a device that nobody asks for its facts never works it out."""
    from ..bundle.compatible import identity_of

    identity = identity_of(loaded.manifest, loaded.bundle.program, is_joint=loaded.joint is not None)
    return {"program": identity.told()}


def _bank(config: RunConfig, loaded: Loaded, timeout_s: float, tell: Callable[[str], None]) -> Any:
    """The bank of sensors, or of parts of items."""
    program, manifest = loaded.machine.program, loaded.manifest
    if loaded.joint is None:
        from ..sensors.specs import open_bank

        for module in asked(config):
            if hasattr(module, "check_fits"):
                module.check_fits(config, loaded)
        return open_bank(
            config.sensors, program, manifest, timeout_s=timeout_s, isolate=config.isolate, items=config.items,
            tell=tell,
        )  # fmt: skip
    from ..device.parts import open_part_bank

    check_one_part(config)
    return open_part_bank(
        config.sensors, program, manifest, loaded.joint.inner, timeout_s=timeout_s, items=config.items,
        isolate=config.isolate, tell=tell,
    )  # fmt: skip


def _begin_stored(stored: Run, run: Surroundings) -> None:
    """Begin the run of a slot; if its bundle is on trial, the trial's deadline runs from now on."""
    loaded, link = run.loaded, run.link
    inner = inner_sensors(loaded.machine.program, loaded.manifest.features, loaded.manifest.sensors)
    stored.begin(
        time.monotonic(), has_broker=link is not None, inner=inner,
        promised=next((part.promised for part in run.parts if part.promised is not None), None),
        unserved=(lambda: (0, "")) if link is None else link.served.unserved,
    )  # fmt: skip
    _at_deadline(stored)


def _begin(
    process: Process, device: Device, link: Link | None, stored: Run | None, has_news: Callable[[], bool]
) -> None:
    """Have signals and a trial's deadline end the run from now on."""
    beside, lines = process.beside, process.lines

    def stop(number: int, frame: object) -> None:
        beside.reload.tell()
        if stored is not None:
            stored.tell()
        end()

    def end() -> None:
        device.stop()
        if device.is_idle:  # no decision is under way: do not wait for the interval or the next item
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, lambda number, frame: lines.give_up())
        signal.setitimer(signal.ITIMER_REAL, BLOCKED_S, BLOCKED_S)  # a reader who does not read must not keep it alive

    def reload() -> None:
        if stored is not None and stored.is_late:
            end()
        elif has_news():
            beside.reload.is_due = True
            end()

    on_end(stop)
    beside.watch()
    beside.reload.begin(reload)


def _decisions(process: Process, device: Device, link: Link | None, stored: Run | None) -> Iterator[dict[str, Any]]:
    """Make decisions, write their lines, and yield each; a trial that has failed ends them."""
    from .beside import resident_bytes

    own = process.own_id.name if process.own_id is not None else ""
    make_line = line_format(process.config.record, process.config.device_id or own)
    for decision in device.run():
        device.counters["unwritten"] += not process.lines.write(make_line(decision))
        process.beside.decided(decision)
        yield decision
        if stored is None:
            continue
        is_connected, now = link is not None and link.is_connected, time.monotonic()
        if not stored.decided(now, is_connected=is_connected, memory_bytes=resident_bytes, record=decision):
            return
        if stored.take_news():
            device.report_soon()


def _at_deadline(stored: Run) -> None:
    """End the run at its trial's deadline, if it is on trial then, even if it waits for something."""
    if not stored.is_trial:
        return
    import threading

    def end() -> None:
        if stored.is_trial:
            stored.is_late = True
            switch_main_thread()

    timer = threading.Timer(stored.deadline_s, end)
    timer.daemon = True
    timer.start()


# What a run says of its own decisions without a flag: no sensor reads, or most readings are unlike those of training.
#
# Each is said once when it begins, and again only after it was over; so a log stays short whatever the sensors do.


if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ..bundle.manifest import Manifest

WITHOUT = 3  # decisions in a row without a reading
WINDOW_S = 3_600.0  # in which readings outside their ranges are counted, and longer until there are ...
FEWEST = 30  # ... so many decisions
MAX_NAMES = 5  # features in a line


class Complaints:
    """The decisions of one run.

    Parameters
    ----------
    manifest : of the bundle that decides
    inner : names of sensors that the device fills itself, whose readings say nothing of the world
    tell : called with each line
    now : seconds that only rise
    """

    def __init__(
        self,
        manifest: Manifest,
        inner: Collection[str],
        tell: Callable[[str], object],
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._unit, self._inner, self._tell, self._now = manifest.unit, frozenset(inner), tell, now
        self._without = self._n = self._n_outside = 0
        self._needed = WITHOUT
        self._outside: Counter[str] = Counter()
        self._is_outside = False
        self._until = now() + WINDOW_S

    def decided(self, record: Mapping[str, Any]) -> None:
        """A decision was made; ``record`` is a line of ``Device.run``."""
        self._look_at_readings(record)
        self._look_at_ranges(record)

    def _look_at_readings(self, record: Mapping[str, Any]) -> None:
        if not record["failed"]:
            self._without = 0
            return
        if any(name not in self._inner for name in _read(record)):
            self._needed *= 1 + (self._without >= self._needed)  # ever longer stretches are told
            self._without = 0
            return
        self._without += 1
        if self._without == self._needed:
            cost = f"; the last one cost {record['cost']:g} {self._unit} all the same" if record["cost"] else ""
            self._tell(
                f"no sensor gave a reading in {self._without} decisions in a row{cost}, and its answer is a guess; "
                "to see why: hardcase-edge doctor run ..."
            )

    def _look_at_ranges(self, record: Mapping[str, Any]) -> None:
        outside, now = record.get("out_of_range"), self._now()
        self._n += 1
        if outside:
            self._n_outside += 1
            self._outside.update(outside)
        if self._n < FEWEST:
            return
        if not self._is_outside and 2 * self._n_outside > self._n:
            self._is_outside = True
            names = [name[:40] for name, _ in self._outside.most_common(MAX_NAMES)]
            more = len(self._outside) - len(names)
            self._tell(
                f"{self._n_outside} of the last {self._n} decisions had readings outside the range of training "
                f"({', '.join(names)}{f' and {more} more' if more > 0 else ''}): the world or the sensors are not "
                "those of training, and answers may be wrong however sure they look; audit them, and train again"
            )
        elif now < self._until:
            return
        elif self._is_outside and 4 * self._n_outside < self._n:
            self._is_outside = False
            self._tell(f"readings are within the range of training again, but for {self._n_outside} of {self._n}")
        self._n = self._n_outside = 0
        self._outside.clear()
        self._until = now + WINDOW_S


def _read(record: Mapping[str, Any]) -> list[str]:
    """The sensors that gave a reading for this decision, of some part where an item has several."""
    if "bought" in record:
        failed = record["failed"]
        return [name for name, parts in record["bought"].items() if set(parts) - set(failed.get(name, ()))]
    return [name for name in record["sensors"] if name not in record["failed"]]
