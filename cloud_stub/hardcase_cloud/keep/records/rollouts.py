# SPDX-License-Identifier: Apache-2.0
"""Roll-outs in a store, with their bundles, the state of each device, and what has come of a bundle since it began.

Each method is one transaction. Two processes may use one store, so what must hold at all times is in the tables: a
device is in one open roll-out at most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.bundle.agreement import above_shipped
from hardcase_edge.bundle.compatible import OTHER_PROGRAM
from hardcase_edge.errors import InputError

from .database import Database
from .dialects import Row
from .incoming import MOST, amount_of
from .labels import F0

OPEN = ("running", "paused")  # states of a roll-out that has not ended
STATES = (  # of a device in it
    "waiting", "offered", "loading", "trial", "good", "rolled back", "refused", f"refused here: {OTHER_PROGRAM}",
    "timed out", "away",
)  # fmt: skip
ENDS = ("stop", "supersede")  # wishes behind which no other one comes
MOST_AT_ONCE = 2_000  # rows that one look at audits or costs reads
SETTLE_S = 2.0  # from the stamp of an answer or a record until all that carry an earlier one are kept, too
ROLLOUT = "id, bundle, path, metadata, members, wish, state, machine, began, served"


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """A roll-out as it is kept; ``machine`` is JSON of ``rollout.waves.machine.Rollout.to_json``."""

    id: int
    bundle: str
    path: str
    metadata: str
    members: str
    wish: str  # "", "pause", "resume", "stop", "supersede"
    state: str
    machine: str
    began: float
    served: float  # when a process that serves it last said so


class Rollouts:
    """Roll-outs of one store."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._it = database.dialect

    def begin(
        self,
        bundle: Mapping[str, Any],
        path: str,
        metadata: str,
        members: str,
        machine: Mapping[str, Any],
        devices: Sequence[str],
        now: float,
        *,
        supersedes: bool = False,
    ) -> int:
        """Register a bundle and a roll-out of it; returns the roll-out's id.

        Parameters
        ----------
        bundle : ``sha256``, ``name``, ``bytes``, ``root``, ``targets`` and ``manifest`` (JSON)
        path, metadata : where whoever serves the roll-out reads the bundle and the signed metadata
        members : name of the group
        supersedes : end the open roll-outs that have one of the devices

        Raises
        ------
        InputError
            The group is empty, the bundle is older than one that the devices have had, or one of the devices is in an
            open roll-out.
        """
        if not devices:
            raise InputError(f"the group {members} has no devices; name some with hardcase cloud rollout group")

        def act() -> int:
            self._refuse_older(bundle, devices)
            others = self._others(devices)
            if others and not supersedes:
                raise InputError(
                    f"roll-out {min(others)} has {len(others[min(others)])} of these devices, such as "
                    f"{others[min(others)][0]}; stop it, or end it with --supersede"
                )
            for other in others:
                self._it.execute("UPDATE rollouts SET wish = 'supersede' WHERE id = ?", (other,))
                self._it.execute("UPDATE instances SET is_open = 0 WHERE rollout = ?", (other,))
            number = int(self._it.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM rollouts")[0][0])
            fields = [bundle[key] for key in ("sha256", "name", "bytes", "root", "targets", "manifest")]
            self._it.execute(
                "INSERT INTO bundles VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sha256) DO UPDATE SET "
                "root = excluded.root, targets = excluded.targets",
                (*fields, now),
            )
            self._it.execute(
                f"INSERT INTO rollouts ({ROLLOUT}) VALUES (?, ?, ?, ?, ?, '', 'running', ?, ?, 0)",
                (number, bundle["sha256"], path, metadata, members, json.dumps(machine), now),
            )
            self._it.load("instances", [(number, device, "waiting", now, "", 1) for device in sorted(devices)])
            return number

        return self._it.run(act)

    def _refuse_older(self, bundle: Mapping[str, Any], devices: Sequence[str]) -> None:
        ours = (bundle["root"], bundle["targets"])
        rows = self._it.execute(
            "SELECT DISTINCT r.id, b.root, b.targets FROM rollouts r JOIN bundles b ON b.sha256 = r.bundle "
            "WHERE b.sha256 <> ? AND (b.root > ? OR (b.root = ? AND b.targets > ?)) ORDER BY r.id",
            (bundle["sha256"], ours[0], *ours),
        )
        group = set(devices)
        for number, root, targets in rows:
            has = self._it.execute("SELECT device FROM instances WHERE rollout = ? AND state <> 'waiting'", (number,))
            if group & {row[0] for row in has}:
                raise InputError(
                    f"the bundle has release {ours[0]}.{ours[1]}, and roll-out {number} has brought {root}.{targets} "
                    "to these devices, which take no older one; sign the bundle in newer targets"
                )

    def _others(self, devices: Sequence[str]) -> dict[int, list[str]]:
        """Open roll-outs with some of these devices, and those devices."""
        group, others = set(devices), dict[int, list[str]]()
        for number, device in self._it.execute(
            "SELECT rollout, device FROM instances WHERE is_open = 1 ORDER BY rollout, device"
        ):
            if device in group:
                others.setdefault(int(number), []).append(device)
        return others

    def rollouts(self) -> list[RolloutRow]:
        """All roll-outs, the newest first."""
        return [RolloutRow(*row) for row in self.database.read(f"SELECT {ROLLOUT} FROM rollouts ORDER BY id DESC")]

    def rollout(self, number: int) -> RolloutRow:
        """One of them. Raises ``InputError`` if there is none with this number."""
        is_one = 1 <= number <= MOST  # SQLite takes no greater numbers
        rows = self.database.read(f"SELECT {ROLLOUT} FROM rollouts WHERE id = ?", (number,)) if is_one else []
        if not rows:
            raise InputError(f"there is no roll-out {number}; hardcase cloud rollout status lists them")
        return RolloutRow(*rows[0])

    def wish(self, number: int, wish: str) -> None:
        """What a person wants of a roll-out: ``pause``, ``resume`` or ``stop``; whoever serves it does it.

        Raises
        ------
        InputError
            There is no such roll-out, or it has ended, or is to end as soon as somebody serves it.
        """
        row = self.rollout(number)
        changed = self.database.write(
            "UPDATE rollouts SET wish = ? WHERE id = ? AND state IN (?, ?) AND wish NOT IN (?, ?) RETURNING id",
            (wish, number, *OPEN, *ENDS),
        )
        if not changed and row.state not in OPEN:
            raise InputError(f"roll-out {number} has ended: {row.state}; start another one")
        if not changed and wish not in ENDS:
            why = "another roll-out has its devices" if row.wish == "supersede" else "a person stopped it"
            raise InputError(f"roll-out {number} is to end, because {why}; start another one")

    def save(
        self,
        number: int,
        machine: Mapping[str, Any],
        changes: Mapping[str, tuple[str, float, str]],
        now: float,
        done: str = "",
    ) -> str:
        """Keep how a roll-out stands; returns the wish, which stays until a later call says that it is done.

        Parameters
        ----------
        machine : ``Rollout.to_json``
        changes : of devices whose state has changed: state, since when, and reason
        done : a wish that ``machine`` has obeyed
        """
        is_open = machine["state"] in OPEN
        rows = [(*change, number, device) for device, change in sorted(changes.items())]

        def act() -> str:
            wishes = self._it.execute(
                "UPDATE rollouts SET machine = ?, state = ?, served = ?, wish = CASE WHEN wish = ? THEN '' ELSE wish "
                "END WHERE id = ? RETURNING wish",
                (json.dumps(machine), machine["state"], now, done, number),
            )
            self._it.many(
                "UPDATE instances SET state = ?, since = ?, reason = ? WHERE rollout = ? AND device = ?", rows
            )
            if not is_open:
                self._it.execute("UPDATE instances SET is_open = 0 WHERE rollout = ? AND is_open = 1", (number,))
            return str(wishes[0][0]) if wishes else ""

        return self._it.run(act)

    def instances(self, number: int) -> dict[str, tuple[str, float, str]]:
        """Of each device of a roll-out its state, since when, and the reason."""
        rows = self.database.read("SELECT device, state, since, reason FROM instances WHERE rollout = ?", (number,))
        return {device: (state, since, reason) for device, state, since, reason in rows}

    def audits_since(
        self, bundle: str, after: Row, now: float, shipped: int | None = None
    ) -> tuple[list[tuple[str, bool]], Row]:
        """The next audits of a bundle that f0 has answered: of each the device, and whether both agree.

        Answers of the last ``SETTLE_S`` seconds wait: two who label at once may keep theirs out of order.

        Parameters
        ----------
        after : when f0 answered, device, boot and sequence; the second value that is returned is the next ``after``
        shipped : level of the bundle's prices; audits of decisions at a higher one are left out. None: it has none
        """
        rows = self.database.read(
            "SELECT l.received, l.device, l.boot, l.sequence, l.label, r.record FROM labels l JOIN records r ON "
            "r.device = l.device AND r.boot = l.boot AND r.sequence = l.sequence WHERE l.source = ? AND l.label <> '' "
            "AND (l.received, l.device, l.boot, l.sequence) > (?, ?, ?, ?) AND l.received <= ? "
            "ORDER BY l.received, l.device, l.boot, l.sequence LIMIT ?",
            (F0, *after, now - SETTLE_S, MOST_AT_ONCE),
        )
        audits = [(row[1], row[4], json.loads(row[5])) for row in rows]
        answered = [
            (device, label == str(r.get("label")))
            for device, label, r in audits
            if r.get("bundle") == bundle and above_shipped(r, shipped) <= 0
        ]
        return answered, rows[-1][:4] if rows else after

    def costs_since(self, bundle: str, after: float, now: float) -> tuple[list[tuple[str, float]], float]:
        """Decisions of a bundle that came after a time, a sample if there are many: of each the device and the cost.

        The second value that is returned is the next ``after``, behind the decisions of other bundles, too. Those of
        the last ``SETTLE_S`` seconds wait, as answers do in ``audits_since``.
        """
        rows = self.database.read(
            "SELECT received, device, record FROM records WHERE kind = 'decision' AND received > ? "
            "AND received <= ? ORDER BY received DESC LIMIT ?",
            (after, now - SETTLE_S, MOST_AT_ONCE),
        )
        decisions = [(device, json.loads(text)) for _, device, text in reversed(rows)]
        costs = [
            (device, cost)
            for device, r in decisions
            if r.get("bundle") == bundle and (cost := amount_of(r.get("cost"))) is not None
        ]
        return costs, float(rows[0][0]) if rows else after
