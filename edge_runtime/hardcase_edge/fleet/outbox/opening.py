# SPDX-License-Identifier: Apache-2.0
"""What the flags ask for: the recorder of decisions and audits, and the outbox, or none, that they go through."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.clock import RELEASED
from ...base.files import read_bounded, remove_leftovers, write_whole
from ...device.output import note
from ...device.surroundings import Part
from ...errors import InputError
from ...link.wire import ack_topic
from ...settings.config import RunConfig
from ...settings.table import DEFAULTS, check_values
from ...settings.values import ALL, OUTBOX_FOLDER, parse_bytes
from .outbox import Direct, Outbox
from .records import Recorder, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...device.surroundings import Surroundings
    from ...link.link import Link
    from ...program.readings import Reading
    from .records import Made

FLOOR = float(RELEASED)  # a clock that shows an earlier time is not known


def check(config: RunConfig) -> None:
    """Refuse records without a broker, and settings of an outbox that is not asked for."""
    is_asked = bool(config.publish or config.outbox or config.audit)
    if is_asked and config.broker is None:
        raise InputError("--publish, --audit and --outbox need a broker; name one with --broker")
    check_values(config, ("outbox_rate", "outbox_days"))
    if config.outbox_rate != DEFAULTS.outbox_rate and not is_asked:
        raise InputError("--outbox-rate needs --publish, --audit or --outbox, which make the records that it limits")
    is_kept_otherwise = (config.outbox_days, config.outbox_drop) != (DEFAULTS.outbox_days, DEFAULTS.outbox_drop)
    if not config.outbox and is_kept_otherwise:
        raise InputError("--outbox-days and --outbox-drop need --outbox, which keeps records")
    check_values(config, [key for key in ("audit", "outbox", "publish") if getattr(config, key)])


def make(run: Surroundings) -> Publisher | None:
    """What sends decisions to people."""
    config = run.config
    if run.link is None or not (config.publish or config.outbox or config.audit):
        return None
    publisher = Publisher(config, note)
    publisher.start(run.link.device_id, run.loaded.bundle.sha256, run.link)
    return publisher


class Publisher(Part):
    """Makes records of the decisions that are to reach people, and hands them on.

    Parameters
    ----------
    config : the command's, which have been checked by the run
    note : called with each line that a user should read

    Raises
    ------
    InputError
        The outbox's folder cannot be used or is in use.
    """

    def __init__(self, config: RunConfig, note: Callable[[str], None]) -> None:
        self._rule = Rule(config.publish or ALL) if config.publish or config.outbox else None
        self._lock = -1
        self._recorder: Recorder | None = None
        self._too_long = 0
        self._boot = self._start(config, note)
        self._way: Outbox | Direct = self._open(config, note) if config.outbox else Direct(config.outbox_rate)

    def _start(self, config: RunConfig, note: Callable[[str], None]) -> int:
        if config.outbox is None and config.store is None:
            return random_boot()
        import fcntl

        self._folder = Path(config.outbox_folder or (Path(config.store) / "outbox" if config.store else OUTBOX_FOLDER))
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"the outbox {self._folder} is used by another device; name another folder") from error
        except OSError as error:
            raise InputError(f"the outbox {self._folder} cannot be used: {error.strerror}; name another") from error
        remove_leftovers(self._folder / "boot")
        boot, is_written = next_boot(self._folder)
        if not is_written:
            note(f"{self._folder / 'boot'} cannot be written; this start has a random number")
        return boot

    def _open(self, config: RunConfig, note: Callable[[str], None]) -> Outbox:
        from .drain import DrainConfig
        from .queue import Queue, QueueConfig

        queue = QueueConfig(
            limit=parse_bytes(config.outbox or "", "--outbox"),
            drop=config.outbox_drop,
            most_age_s=config.outbox_days * 86_400,
            drain=DrainConfig(rate=config.outbox_rate),
        )
        return Outbox(Queue(self._folder / "outbox.sqlite", queue, now=self._wall, note=note))

    def _wall(self) -> float | None:
        now = time.time()
        return now if now >= FLOOR else None

    def start(self, device: str, bundle: str, link: Link) -> None:
        """Begin to send this device's decisions by this bundle."""
        if isinstance(self._way, Outbox):
            link.listen(ack_topic(device), self._way.on_ack)
        self._recorder = Recorder(device, bundle, self._boot, floor=FLOOR)
        self._way.start(link)

    def decided(self, decision: Mapping[str, Any]) -> None:
        """A decision was made."""
        assert self._recorder is not None
        if self._rule is not None and self._rule.takes(decision):
            self._add(self._recorder.decision(decision))

    def audited(self, decision: Mapping[str, Any], readings: Sequence[Reading], *more: Any) -> None:
        """An audit is over; ``more`` is what ``Recorder.audit`` takes."""
        assert self._recorder is not None
        self._add(self._recorder.audit(decision, readings, *more))

    def _add(self, made: Made | None) -> None:
        if made is None:
            self._too_long += 1
        else:
            self._way.add(made)

    def stop(self) -> None:
        """Send and write what is left."""
        self._way.stop()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def facts(self) -> dict[str, Any]:
        """The number of this start, and the counters."""
        return {"boot": self._boot, "outbox": {**self._way.facts(), "too_long": self._too_long}}


# The number of this start of a device: one higher than the last, in one file that is written whole or not at all.
#
# With a sequence it names a record once and for all. A folder without a number begins at a random one, so that a card
# written anew does not repeat the numbers of the card before it. Where the file cannot be written, as on a full disk,
# the start has a random number of its own, and the next one that can write goes on from the file.


if TYPE_CHECKING:
    from pathlib import Path

MOST_NUMBER = 2**53 - 1  # JSON readers keep whole numbers up to this
STARTS = 2**20  # how far apart random beginnings lie
MAX_BYTES = 32


def random_boot() -> int:
    """A number that no other start has, but for one case in 2**32."""
    return (1 + int.from_bytes(os.urandom(4), "big")) * STARTS


def next_boot(folder: Path) -> tuple[int, bool]:
    """The number of this start, on the disk before it is returned; and whether it could be written."""
    path = folder / "boot"
    boot = _last(path) + 1 or random_boot()
    try:
        write_whole(path, b"%d\n" % boot)
    except InputError:
        return random_boot(), False
    return boot, True


def _last(path: Path) -> int:
    """The number in the file; -1 if there is none that can be used."""
    try:
        text = read_bounded(path, MAX_BYTES, "boot number", remedy="remove it").decode().strip()
    except (InputError, UnicodeDecodeError):
        return -1
    is_number = text.isascii() and text.isdigit() and 1 <= int(text) < MOST_NUMBER
    return int(text) if is_number else -1
