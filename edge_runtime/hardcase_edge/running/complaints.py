# SPDX-License-Identifier: Apache-2.0
"""What a run says of its own decisions without a flag: no sensor reads, or most readings are unlike those of training.

Each is said once when it begins, and again only after it was over; so a log stays short whatever the sensors do.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

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
