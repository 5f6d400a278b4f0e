# SPDX-License-Identifier: Apache-2.0
"""All drift monitors of a run: which readings have moved, whether margins and forwarding have, which sensors fail.

    watch = Watch(manifest.monitors, program, manifest.shipped)
    watch.decided(record, readings)     after each decision
    watch.dead                          sensors that the program had better do without
    watch.doubts                        for each suspect, which other sensors it may be as well
    watch.facts(names)                  for the status

Nothing here reads a clock or a file, and the memory is that of the manifest's lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...bundle.agreement import above_shipped
from ...bundle.monitors import Histogram
from ...session.actions import LOCAL
from .columns import Columns
from .residuals import Residuals
from .stability import Stability

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...bundle.monitors import Monitors
    from ...program.definition import Program
    from .arithmetic import Readings

MANY = 3  # suspects at once: not so many sensors fail together
AT_ONCE = 512  # decisions between the first and the last sign of them


def wanted_cloud(decision: Mapping[str, Any]) -> bool:
    """Whether the program forwarded this case, or would have; ``decision`` is a line of ``Device.run``."""
    route = decision["route"]
    return bool(route == "cloud" or (route == "degraded" and not decision["failed"] and not decision.get("unpaid")))


class Watch:
    """The monitors of one bundle.

    Parameters
    ----------
    monitors : Monitors
    program : Program
    shipped : level of the bundle's prices at which confidences and forwards are as in ``monitors``; None: at any

    Attributes
    ----------
    n : int
        Decisions so far.
    """

    def __init__(self, monitors: Monitors, program: Program, shipped: int | None = None) -> None:
        self._program, self._shipped = program, shipped
        self.n = 0
        self._may_be_dead = frozenset(monitors.treat_as_dead)
        self._features = {f: Stability(histogram) for f, histogram in monitors.features}
        self._confidence = None if monitors.confidence is None else Stability(monitors.confidence)
        self._forwarded = _shares(monitors.forwarded)
        self._lines: list[Mapping[str, Any]] = []  # of the decisions that wait, ...
        self._rows: list[Readings] = []  # ... and their readings
        self._residuals = Residuals(monitors, program.sensor_of, self._moved)
        self._next_look = self._residuals.may_wait

    def decided(self, decision: Mapping[str, Any], readings: Readings) -> bool:
        """A decision was made with these readings, which nobody changes any more; returns whether it was looked at."""
        self.n += 1
        self._lines.append(decision)
        self._rows.append(readings)
        if self.n < self._next_look:
            return False
        self._see()
        self._next_look = self.n + self._residuals.may_wait
        return True

    def _see(self) -> None:
        """Look at all decisions that have waited: together they take less time than one by one."""
        lines, columns = self._lines, Columns(self._rows, self._program)
        self._lines, self._rows = [], []
        for f, stability in self._features.items():
            column = columns[f]
            total = sum(column)  # NaN where some reading is missing
            stability.see(column if total == total else [x for x in column if x == x])
        self._residuals.see(columns, self.n - len(lines) + 1)
        if self._shipped is not None:
            lines = [line for line in lines if not above_shipped(line, self._shipped)]
        if self._forwarded is not None:
            self._forwarded.see([line["route"] != LOCAL and wanted_cloud(line) for line in lines])
        if self._confidence is not None:
            shares = [line["confidence"] for line in lines if line["route"] == LOCAL]
            self._confidence.see([10_000 * share for share in shares if share is not None])

    @property
    def suspects(self) -> Mapping[int, tuple[str, int]]:
        """By sensor why it is suspected (``residual`` or ``stuck``), and since which decision."""
        return self._residuals.suspects

    @property
    def doubts(self) -> Mapping[int, frozenset[int]]:
        """By suspect the sensors from which nothing tells it."""
        return self._residuals.doubts

    @property
    def together(self) -> frozenset[int]:
        """Suspects with a common cause, the world or the bundle: at least ``MANY`` that changed at the same time."""
        marks = [(since, s) for s, (_, since) in self.suspects.items()]
        crowds = ([s for since, s in marks if 0 <= since - first <= AT_ONCE] for first, _ in marks)
        return frozenset(max(crowds, key=len, default=())) if len(marks) >= MANY else frozenset()

    @property
    def dead(self) -> frozenset[int]:
        """Suspects without which the program does better, as the export has measured, and that are not in doubt."""
        unsure = self.together
        return frozenset(
            [s for s in self.suspects if s in self._may_be_dead and not self.doubts[s] and s not in unsure]
        )

    def moved(self, features: Sequence[str]) -> dict[str, float]:
        """What the last window finds spread otherwise than in training; by name, with its index."""
        return {name: round(s.index, 3) for name, s in self._named(features) if s.has_moved and s.index is not None}

    def moved_for_long(self, features: Sequence[str]) -> dict[str, float]:
        """What the last windows together find spread otherwise than in training; by name, with its index."""
        named = self._named(features)
        return {name: s.lasting for name, s in named if s.has_moved_for_long and s.lasting is not None}

    def _named(self, features: Sequence[str]) -> list[tuple[str, Stability]]:
        others = (("confidence", self._confidence), ("forwarded", self._forwarded))
        return [*((features[f], s) for f, s in self._features.items()), *((name, s) for name, s in others if s)]

    @property
    def n_watched(self) -> int:
        """How many distributions are watched."""
        return len(self._features) + (self._confidence is not None) + (self._forwarded is not None)

    def _moved(self) -> frozenset[int]:
        """The sensors of which a feature has moved."""
        return frozenset([self._program.sensor_of[f] for f, s in self._features.items() if s.has_moved])

    def facts(self, features: Sequence[str], sensors: Sequence[str], *, acts: bool) -> dict[str, Any]:
        """What drift has been seen, for the facts, by these names; docs/drift.md lists the keys."""
        return {
            "decisions": self.n,
            "moved": self.moved(features),
            "together": [sensors[s] for s in sorted(self.together)],
            "suspects": {
                sensors[s]: {
                    "why": why,
                    "since": since,
                    "dead": acts and s in self.dead,
                    "or": [sensors[t] for t in sorted(self.doubts[s])],
                }
                for s, (why, since) in sorted(self.suspects.items())
            },
        }


def _shares(counts: tuple[int, int]) -> Stability | None:
    """The stability of a yes or no; None if there were no rows."""
    n, yes = counts
    return None if n == 0 else Stability(Histogram((0.5,), (max(1, n - yes), max(1, yes))))
