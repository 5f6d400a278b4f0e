# SPDX-License-Identifier: Apache-2.0
"""Asks the HPC for a batch, finds the row for which it fails or hangs, and whose fault that is: a device's or its own.

A device whose calls hang is refused for a time. But an HPC that stands still for a while (its server restarts, its disk
is slow) makes every call hang, whoever asks. So a hang is evidence against a device only beside others' successes:

- A device's first hang costs its own request alone; the device is asked alone from then on (``is_known``).
- It hangs again, and a call of another device has succeeded in between: the device is at fault, and is refused unasked
  for ``FIRST_PAUSE_S``, and for twice as long after each further hang.
- Two devices hang one after the other with no success in between: the HPC is at fault. Nobody is barred, the devices
  are to try later, and what has hung counts for ``FIRST_PAUSE_S`` only.
- A call of the device itself succeeds: its hang is forgotten, at once if the HPC was at fault, else from
  ``FIRST_PAUSE_S`` after the hang on, so that a device which mixes rows that hang with others hangs once in that time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hardcase_edge.errors import HpcStuckError, HpcTimeoutError, InputError
from hardcase_edge.program.readings import Reading

log = logging.getLogger(__name__)

MAX_SUSPECTS = 4096
FIRST_PAUSE_S, LAST_PAUSE_S = 60.0, 3600.0  # the first doubles up to the last
FORGET_S = 4 * LAST_PAUSE_S  # a device that has caused no hang for so long begins anew

FAILED, HUNG, UNANSWERED = "failed", "hung", "unanswered"  # what a row has instead of an answer
Answer = tuple[int, int] | str  # result and confidence in basis points, or one of the three above


class Answerer(Protocol):
    """What the service needs of a model; ``onnx_model.Hpc`` and ``function.FunctionHpc`` implement it."""

    sha256: str
    dtypes: tuple[str, ...]

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class index or result, and the confidence in basis points, of each row.

        Raises
        ------
        InputError
            It has none; ``HpcTimeoutError`` if it did not return in time.
        HpcStuckError
            It can answer no more in this process.
        """


@runtime_checkable
class Concurrent(Answerer, Protocol):
    """A model that is asked several rows at once, each by itself; ``large_model.LargeModel`` implements it."""

    at_once: int

    def begin(self, row: Sequence[Reading], left_s: float) -> Future[Answer]:
        """Have a row asked; its answer comes within ``left_s`` seconds, or is ``FAILED``."""


class Asking:
    """One HPC, and whether it can answer any more.

    Attributes
    ----------
    is_stuck : bool
        Whether the HPC can answer no more in this process.
    """

    def __init__(self, hpc: Answerer) -> None:
        self._hpc = hpc
        self.is_stuck = False

    def answer(self, rows: list[tuple[Reading, ...]]) -> list[Answer]:
        """An answer for each of the first rows; the others are to be asked alone, because one of them may hang.

        If a batch fails, its rows are answered separately, up to the first that hangs.
        """
        try:
            return list(self._hpc.answer(rows))
        except HpcStuckError as error:
            if not self.is_stuck:
                log.error("%s", error)
            self.is_stuck = True
            return [UNANSWERED] * len(rows)
        except HpcTimeoutError as error:
            log.warning("%s", error)
            return [HUNG] if len(rows) == 1 else []
        except InputError as error:
            log.warning("%s", error)
            if len(rows) == 1:
                return [FAILED]
        answers: list[Answer] = []
        for row in rows:
            answers += self.answer([row])
            if answers[-1] is HUNG:
                break
        return answers


@dataclass(slots=True)
class _Suspect:
    last: float  # when the last call hung, seconds
    n_good: int  # calls that had succeeded until then
    until: float  # from then on its hangs count no more
    pause_s: float = 0.0  # after the last hang; 0: it is not barred
    is_excused: bool = False  # the HPC was at fault


class Suspects:
    """What is known of the devices that made a call hang; times are seconds on the caller's clock.

    >>> suspects = Suspects()
    >>> suspects.hung("pi-1", 0.0), suspects.is_barred("pi-1", 1.0)
    (True, False)
    >>> suspects.succeeded(["pi-2"], 1.0)
    >>> suspects.hung("pi-1", 1.0), suspects.is_barred("pi-1", 60.0), suspects.is_barred("pi-1", 62.0)
    (True, True, False)

    Two that hang one after the other are not at fault:

    >>> suspects = Suspects()
    >>> suspects.hung("pi-1", 0.0), suspects.hung("pi-2", 1.0), suspects.hung("pi-1", 2.0)
    (True, False, False)
    >>> suspects.is_barred("pi-1", 2.0), suspects.is_barred("pi-2", 2.0)
    (False, False)
    """

    def __init__(self) -> None:
        self._suspects: OrderedDict[str, _Suspect] = OrderedDict()
        self._n_good = 0  # calls that have succeeded
        self._good: list[tuple[int, str]] = []  # the last two of different devices: number of the call, and device
        self._unexplained: list[str] = []  # devices whose calls have hung since the last success, at most one or two

    def hung(self, device: str, now: float) -> bool:
        """Note that a call with this device's request alone did not return in time; False: the HPC is at fault."""
        suspect = self._suspects.pop(device, None)
        if suspect is None or now > suspect.until:
            suspect = _Suspect(now, self._n_good, 0.0)
        is_again = self._n_good_of_others(device) > suspect.n_good
        others = [name for name in self._unexplained if name != device]
        suspect.last, suspect.n_good = now, self._n_good
        self._suspects[device] = suspect
        if len(self._suspects) > MAX_SUSPECTS:
            self._suspects.popitem(last=False)
        if is_again:
            suspect.pause_s = min(LAST_PAUSE_S, max(FIRST_PAUSE_S, 2 * suspect.pause_s))
            suspect.until, suspect.is_excused = now + FORGET_S, False
            return True
        self._unexplained = [*others[-1:], device]
        if not others:
            suspect.until = now + FORGET_S
            return True
        for name in self._unexplained:
            excused = self._suspects.get(name)
            if excused is not None and not excused.pause_s:
                excused.is_excused, excused.until = True, excused.last + FIRST_PAUSE_S
        return False

    def succeeded(self, devices: Iterable[str], now: float) -> None:
        """Note that a call with requests of these devices has returned answers."""
        self._n_good += 1
        self._unexplained.clear()
        for device in devices:
            others = [pair for pair in self._good if pair[1] != device]
            self._good = [*others[-1:], (self._n_good, device)]
            suspect = self._suspects.get(device)
            if suspect is None or suspect.pause_s:
                continue
            if suspect.is_excused or now >= suspect.last + FIRST_PAUSE_S:
                del self._suspects[device]

    def is_known(self, device: str) -> bool:
        """Whether this device has made a call hang."""
        return device in self._suspects

    def is_barred(self, device: str, now: float) -> bool:
        """Whether this device's requests are refused unasked."""
        suspect = self._suspects.get(device)
        return suspect is not None and now < suspect.last + suspect.pause_s

    def _n_good_of_others(self, device: str) -> int:
        """How many calls had succeeded when the last one with another device did."""
        return next((number for number, name in reversed(self._good) if name != device), 0)
