# SPDX-License-Identifier: Apache-2.0
"""The outbox without threads: records come in, are committed in groups, go out, and are removed once they are stored.

A record that the store acknowledges before its group is due never reaches the disk, so a device that is connected
hardly writes. What cannot be written, as on a full disk, waits in memory up to ``most_unwritten`` records, and is sent
from there. Neither that nor a damaged file ends anything: both are counted.
"""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...base.record import record
from ...errors import WireError
from .acks import unpack_acks
from .drain import Drain, DrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .file import RecordFile
    from .records import Made, Row

T = TypeVar("T")
Key = tuple[int, int]  # boot and sequence

COUNTERS = (
    "written", "sent", "resent", "stored", "dropped", "damaged", "unwritable", "malformed_acks",
)  # fmt: skip
READ_AHEAD = 64  # rows read from the file at once
EXPIRE_EVERY_S = 600.0
FULL_PAUSE_S = 0.05  # until the connection has room again


class Channel(Protocol):
    """Where records go; ``link.link.Link`` implements it."""

    @property
    def is_connected(self) -> bool:
        """Whether something can be sent now."""

    @property
    def connects(self) -> int:
        """How many times the connection has come up."""

    @property
    def is_asking(self) -> bool:
        """Whether a request waits for its reply."""

    def publish_record(self, payload: bytes, *, is_audit: bool) -> bool:
        """Send a record; returns whether it was sent."""


@record(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """Every setting of the outbox, with its unit in its name."""

    limit: int  # bytes of records on the disk, with their overhead
    drop: str  # what goes when there are more: OLDEST_FIRST or SAMPLE
    most_age_s: float = 30 * 86_400.0  # by wall time, where the clock is known
    group: int = 64  # records after which a group is committed
    group_s: float = 1.0  # seconds after which it is committed, however small
    most_unwritten: int = 1024  # records in memory that wait for a disk that cannot be written
    retry_s: float = 5.0  # pause after a commit that failed
    drain: DrainConfig = DrainConfig()


class Queue:
    """The outbox of one start.

    Parameters
    ----------
    path : of the file; its folder exists
    config : QueueConfig
    now : function that gives wall time in seconds, or None while the clock is not known
    note : called with each line that a user should read

    Attributes
    ----------
    counters : Counter
        ``written`` to the disk, ``sent``, ``resent``, ``stored`` by the cloud, ``dropped`` for their age or for want of
        room, ``damaged`` files and rows, ``unwritable`` groups, ``malformed_acks``.
    """

    def __init__(
        self, path: Path, config: QueueConfig, *, now: Callable[[], float | None], note: Callable[[str], None]
    ) -> None:
        self._path, self._config, self._now, self._note = path, config, now, note
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._drain = Drain(config.drain)
        self._file: RecordFile | None = None
        self._left = 0  # records in the file when it was closed
        self._open_at = -inf  # when to open the file, again
        self._unwritten: dict[Key, Made] = {}
        self._read: deque[Row] = deque()  # rows of the file to be sent next
        self._read_to = 0  # the highest id read
        self._ids: dict[Key, int] = {}  # of records in flight that are in the file
        self._remove: set[int] = set()  # rows of the file that are stored, or damaged
        self._since = inf  # when the group began
        self._commit_at = -inf  # not before this, after a commit that failed
        self._expire_at = -inf
        self._connects = 0
        self._is_ill = False  # the disk could not be written the last time

    @property
    def waiting(self) -> int:
        """Records that are not stored yet."""
        file = self._file  # the owner's thread may close it
        on_disk = self._left if file is None else file.waiting
        return on_disk + len(self._unwritten) - len(self._remove)

    # ------------------------------------------------------------ what comes in

    def add(self, made: Made, now: float) -> None:
        """A record; ``now`` is seconds that only rise, here and below."""
        self._unwritten[made.boot, made.sequence] = made
        self._since = min(self._since, now)
        if len(self._unwritten) > self._config.most_unwritten:
            del self._unwritten[next(iter(self._unwritten))]
            self.counters["dropped"] += 1

    def acknowledged(self, payload: bytes, now: float) -> None:
        """A message on the device's ack topic."""
        try:
            ranges = unpack_acks(payload)
        except WireError:
            self.counters["malformed_acks"] += 1
            return
        for key in self._drain.acknowledged(ranges, now):
            self.counters["stored"] += 1
            if self._unwritten.pop(key, None) is None and (id_ := self._ids.pop(key, None)) is not None:
                self._remove.add(id_)
                self._since = min(self._since, now)
        if not self._unwritten and not self._remove:
            self._since = inf

    # ------------------------------------------------------------ what goes out

    def step(self, channel: Channel, now: float) -> float:
        """Send what may go, commit what is due; returns when to call again at the latest, if nothing else happens."""
        if self._file is None and now >= self._open_at:
            self._open_at = now + self._config.retry_s
            self._try(lambda file: None)
            self._since = min(self._since, now)  # what is too old goes
        if channel.connects != self._connects:
            self._connects = channel.connects
            self._drain.reconnected(now)
        wake_at = self._send(channel, now) if channel.is_connected else inf
        if now >= self._commit_due():
            self.commit(now)
        return min(wake_at, self._commit_due())

    def _commit_due(self) -> float:
        is_full = len(self._unwritten) + len(self._remove) >= self._config.group
        return max(self._commit_at, -inf if is_full else self._since + self._config.group_s)

    def _send(self, channel: Channel, now: float) -> float:
        """Send until nothing more may go; returns when that changes."""
        is_asking = channel.is_asking
        while self._drain.may_send(now, is_asking=is_asking):
            made, may_be_new = self._drain.next(now)
            is_again = made is not None
            if made is None:
                made = self._next_new() if may_be_new else None
            if made is None:
                return inf if may_be_new and not self._drain.flights else self._drain.next_at(now, is_asking=is_asking)
            if not channel.publish_record(made.payload, is_audit=made.is_audit):
                return now + FULL_PAUSE_S
            self._drain.sent(made, now)
            self.counters["resent" if is_again else "sent"] += 1
            if self._read and not is_again and self._read[0].record is made:
                self._ids[made.boot, made.sequence] = self._read.popleft().id
        return self._drain.next_at(now, is_asking=is_asking)

    def _next_new(self) -> Made | None:
        """The oldest record that was not sent on this start: of the file, then of the group."""
        flights = self._drain.flights
        while self._file is not None and not self._read and self._read_to < self._file.last_id:
            read = self._try(lambda file: file.after(self._read_to, READ_AHEAD))
            if read is None:
                break
            rows, bad = read
            self._read_to = max([row.id for row in rows] + bad, default=self._file.last_id)
            self._read.extend(row for row in rows if row.key not in flights and row.id not in self._remove)
            self._remove.update(bad)
            self.counters["damaged"] += len(bad)
        if self._read:
            return self._read[0].record
        return next((made for key, made in self._unwritten.items() if key not in flights), None)

    # ------------------------------------------------------------ the disk

    def commit(self, now: float) -> bool:
        """Write the group, and remove what is stored; returns whether all is on the disk."""
        wall = self._now()
        expire = wall - self._config.most_age_s if wall is not None and now >= self._expire_at else None
        if not self._unwritten and not self._remove and expire is None:
            self._since = inf
            return True
        records, remove = list(self._unwritten.values()), list(self._remove)
        first_and_gone = self._try(lambda file: (file.last_id + 1, file.commit(records, remove, expire=expire)))
        if first_and_gone is None:
            self._commit_at = now + self._config.retry_s
            return False
        first, gone = first_and_gone
        self._expire_at = self._expire_at if expire is None else now + EXPIRE_EVERY_S
        self.counters["written"] += len(records)
        self.counters["dropped"] += gone
        flights = self._drain.flights
        self._ids.update((key, first + k) for k, key in enumerate(self._unwritten) if key in flights)
        self._unwritten.clear()
        self._remove.clear()
        self._since, self._commit_at = inf, -inf
        return True

    def _try(self, act: Callable[[RecordFile], T]) -> T | None:
        """What the file gives; None if it cannot be used now, which is counted, and told once."""
        from .file import DamagedError, RecordFile, move_aside  # and with it sqlite3

        try:
            try:
                if self._file is None:
                    self._file = RecordFile(self._path, self._config.limit, self._config.drop)
                result = act(self._file)
            except DamagedError as error:
                self.counters["damaged"] += 1
                if not self._is_ill:  # it was not to be moved before
                    self._note(f"the outbox {self._path} is damaged: {error}; it is moved aside, and a new one begins")
                self._begin_anew()
                move_aside(self._path)
                return None
        except OSError as error:
            self.counters["unwritable"] += 1
            if not self._is_ill:
                self._note(f"the outbox {self._path} cannot be used now: {error.strerror}; decisions go on")
            self._is_ill = True
            return None
        if self._is_ill:
            self._note(f"the outbox {self._path} is used again")
        self._is_ill = False
        return result

    def _begin_anew(self) -> None:
        """Forget the file; what is in flight is still in memory, and is to be written again."""
        if self._file is not None:
            self._file.close()
        self._file, self._open_at = None, -inf
        self._unwritten = {**{k: m for k, m in self._drain.flights.items() if k in self._ids}, **self._unwritten}
        self._read.clear()
        self._ids.clear()
        self._remove.clear()
        self._read_to = 0

    def close(self, now: float) -> None:
        """Write what is not written, and close the file."""
        if self._unwritten or self._remove:
            self.commit(now)
        if self._file is not None:
            self._left = self._file.waiting
            self._file.close()
            self._file = None
