# SPDX-License-Identifier: Apache-2.0
"""What the dashboard shows, read from a store: sums of the last hour, devices that changed, roll-outs.

A look costs a few queries whose answers are short: minutes and hours are summed up in the store already, and of the
devices only those are read that have said something since the last look.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hardcase_edge.base.betting import interval
from hardcase_edge.errors import InputError, type_and_line

from ..metrics.families import BudgetFigures, Fleet, PromiseFigures, RolloutFigures
from ..records.database import Database
from ..records.rollouts import OPEN, STATES, Rollouts
from ..records.standing import Standing, standings
from .budgets import Budget, budgets_by_bundle
from .bundles import Bundles, Known
from .facts import SENSORS, facts_of
from .judged import Errors, Judged
from .labelling import Labelling
from .workers import Workers

SHOWN = ("route", "cost", "confidence", "label")  # of each decision of one device; page.js reads them in this order
MINUTES = 60
ROLLOUTS = 8  # that are shown
PAGE = 50  # devices of one page of the list
MOST_RECORDS = 3_600  # of one device
MOST_GROUPS = 32
BUNDLES = 4  # that are shown
DAY_S, HOUR_S = 86_400, 3_600
OVERLAP_S = 2.0  # a device is read again for this long: whoever writes the store may have another clock
ORDER = ("no bundle", "offline", "rolled back", "refused", "trial", "loading", "good")  # what needs a look comes first
ONLINE = "online"  # any state but offline
MOST_WHY = 300  # characters of a reason
COMMON = 3  # devices from which on sensors that nearly all of them suspect have one cause
NEARLY = 0.8  # of those that watch for drift


@dataclass(frozen=True, slots=True)
class _Device:
    state: str
    bundle: str
    seen: float
    asked: int
    forwarded: int
    is_broken: bool = False  # the promise of its bundle, as it says
    suspects: tuple[str, ...] = ()  # sensors that fail slowly, as it says
    why: str = ""  # for its state, as it says
    is_online: bool = False
    watches: bool = False  # whether it looks for drift
    budget: Budget | None = None


class Figures:
    """The figures of one store, and of the workers that somebody has named.

    Attributes
    ----------
    trouble : str
        Why the store cannot be read now; "" if it can.
    since : float
        Wall time since when that is so.
    """

    def __init__(self, database: Database, workers: Workers | None = None, bundles: Sequence[Known] = ()) -> None:
        self._database, self._workers = database, workers
        self.rollouts = Rollouts(database)
        self._bundles = Bundles(database, bundles)
        self._judged = Judged(database, self._bundles.f0_label)
        self.labelling = Labelling(database, self._bundles, self._judged)
        self._devices: dict[str, _Device] = {}
        self._in_order: list[str] | None = None  # names of all devices, those that need a look first; None: not known
        self._seen = 0.0
        self._last: dict[str, Any] = {}
        self.trouble, self.since = "", 0.0

    def look(self, now: float) -> dict[str, Any]:
        """Everything that the page shows; while the store cannot be read, the last look, and since when.

        A mistake in the figures themselves is told there, too: otherwise they would stand still and look alive.
        """
        try:
            self._last = self._look(now)
            self.trouble = ""
        except Exception as error:
            self.since = self.since if self.trouble else now
            self.trouble = str(error) if isinstance(error, InputError) else type_and_line(error)
        store = {"name": self._database.dialect.name, "trouble": self.trouble, "since": self.since}
        return {**self._last, "store": store, "workers": None if self._workers is None else self._workers.look()}

    def devices(self, text: str, state: str, page: int) -> dict[str, Any]:
        """A page of the devices whose id contains a text, those that need a look first; ``state`` "" is any."""
        devices, part, order = self._devices, text.lower(), self._in_order
        if order is None:
            known = list(devices.items())  # at once: another thread may be reading the store
            known.sort(key=lambda pair: (ORDER.index(pair[1].state), pair[0]))
            order = self._in_order = [name for name, _ in known]
        found = [d for d in order if part in d.lower() and _is_in(devices[d], state)]
        rows = [
            [d, (it := devices[d]).state, self._bundles.title(it.bundle), it.seen, it.asked, it.forwarded, it.why]
            for d in found[page * PAGE : (page + 1) * PAGE]
        ]
        return {"n": len(found), "page": page, "rows": rows}

    def device(self, name: str, now: float) -> dict[str, Any]:
        """The last hour of one device: of each decision its time of arrival, route, cost, confidence and label."""
        rows = self._database.read(
            "SELECT received, kind, record FROM records WHERE device = ? AND received > ? "
            "ORDER BY boot DESC, sequence DESC LIMIT ?",
            (name, now - HOUR_S, MOST_RECORDS),
        )
        decisions = [(received, json.loads(text)) for received, kind, text in reversed(rows) if kind == "decision"]
        known = self._devices.get(name)
        return {
            "device": name,
            "state": known.state if known else "",
            "errors": self._judged.by_device.get(name, Errors()).to_json(),
            "facts": self._facts(name),
            "rows": [[t, *(_plain(r.get(key)) for key in SHOWN)] for t, r in decisions],
        }

    def _facts(self, name: str) -> dict[str, Any]:
        """What a device says of itself, as far as it fits: bounded, and checked by ``facts_of``."""
        self._bundles.renew()
        rows = self._database.read("SELECT bundle, facts FROM devices WHERE device = ?", (name,))
        groups = self._database.read(
            "SELECT name FROM members WHERE device = ? ORDER BY 1 LIMIT ?", (name, MOST_GROUPS)
        )
        said = facts_of(rows[0][1]) if rows else {}
        said.pop("budget", None)  # the page has the sums
        return {**said, "bundle": self._bundles.title(rows[0][0]) if rows else "", "groups": [row[0] for row in groups]}

    def fleet(self, now: float) -> Fleet:
        """The sums for Prometheus. Raises ``InputError`` if the store cannot be read."""
        self._bundles.renew()
        self._judged.renew()
        self._read_devices(now)
        sums = self._database.read(
            "SELECT COALESCE(SUM(decisions), 0), COALESCE(SUM(forwarded), 0), COALESCE(SUM(degraded), 0), "
            "COALESCE(SUM(cost), 0), COALESCE(SUM(labelled), 0), COALESCE(SUM(agreed), 0) FROM minutes"
        )[0]
        counts = self._instances()
        rollouts = [
            RolloutFigures(
                r.id, r.bundle[:12], r.members, r.state, counts.get(r.id, {}), max(0.0, now - (r.served or r.began))
            )
            for r in self.rollouts.rollouts()[:ROLLOUTS]
        ]
        n, forwarded, degraded, labelled, agreed = (int(x) for x in (*sums[:3], *sums[4:]))
        devices = self._by_state()
        broken, suspects = self._said()
        promises = {
            (s.bundle[:12], s.label): PromiseFigures(s.bundle[:12], s.label, s.state, *s.interval)
            for s in self._standings()
        }
        return Fleet(
            devices, n, forwarded, degraded, float(sums[3]), labelled, agreed, rollouts, STATES, OPEN,
            promises=[*promises.values()],
            broken=broken, suspects=suspects, budgets=self._budgets(),
            judged=(self._judged.all.n - self._judged.all.wrong, self._judged.all.wrong),
        )  # fmt: skip

    # ------------------------------------------------------------ parts

    def _look(self, now: float) -> dict[str, Any]:
        self._bundles.renew()
        self._judged.renew()
        self._read_devices(now)
        by_bundle = Counter(it.bundle for it in self._devices.values())
        return {
            "fleet": {
                "devices": len(self._devices),
                "online": sum(it.is_online for it in self._devices.values()),
                "states": sorted(self._by_state().items(), key=lambda x: ORDER.index(x[0]) if x[0] in ORDER else 9),
                "bundles": [[self._bundles.title(bundle), n] for bundle, n in by_bundle.most_common(5)],
            },
            "minutes": self._minutes(now),
            "errors": self._errors(),
            "agreement": self._agreement(now),
            "promises": self._promises(),
            "budgets": self._plans(),
            "drift": self._drift(now),
            "rollouts": self._rollouts(now),
        }

    def _read_devices(self, now: float) -> None:
        if now < self._seen:  # the clock was set back: what devices say from now on looks older than what is known
            self._seen = 0.0
        rows = self._database.read(
            "SELECT device, is_online, bundle, state, facts, seen FROM devices WHERE seen > ?",
            (self._seen - OVERLAP_S,),
        )
        for device, is_online, bundle, state, facts, seen in rows:
            self._seen = max(self._seen, min(seen, now))  # another keeper's clock may be ahead
            self._devices[device] = _device(bool(is_online), bundle, state, facts, seen)
        if rows:
            self._in_order = None

    def _by_state(self) -> Counter[str]:
        return Counter({"good": 0, "offline": 0}) + Counter(it.state for it in self._devices.values())

    def _minutes(self, now: float) -> dict[str, list[Any]]:
        """By minute of the last hour: decisions, share forwarded, and mean cost; None where there were none."""
        last = int(now // 60)
        rows = self._database.read(
            "SELECT minute, SUM(decisions), SUM(forwarded), SUM(cost) FROM minutes WHERE minute > ? GROUP BY minute",
            (last - MINUTES,),
        )
        by_minute = {int(row[0]): row for row in rows}
        columns: dict[str, list[Any]] = {"time": [], "decisions": [], "forwarded": [], "cost": []}
        for minute in range(last - MINUTES + 1, last + 1):
            _, n, forwarded, cost = by_minute.get(minute, (0, 0, 0, 0.0))
            columns["time"].append(minute * 60)
            columns["decisions"].append(int(n))
            columns["forwarded"].append(round(int(forwarded) / int(n), 4) if n else None)
            columns["cost"].append(round(float(cost) / int(n), 6) if n else None)
        return columns

    def _agreement(self, now: float) -> list[dict[str, Any]]:
        """Of each bundle with audits of the last day: how many, on how many both agree, and the interval."""
        rows = self._database.read(
            "SELECT bundle, SUM(labelled), SUM(agreed) FROM minutes WHERE minute > ? GROUP BY bundle "
            "HAVING SUM(labelled) > 0 ORDER BY 2 DESC LIMIT 4",
            (int((now - DAY_S) // 60),),
        )
        out = []
        for bundle, n, k in rows:
            low, high = interval(int(n), int(k))
            out.append(
                {
                    "bundle": self._bundles.title(bundle),
                    "n": int(n),
                    "agreed": int(k),
                    "low": round(low, 4),
                    "high": round(high, 4),
                }
            )
        return out

    def _errors(self) -> dict[str, Any]:
        """How often answers are wrong by the labels of people: of all devices, of the bundles with most, and of f0."""
        most = sorted(self._judged.by_bundle.items(), key=lambda x: (-x[1].n, x[0]))[:BUNDLES]
        return {
            "all": self._judged.all.to_json(), "by_f0": self._judged.by_f0.to_json(),
            "bundles": [[self._bundles.title(bundle), errors.to_json()] for bundle, errors in most],
        }  # fmt: skip

    def _standings(self) -> list[Standing]:
        """Those of the bundles with most audits."""
        by_bundle: dict[str, list[Standing]] = {}
        for standing in standings(self._database):
            by_bundle.setdefault(standing.bundle, []).append(standing)
        most = sorted(by_bundle.values(), key=lambda some: -some[0].n)[:BUNDLES]
        return [standing for some in most for standing in some]

    def _promises(self) -> dict[str, Any]:
        """How promises stand by audits, which classes have moved, and what devices say of themselves."""
        rows = []
        for s in self._standings():
            low, high = s.interval
            rows.append({
                "bundle": self._bundles.title(s.bundle), "label": s.label[:64], "n": s.n, "agreed": s.agreed,
                "low": round(low, 4), "high": round(high, 4), "promised": s.promised, "state": s.state,
                "since": s.since,
            })  # fmt: skip
        broken, suspects = self._said()
        n_watch = sum(it.watches for it in self._devices.values())
        in_order = sorted(suspects.items(), key=lambda x: (-x[1], x[0]))
        common = [name for name, n in in_order if n >= max(COMMON, NEARLY * n_watch)]
        return {"rows": rows, "broken": broken, "suspects": in_order, "common": common, "watch": n_watch}

    def _said(self) -> tuple[int, dict[str, int]]:
        """How many devices call their promise broken, and how many suspect each sensor, of those named most."""
        devices = list(self._devices.values())
        suspects = Counter(name for it in devices for name in it.suspects)
        return sum(it.is_broken for it in devices), dict(suspects.most_common(SENSORS))

    def _budgets(self) -> list[BudgetFigures]:
        """Running budgets, by the bundles with most of them."""
        devices = self._devices.values()
        return budgets_by_bundle([(it.bundle, it.budget) for it in devices if it.budget is not None], BUNDLES)

    def _plans(self) -> list[dict[str, Any]]:
        """Running budgets for the page: what is planned, and apart from that where forwards alone are limited."""
        budgets = [(it.bundle, it.budget) for it in self._devices.values() if it.budget is not None]
        parts = (
            ("plan", [b for b in budgets if b[1].plan_per_hour]),
            ("forwards", [b for b in budgets if not b[1].plan_per_hour]),
        )
        return [
            asdict(b) | {"bundle": self._bundles.title_of(b.bundle), "kind": kind}
            for kind, some in parts
            for b in budgets_by_bundle(some, BUNDLES)
        ]

    def _drift(self, now: float) -> dict[str, Any]:
        """How far the labels of the last full hour are from those of the day before: total variation, 0 to 1."""
        hour = int(now // HOUR_S)
        rows = self._database.read(
            "SELECT label, hour, SUM(n) FROM answers WHERE hour > ? AND hour < ? GROUP BY label, hour",
            (hour - 26, hour),
        )
        recent: Counter[str] = Counter()
        before: Counter[str] = Counter()
        for label, at, n in rows:
            (recent if at == hour - 1 else before)[label] += int(n)
        return {"recent": recent.total(), "before": before.total(), "distance": _distance(recent, before)}

    def _instances(self) -> dict[int, dict[str, int]]:
        rows = self._database.read("SELECT rollout, state, COUNT(*) FROM instances GROUP BY rollout, state")
        counts: dict[int, dict[str, int]] = {}
        for number, state, n in rows:
            counts.setdefault(int(number), {})[state] = int(n)
        return counts

    def _rollouts(self, now: float) -> list[dict[str, Any]]:
        counts = self._instances()
        out = []
        for row in self.rollouts.rollouts()[:ROLLOUTS]:
            machine = json.loads(row.machine)
            plan = machine.get("plan", {})
            out.append({
                "id": row.id, "bundle": self._bundles.title(row.bundle), "group": row.members, "state": row.state,
                "wish": row.wish, "reason": machine.get("reason", ""), "began": row.began, "is_open": row.state in OPEN,
                "is_served": now - (row.served or row.began) < 10,
                "budget": plan.get("budget"), "agreement": plan.get("agreement"),
                "devices": [[state, counts.get(row.id, {}).get(state, 0)] for state in STATES],
            })  # fmt: skip
        return out


def _is_in(it: _Device, state: str) -> bool:
    return state in ("", it.state) or (state == ONLINE and it.is_online)


def _device(is_online: bool, bundle: str, state: str, text: str, seen: float) -> _Device:
    said = facts_of(text)
    update, failed = said["update"], said["failed"]
    word, why = state or "good", ""
    if state == "none":
        word, why = "no bundle", said["why"]
    elif update is not None and update["state"] in ("loading", "paused"):
        word = "loading"
    elif update is not None and update["state"] == "refused":
        word, why = "refused", update["reason"]
    elif failed is not None:
        word, why = "rolled back", failed["reason"]
    if not is_online:
        word = "offline"
    return _Device(
        word if word in ORDER else "good", bundle, seen, said["asked"], max(0, said["asked"] - said["local"]),
        said["is_broken"], tuple(said["suspects"]), why, is_online, said["watches"], said["budget"],
    )  # fmt: skip


def _distance(a: Counter[str], b: Counter[str]) -> float | None:
    if not a.total() or not b.total():
        return None
    labels: Sequence[str] = sorted(set(a) | set(b))
    return round(sum(abs(a[x] / a.total() - b[x] / b.total()) for x in labels) / 2, 4)


def _plain(value: Any) -> Any:
    """A number or a short text; everything else is null: records are whatever devices send."""
    if type(value) in (int, float) and abs(value) < 1e15:
        return value
    return value[:64] if isinstance(value, str) else None
