# SPDX-License-Identifier: Apache-2.0
"""Cases: forwarded requests with f0's answers, which a worker keeps in a store for the next training.

A worker answers whether or not the store can be used: cases wait in a bounded queue until a thread has written them,
and what finds no room, or waits at the end, is counted and gone. A case is a record of its device with the boot number
0, which no start of a device has, and a sequence that follows from the request's id: so a request that two workers
answer is one case.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hardcase_edge.errors import InputError

from .database import Database
from .dialects import keep_storable
from .incoming import Incoming

CASE = "case"
MOST_WAITING = 10_000
BATCH = 1_000  # cases in one commit
PAUSE_S = 1.0  # between two commits
CLOSE_S = 5.0  # how long the last commit may take


def case_of(
    device: str, id_: bytes, hpc: str, readings: Sequence[Any], result: int, share: float, t: float | None = None
) -> Incoming:
    """The record of one case.

    Parameters
    ----------
    id_ : the request's 16 bytes
    hpc : SHA-256 of f0, in hex
    readings : in the order of f0's inputs, None for missing
    result : index of the class that f0 has answered
    share : of the answered requests that are kept
    t : Unix time of the answer in seconds; None: unknown
    """
    fields = {"kind": CASE, "device": device, "hpc": hpc, "readings": list(readings), "result": result, "share": share}
    fields |= {} if t is None else {"t": round(t, 3)}
    sequence = int.from_bytes(id_[:8], "big") >> 11  # 53 bits, which readers of JSON keep
    return Incoming(device, 0, sequence, CASE, json.dumps(fields, separators=(",", ":")))


class Cases:
    """Keeps a share of the cases that a worker answers.

    Parameters
    ----------
    open_store : opens the database, on the thread that writes
    hpc : SHA-256 of f0, in hex
    share : from 0 to 1; which requests are kept follows from their ids, so that several workers keep the same ones

    Attributes
    ----------
    kept, lost : int
        Cases that are in the store, and that found no room, were not written by the end, or can never be.
    trouble : str
        Why the store cannot be used now, or "".
    """

    def __init__(
        self, open_store: Callable[[], Database], hpc: str, share: float, *, now: Callable[[], float] = time.time
    ) -> None:
        self._open, self._hpc, self._share, self._now = open_store, hpc, share, now
        self._least = round(share * 2**32)
        self._waiting: list[Incoming] = []  # the thread alone removes some, the first ones
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.kept = self.lost = 0
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="cases", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def add(self, device: str, id_: bytes, readings: Sequence[Any], result: int) -> None:
        """Take one answered request; returns at once, whatever the store does."""
        if int.from_bytes(id_[8:12], "big") >= self._least:
            return
        case = case_of(device, id_, self._hpc, readings, result, self._share, self._now())
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                self.lost += 1
            else:
                self._waiting.append(case)

    def close(self) -> None:
        """Write what waits, within ``CLOSE_S``."""
        self._stop.set()
        self._thread.join(CLOSE_S)

    def figures(self) -> dict[str, int]:
        """``cases`` and ``cases_lost``, for the worker's counters."""
        return {"cases": self.kept, "cases_lost": self.lost}

    def _run(self) -> None:
        database: Database | None = None
        is_last = False
        while not is_last:
            is_last = self._stop.wait(PAUSE_S)
            try:
                while batch := self._waiting[:BATCH]:
                    database = database or self._open()
                    self._keep(database, batch)
                self.trouble = ""
            except InputError as error:
                self.trouble = str(error)  # what waits is tried again
        self.lost += len(self._waiting)
        if database is not None:
            database.close()

    def _keep(self, database: Database, batch: list[Incoming]) -> None:
        def keep(some: Sequence[Incoming]) -> None:
            self.kept += database.keep(some, self._now())

        n_bad = keep_storable(batch, keep)
        with self._lock:
            self.lost += n_bad
            del self._waiting[: len(batch)]
