# SPDX-License-Identifier: Apache-2.0
"""The registry in a store: devices and what they say, groups, bundles, roll-outs with their instances, and labels.

Each method is one transaction. Two processes may use one store, so what must hold at all times is in the tables: a
device is in one open roll-out at most, and a record has one label of each source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardcase_edge.bundle.agreement import above_shipped
from hardcase_edge.errors import InputError

from .database import MINUTES, Database
from .dialects import Row
from .incoming import amount_of, word
from .standing import Audited, add_audits

__all__ = ["F0", "MOST_ENDS", "OPEN", "PERSON", "Registry", "RolloutRow", "Seen"]

OPEN = ("running", "paused")
F0 = "f0"  # the source of labels that f0 has given
PERSON = "person"  # and of those of people, which win in training
MOST_AT_ONCE = 2_000  # rows that one look at audits or costs reads
MOST_NUMBER = 2**53 - 1  # of a roll-out
SETTLE_S = 2.0  # from the stamp of an answer or a record until all that carry an earlier one are kept, too
MOST_ENDS = 16  # starts of a device that have told their seed
ENDS = (
    "INSERT INTO starts VALUES (?, ?, ?, ?) ON CONFLICT (device, boot) DO UPDATE SET facts = excluded.facts "
    "WHERE starts.facts <> ''"
)
FEWER_ENDS = (
    "DELETE FROM starts WHERE device = ? AND boot NOT IN (SELECT boot FROM starts WHERE device = ? "
    "ORDER BY told DESC, boot DESC LIMIT ?)"
)
ROLLOUT = "id, bundle, path, metadata, members, wish, state, machine, began, served"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a device; None where a message did not say it."""

    device: str
    is_online: bool | None = None
    bundle: str | None = None
    state: str | None = None  # of its store: good or trial
    facts: str | None = None  # JSON
    ended: str | None = None  # facts of a start before, which told the seed of its audits


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """A roll-out as it is kept; ``machine`` is JSON of ``rollouts.machine.Rollout.to_json``."""

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


class Registry:
    """Devices, groups, bundles, roll-outs and labels of one store."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._it = database.dialect

    # ------------------------------------------------------------ devices

    def saw(self, devices: Iterable[Seen], now: float) -> None:
        """Note what devices say of themselves."""
        devices = sorted(devices, key=lambda d: d.device)
        rows = [
            (d.device, int(d.is_online or 0), d.bundle or "", d.state or "", d.facts or "{}", now,
             None if d.is_online is None else int(d.is_online), d.bundle, d.state, d.facts)
            for d in devices
        ]  # fmt: skip
        sql = (
            "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (device) DO UPDATE SET "
            "is_online = COALESCE(?, devices.is_online), bundle = COALESCE(?, devices.bundle), "
            "state = COALESCE(?, devices.state), facts = COALESCE(?, devices.facts), seen = excluded.seen"
        )
        ends = [
            (d.device, end[0], now, end[1])
            for d in devices
            for text in (d.ended, d.facts)
            if (end := _end_of(text)) is not None
        ]

        def act() -> None:
            self._it.many(sql, rows)
            self._it.many(ENDS, ends)
            self._it.many(FEWER_ENDS, [(device, device, MOST_ENDS) for device in sorted({end[0] for end in ends})])

        self._it.run(act)

    def ends(self, device: str) -> list[Row]:
        """The last starts of a device that have told the seed of their audits, the newest first: boot and facts.

        The facts are "" where records of the start were removed for their age.
        """
        return self.database.read(
            "SELECT boot, facts FROM starts WHERE device = ? ORDER BY told DESC, boot DESC", (device,)
        )

    # ------------------------------------------------------------ groups

    def set_group(self, name: str, devices: Iterable[str]) -> int:
        """Make a group of exactly these devices; returns their number. No device: the group is gone."""
        rows = [(name, device) for device in sorted(set(devices))]

        def act() -> None:
            self._it.execute("DELETE FROM members WHERE name = ?", (name,))
            self._it.load("members", rows)

        self._it.run(act)
        return len(rows)

    def group(self, name: str) -> list[str]:
        """The devices of a group; none if nobody has made it."""
        return [row[0] for row in self.database.read("SELECT device FROM members WHERE name = ? ORDER BY 1", (name,))]

    # ------------------------------------------------------------ bundles and roll-outs

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
        is_one = 1 <= number <= MOST_NUMBER  # SQLite takes no greater numbers
        rows = self.database.read(f"SELECT {ROLLOUT} FROM rollouts WHERE id = ?", (number,)) if is_one else []
        if not rows:
            raise InputError(f"there is no roll-out {number}; hardcase cloud rollout status lists them")
        return RolloutRow(*rows[0])

    def wish(self, number: int, wish: str) -> None:
        """What a person wants of a roll-out: ``pause``, ``resume`` or ``stop``; whoever serves it does it.

        Raises
        ------
        InputError
            There is no such roll-out, or it has ended.
        """
        row = self.rollout(number)
        changed = self.database.write(
            "UPDATE rollouts SET wish = ? WHERE id = ? AND state IN (?, ?) RETURNING id", (wish, number, *OPEN)
        )
        if not changed:
            raise InputError(f"roll-out {number} has ended: {row.state}; start another one")

    def save(self, number: int, machine: Mapping[str, Any], changes: Mapping[str, tuple[str, float, str]], now: float
             ) -> str:  # fmt: skip
        """Keep how a roll-out stands; returns the wish, which is then done.

        Parameters
        ----------
        machine : ``Rollout.to_json``
        changes : of devices whose state has changed: state, since when, and reason
        """
        is_open = machine["state"] in OPEN
        rows = [(*change, number, device) for device, change in sorted(changes.items())]

        def act() -> str:
            wishes = self._it.execute("SELECT wish FROM rollouts WHERE id = ?", (number,))
            self._it.execute(
                "UPDATE rollouts SET machine = ?, state = ?, served = ?, wish = '' WHERE id = ?",
                (json.dumps(machine), machine["state"], now, number),
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

    # ------------------------------------------------------------ labels

    def unlabelled(self, source: str, most: int) -> list[Row]:
        """Audits without a label of this source, the newest first: device, boot, sequence, received, record."""
        return self.database.read(
            "SELECT r.device, r.boot, r.sequence, r.received, r.record FROM records r WHERE r.kind = 'audit' AND NOT "
            "EXISTS (SELECT 1 FROM labels l WHERE l.device = r.device AND l.boot = r.boot AND l.sequence = r.sequence "
            "AND l.source = ?) ORDER BY r.received DESC LIMIT ?",
            (source, most),
        )

    def label(self, labels: Sequence[tuple[Row, str, bool]], source: str, now: float) -> int:
        """Keep labels of audits, each once; returns how many are new.

        Parameters
        ----------
        labels : of each the row of ``unlabelled``, the label, and whether the device has decided the same
        """
        by_key = {row[:3]: (row, label, agrees) for row, label, agrees in labels}

        def act() -> int:
            minutes: dict[tuple[str, int], list[int]] = {}
            audits: list[Audited] = []
            for key, (row, label, agrees) in sorted(by_key.items()):
                if not self._it.execute(
                    "INSERT INTO labels VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING boot",
                    (*key, source, label, now),
                ):
                    continue
                record = json.loads(row[4])
                bundle = word(record.get("bundle"))
                audits.append((record, bundle, word(str(record.get("label"))[:64]), agrees, row[3]))
                counts = minutes.setdefault((bundle, int(row[3] // 60)), [0, 0])
                counts[0] += 1
                counts[1] += agrees
            rows = [(*key, 0, 0, 0, 0.0, 0, *counts) for key, counts in sorted(minutes.items())]
            self._it.many(MINUTES, rows)
            if source == F0:
                add_audits(self._it, audits)
            return len(audits)

        return self._it.run(act)

    def label_by_person(self, labels: Sequence[tuple[str, int, int, str]], now: float) -> int:
        """Keep what people say of records that are here: device, boot, sequence, label; the last word counts.

        Returns how many of them are here.
        """
        sql = (
            "INSERT INTO labels SELECT device, boot, sequence, ?, ?, ? FROM records WHERE device = ? AND boot = ? AND "
            "sequence = ? ON CONFLICT (device, boot, sequence, source) DO UPDATE SET label = excluded.label, "
            "received = excluded.received RETURNING boot"
        )

        def act() -> int:
            in_order = sorted(labels, key=lambda row: row[:3])  # of one record as they came
            return sum(len(self._it.execute(sql, (PERSON, label, now, *key))) for *key, label in in_order)

        return self._it.run(act)

    def set_aside(self, rows: Sequence[Row], source: str, now: float) -> None:
        """Audits that have no label of this source and never will."""
        sql = "INSERT INTO labels VALUES (?, ?, ?, ?, '', ?) ON CONFLICT DO NOTHING"
        self._it.run(lambda: self._it.many(sql, [(*row[:3], source, now) for row in rows]))

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


def _end_of(facts: str | None) -> tuple[int, str] | None:
    """The number of a start and its facts, if these are its last ones and tell the seed of its audits."""
    if facts is None or '"seed"' not in facts:
        return None
    try:
        fields = json.loads(facts)
    except (ValueError, RecursionError):
        return None
    draws, boot = (fields.get("draws"), fields.get("boot")) if isinstance(fields, dict) else (None, None)
    if not isinstance(draws, dict) or "seed" not in draws or type(boot) is not int or not 0 < boot <= MOST_NUMBER:
        return None
    return boot, json.dumps({key: fields.get(key) for key in ("local", "boot", "draws", "outbox")})
