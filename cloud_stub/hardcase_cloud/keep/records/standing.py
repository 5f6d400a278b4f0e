# SPDX-License-Identifier: Apache-2.0
"""How each bundle's promise stands by its audits, over all of them and by the class that devices have answered.

An audit is counted in the transaction that keeps its label, unless its decision was made at a higher price than the
shipped one, at which the bundle promises nothing. Each bundle that promises a share has one test for all of
its audits, and one for each class of which the bundle promises a share (``hardcase_edge/base/change.py``); all tests of
a bundle together call a promise broken that holds with probability ``ALPHA`` at most, over its whole life.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from hardcase_edge.base.betting import interval, log_wealth
from hardcase_edge.base.change import Change
from hardcase_edge.bundle.agreement import above_shipped, promised_share

from .database import Database
from .dialects import Dialect

ALPHA = 0.05
DELTA = 0.05  # probability at most that a promise is said to hold that does not
ALL = ""  # stands for the audits of all classes
MOST_CLASSES = 64  # of a bundle; audits of further ones count for all alone

Audited = tuple[Mapping[str, Any], str, str, bool, float]  # record; of it bundle and answer; f0 agrees, when it came


@dataclass(frozen=True, slots=True)
class Standing:
    """One bundle and class."""

    bundle: str
    label: str  # ALL, or a class
    n: int
    agreed: int
    promised: float | None
    since: float | None  # wall time at which it is most likely to have broken

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the agreement that hold at all times at once, with 95 % confidence."""
        return interval(self.n, self.agreed)

    @property
    def state(self) -> str:
        """``broken``, ``holds``, ``not yet enough`` or, where nothing is promised, ``not promised``."""
        if self.promised is None:
            return "not promised"
        if self.since is not None:
            return "broken"
        is_shown = log_wealth(self.n, self.agreed, self.promised) >= -log(DELTA)
        return "holds" if is_shown else "not yet enough"


def promise(database: Database, bundle: str, claims: Mapping[str, Any], shipped: int | None = None) -> None:
    """Note what a bundle's manifest promises; what is noted already stays.

    Parameters
    ----------
    shipped : level of the bundle's prices at which it promises that; None: it has no prices

    Raises
    ------
    InputError
        The store cannot be used.
    """
    share = promised_share(claims)
    if share is None:
        return
    classes = claims["audits"].get("classes")
    named = classes if isinstance(classes, dict) else {}
    shares = {str(k): x for k, x in sorted(named.items())[:MOST_CLASSES] if type(x) is float and 0 < x < 1}
    rows = [(bundle, ALL, share, ALPHA / 2 if shares else ALPHA, shipped)]
    rows += [(bundle, label, x, ALPHA / 2 / len(shares), shipped) for label, x in shares.items() if label]
    it = database.dialect
    sql = (
        "INSERT INTO standings (bundle, label, n, agreed, promised, delta, test, since, shipped) "
        "VALUES (?, ?, 0, 0, ?, ?, '', 0, ?) ON CONFLICT (bundle, label) DO UPDATE SET shipped = excluded.shipped, "
        "promised = CASE WHEN standings.promised = 0 THEN excluded.promised ELSE standings.promised END, "
        "delta = CASE WHEN standings.promised = 0 THEN excluded.delta ELSE standings.delta END"
    )
    it.run(lambda: it.many(sql, rows))


def add_audits(it: Dialect, audits: Iterable[Audited]) -> None:
    """Count new audits, in the order in which they came; within ``run``."""
    in_order = sorted(audits, key=lambda a: a[4])
    if in_order and not it.is_sqlite:
        it.execute("SELECT pg_advisory_xact_lock(1751344243)")  # two that label at once take turns
    groups: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    shipped: dict[str, int | None] = {}
    for record, bundle, label, agrees, received in in_order:
        if bundle not in shipped:
            rows = it.execute("SELECT shipped FROM standings WHERE bundle = ? AND label = ?", (bundle, ALL))
            shipped[bundle] = rows[0][0] if rows else None
        if above_shipped(record, shipped[bundle]) <= 0:
            for name in dict.fromkeys((ALL, label[:64])):
                groups.setdefault((bundle, name), []).append((received, agrees))
    counted: dict[str, int] = {}
    for (bundle, label), some in sorted(groups.items()):
        if bundle not in counted:
            counted[bundle] = int(it.execute("SELECT COUNT(*) FROM standings WHERE bundle = ?", (bundle,))[0][0])
        rows = it.execute(
            "SELECT n, agreed, promised, delta, test, since FROM standings WHERE bundle = ? AND label = ?",
            (bundle, label),
        )
        if not rows and label != ALL and counted[bundle] > MOST_CLASSES:
            continue
        counted[bundle] += not rows
        n, agreed, promised, delta, test, since = rows[0] if rows else (0, 0, 0.0, 0.0, "", 0.0)
        if promised and not since:
            test, since = _tested(promised, delta, test, some)
        n, agreed = int(n) + len(some), int(agreed) + sum(agrees for _, agrees in some)
        it.execute(
            "INSERT INTO standings (bundle, label, n, agreed, promised, delta, test, since) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (bundle, label) DO UPDATE SET n = excluded.n, "
            "agreed = excluded.agreed, test = excluded.test, since = excluded.since RETURNING n",
            (bundle, label, n, agreed, promised, delta, test, since),
        )


def _tested(promised: float, delta: float, test: str, audits: Sequence[tuple[float, bool]]) -> tuple[str, float]:
    """The test after these audits, and since when the promise is broken, 0.0 if it is not."""
    change = Change(1 - promised, delta)
    if test:
        change.restore(json.loads(test))
    for received, agrees in audits:
        change.see(float(not agrees), int(received))
    return json.dumps(change.to_json()), float(change.since) if change.is_noticed else 0.0


def standings(database: Database) -> list[Standing]:
    """All of them with an audit, by bundle, the one of all classes first.

    Raises
    ------
    InputError
        The store cannot be used.
    """
    rows = database.read(
        "SELECT bundle, label, n, agreed, promised, since FROM standings WHERE n > 0 ORDER BY bundle, label"
    )
    return [Standing(b, label, int(n), int(k), p or None, since or None) for b, label, n, k, p, since in rows]
