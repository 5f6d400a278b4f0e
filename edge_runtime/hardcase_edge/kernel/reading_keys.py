# SPDX-License-Identifier: Apache-2.0
"""The keys of readings that a session stores for inlined ensembles, those exported as C code.

C code compares a reading as cheaply as its rank, so no rank is computed: a threshold on a rank column becomes a bound
of the reading's order-preserving key (``program.format.to_key``). The session stores the keys of all readings of a
sensor whose rank columns such ensembles read, laid out as in the sensor's C struct. Affine columns keep their codes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..program.definition import CODE_MAX, Program, Rank, Trees
from ..program.format import to_key
from ..program.readings import DTYPES

MAX_SENSOR_BYTES = 4096  # of readings; a larger sensor has codes as in tables, which take less memory


class Keys:
    """The keys that inlined ensembles read; ``inlined``: their numbers as scorers."""

    def __init__(self, program: Program, inlined: Iterable[int]) -> None:
        self._p = program
        self._place: dict[int, int] = {}  # of a feature: the offset of its key, in bytes from the first key
        self.sensors: dict[int, int] = {}  # of a sensor: the offset of its keys
        self.n_bytes = 0
        read = {program.sensor_of[program.columns[c].feature] for k in inlined for c in self._ranks(k)}
        for sensor in sorted(read):
            self._lay(sensor)

    def _lay(self, sensor: int) -> None:
        """Place the keys of a sensor as its C struct places readings; each struct begins at a multiple of 8."""
        places, end = {}, 0
        for f in self._p.sensors[sensor].features:
            size = DTYPES[self._p.features[f].dtype].size
            places[f] = end + -end % size
            end = places[f] + size
        if end > MAX_SENSOR_BYTES:
            return
        self.sensors[sensor] = self.n_bytes
        self._place.update((f, self.n_bytes + at) for f, at in places.items())
        self.n_bytes += end + -end % 8

    def _ranks(self, scorer: int) -> set[int]:
        """The rank columns that an ensemble's nodes read."""
        s = self._p.scorers[scorer]
        assert isinstance(s, Trees)
        columns = {s.columns[k] for tree in s.trees for k in tree.splits}
        return {c for c in columns if isinstance(self._p.columns[c].rule, Rank)}

    def has(self, column: int) -> bool:
        """Whether inlined ensembles read this column as a key."""
        column_ = self._p.columns[column]
        return isinstance(column_.rule, Rank) and column_.feature in self._place

    def place(self, column: int) -> int:
        """The offset of the key of this column's reading, in bytes from the first key."""
        return self._place[self._p.columns[column].feature]

    def bound(self, column: int, threshold: int) -> int | None:
        """The largest key whose code is at most the threshold; None: every reading's code is."""
        column_ = self._p.columns[column]
        assert isinstance(column_.rule, Rank)
        rank = threshold + CODE_MAX
        if rank >= len(column_.rule.thresholds):
            return None
        return to_key(column_.rule.thresholds[rank], self._p.features[column_.feature].dtype)

    def sensors_of(self, scorer: int) -> list[int]:
        """The sensors whose keys an ensemble reads."""
        owners = {self._p.sensor_of[self._p.columns[c].feature] for c in self._ranks(scorer)}
        return sorted(owners & self.sensors.keys())
