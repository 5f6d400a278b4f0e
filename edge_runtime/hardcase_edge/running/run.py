# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: what a process runs one after the other.

With a store, a run that ends because a trial has failed is followed by a run of what the store had before, and one that
ends by the deadline of a trial which cannot fail by another of the same bundle. A device whose store has no bundle
stays connected, says so on standard error and in its facts, decides and asks nothing, and takes an offer. A reload ends
a run, too, if a newer bundle is there. What else a run does is in ``beside``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..device.output import Lines, note
from ..errors import HardcaseError, UnfitError
from ..settings.config import RunConfig
from .one_run import Process, run_bundle
from .signals import has_news, interrupt, newer, on_end, on_reload, switch_main_thread

if TYPE_CHECKING:
    from ..bundle.load import Loaded
    from ..errors import NoBundleError
    from ..fleet.store.folder import Store
    from ..fleet.update.launching import Plan
    from .connecting import OwnId

SAY_S = 3_600.0  # between two lines of a device without a bundle
LOOK_S = 60.0  # between two looks into its store, and two messages of facts at least
MAX_WHY = 300  # characters in the facts


def run(config: RunConfig, words: Sequence[str], *, is_process: bool) -> int:
    """Decide until the items end, until somebody ends it, or for a number of decisions; returns the exit status.

    Parameters
    ----------
    config : the settings
    words : of the command, with which it may be started again
    is_process : whether the whole process runs it, and may become another program

    Raises
    ------
    HardcaseError
        It cannot start, or another device uses its id.
    BrokenPipeError
        The reader of standard output has left, and there is no broker.
    """
    from .. import __version__
    from ..bundle.load import load_bundle
    from .beside import Beside
    from .checks import anchored, check_settings, loop_of

    check_settings(config)
    on_end(interrupt)
    beside = Beside(config, note, __version__)
    on_reload(beside.reload.ask)
    loop = loop_of(config)
    loaded = load_bundle(config.bundle or "", trust=config.trust, allow_joint=True) if config.store is None else None
    config = anchored(config)
    output, plan = Lines(ends_with_reader=config.broker is None, is_last=is_process, tell=beside.note), None
    with output as lines, beside:
        process = Process(config, loop, lines, beside, _own_id(config))
        if loaded is not None:
            _run_file(process, loaded)
        else:
            plan = _run_store(process, words if is_process else None)
            beside.goes_on = plan is not None
            output.is_last &= plan is None
    if plan is not None:
        plan.begin()
    return 0


def _own_id(config: RunConfig) -> OwnId | None:
    if config.broker is None:
        return None
    from .connecting import OwnId

    return OwnId()


def _run_file(process: Process, loaded: Loaded) -> None:
    """Run a bundle, and after a reload what its file holds then."""
    config, reload = process.config, process.beside.reload
    news: list[Loaded] = [loaded]

    def has_other() -> bool:
        new = newer(config.bundle or "", config.trust, news[-1], note)
        news.extend([new] if new is not None else [])
        return new is not None

    while True:
        try:
            run_bundle(process, news[-1], has_other)
        except UnfitError as error:
            if len(news) == 1:
                raise
            news.pop()
            note(f"{error}; the bundle before it runs again")
            continue
        on_end(interrupt)
        if not reload.take():
            return


def _run_store(process: Process, words: Sequence[str] | None) -> Plan | None:
    """Run what the store has, and after a trial that has failed or a reload what it has then.

    Parameters
    ----------
    words : of the command; None: it was called as a function

    Returns
    -------
    Plan or None
        What this process is to become, because another runtime or other settings run; None: it ends.
    """
    from ..bundle.load import load_bundle
    from ..errors import BundleError, InputError, NoBundleError, SignatureError, StoreError
    from ..fleet.store.folder import Store
    from ..fleet.store.run import Run
    from ..fleet.update.launching import launched, launched_by, plan_for
    from .checks import rules_of

    config, beside = process.config, process.beside
    rules, store, launch = rules_of(config), Store(config.store or ""), launched()
    while True:
        try:
            started = store.start() if launch is None else store.resumed(launch.slot, launch.sha256)
        except NoBundleError as error:
            if not _can_wait(config, store):
                raise
            if not _wait_for_bundle(process, store, error):
                return None
            continue
        stored = Run(store, started, rules, beside.note)
        try:
            if launch is None:
                plan, reason = plan_for(config, words, store, started, beside.systemd.feed)
                if reason:
                    stored.fail(reason)
                    raise StoreError(f"slot {started.name} cannot be started: {reason}")
                if plan is not None:
                    return plan
            try:
                loaded = load_bundle(stored.started.path, trust=config.trust, allow_joint=True)
            except BundleError as error:
                if not isinstance(error, SignatureError) or _is_trusted(config, store):
                    stored.fail(str(error), is_useless=True)
                raise
            news = partial(has_news, store, stored.started, beside.note)
            run_bundle(process, loaded, news, store=store, stored=stored)
        except HardcaseError as error:
            if not stored.has_failed:
                if launch is None or not isinstance(error, InputError):  # else the slot's own settings may be at fault
                    stored.stop()
                raise
        except (BrokenPipeError, KeyboardInterrupt):
            stored.stop()
            raise
        on_end(interrupt)
        is_reload = beside.reload.take()
        if stored.is_told or not stored.has_failed:
            stored.stop()
            if stored.is_told or not (is_reload or stored.is_late):
                return None
        if launch is not None:
            return launched_by(launch)


def _is_trusted(config: RunConfig, store: Store) -> bool:
    """Whether what a trial would go back to has the signature, so that ``--trust`` is right and the trial's bundle not.

    With a wrong ``--trust`` no bundle has it, and none turns bad for that.
    """
    from ..bundle.load import load_bundle
    from ..errors import BundleError

    slots = store.slots()
    name = slots.current or slots.behind
    try:
        return bool(name and load_bundle(store.folder / name / "bundle.hcb", trust=config.trust, allow_joint=True))
    except BundleError:
        return False


# ---------------------------------------------------------------- a store without a bundle


def _can_wait(config: RunConfig, store: Store) -> bool:
    """Whether a device with such a store can be given a bundle by its broker, or has had one.

    Raises
    ------
    StoreError
        The state or the trust is damaged.
    """
    from ..fleet.store.slots import NAMES

    if config.broker is None:
        return False
    slots = store.slots()
    return config.trust is not None or store.trust() is not None or any(slots[n].state != "empty" for n in NAMES)


def _wait_for_bundle(process: Process, store: Store, error: NoBundleError) -> bool:
    """Stay connected until the store has a bundle to run; returns False if the device is told to end before.

    Parameters
    ----------
    error : what ``store.start`` raised

    Raises
    ------
    HardcaseError
        The folder of the store cannot be made, the broker's address or the identity cannot be used, or another device
        uses the id.
    """
    from ..fleet.store.run import clock_or_noted
    from ..fleet.update.air import updates_of
    from .connecting import connect

    config, beside = process.config, process.beside
    store.make()
    bell, ends = threading.Lock(), list[bool]()
    bell.acquire()

    def ring(*_: object) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            bell.release()

    def end(*_: object) -> None:
        ends.append(True)
        ring()

    on_end(end)
    assert process.own_id is not None
    link, start = connect(config, process.own_id, None, beside, clock_or_noted(store))
    air = updates_of(config, store, link, switch_main_thread)
    start()
    beside.watch()
    beside.systemd.ready("has no bundle to run, and waits for one")
    beside.reload.begin(ring)
    air.begins()
    told: dict[str, Any] = {}
    say_at = time.monotonic()
    try:
        while not ends and not _has_bundle(store):
            if time.monotonic() >= say_at:
                say_at += SAY_S
                beside.note(f"no decision is made, because {error}; the device waits for an offer from its broker")
            facts = {**_facts_without(store, str(error)), **air.facts()}
            if facts != told and link.publish_facts(facts):
                told = facts
            bell.acquire(timeout=LOOK_S)
    finally:
        air.ended()
        beside.reload.take()
        link.stop({**_facts_without(store, str(error)), **air.facts()})
        if not ends:
            on_end(interrupt)
    link.check()
    return not ends


def _facts_without(store: Store, why: str) -> dict[str, Any]:
    """What the status of a device says whose store has no bundle to run."""
    from ..fleet.store.run import failure_of
    from ..fleet.store.slots import NAMES

    facts: dict[str, Any] = {"slot": None, "state": "none", "why": why[:MAX_WHY]}
    with contextlib.suppress(HardcaseError):
        slots = store.slots()
        failures = [failure for name in NAMES if (failure := failure_of(slots[name])) is not None]
        facts |= dict(zip(("failed", "failed_before"), failures, strict=False))
    return {"bundle": "", "store": facts}


def _has_bundle(store: Store) -> bool:
    try:
        slots = store.slots()
    except HardcaseError:
        return True  # the next start says what is wrong
    return bool(slots.ready or slots.runs)
