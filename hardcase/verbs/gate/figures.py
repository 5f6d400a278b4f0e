# SPDX-License-Identifier: Apache-2.0
"""What ``hardcase gate`` shows: the front without f0, and how right each API alone is on the test rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardcase_edge.base.betting import interval
from hardcase_edge.bundle.load import load_bundle
from hardcase_export.drafts.rows import read_rows

from ...api.loaded import load
from ...gate.answers import LABEL, Log
from ...gate.file import BUNDLE

__all__ = ["agreement_of", "alone_of", "classes_of", "front_of"]


def front_of(points: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The points that none beats on judged rows, of rising price, without f0, which nobody asks."""
    out: list[Mapping[str, Any]] = []
    own = [p for p in points if p["method"] != "hpc"]
    for p in sorted(own, key=lambda p: (p["valid"]["cost"], -p["valid"]["quality"])):
        if not out or p["valid"]["quality"] > out[-1]["valid"]["quality"]:
            out.append({key: p[key] for key in ("method", "valid", "test")})
    return out


def classes_of(out: Path) -> tuple[str | int, ...]:
    """The classes of the bundle."""
    return tuple(c for c in load_bundle(out / BUNDLE).manifest.classes if isinstance(c, str | int))


def alone_of(out: Path, log: Log) -> dict[str, dict[str, float]]:
    """Of each API alone, the share of test rows that it labels rightly, and its price."""
    manifest = load_bundle(out / BUNDLE).manifest
    rows, names = read_rows(out / "build" / "test.npz", manifest), list(manifest.features)
    found: dict[str, dict[str, float]] = {}
    truth = [str(manifest.classes[int(k)]) for k in rows.y]
    for api in log.apis:
        texts = dict(enumerate(manifest.categories.get(api.name + LABEL, ())))
        codes: list[float] = rows.X[:, names.index(api.name + LABEL)].tolist() if texts else []
        right = [texts.get(int(code)) == y for code, y in zip(codes, truth, strict=False) if code == code]
        found[api.name] = {"accuracy": sum(right) / len(truth), "price": api.price}
    return found


def agreement_of(out: Path, log: Log) -> tuple[str, float | None]:
    """The API that audits ask, and the share of the test rows on which it agrees with the gate at least.

    It is the one that stands in for the truth, or the one that is right most often in the log. The share is the lower
    bound, at 95 %, of an interval that holds however many rows there are; None if that is none.
    """
    right = {
        name: sum(str(a) == str(b) for a, b in zip(labels, log.truth, strict=True))
        for name, labels in log.labels.items()
    }
    reference, gate = log.stands_in or max(right, key=lambda name: right[name]), load(out / BUNDLE, coin_seed=0)
    manifest = load_bundle(out / BUNDLE).manifest
    texts, names = manifest.categories, list(manifest.features)
    rows, n, agreed = read_rows(out / "build" / "test.npz", manifest), 0, 0
    for row in rows.X.tolist():
        values = dict(zip(names, row, strict=True))
        given = {
            f: None if x != x else texts[f][int(x)] if f in texts else x
            for f, x in values.items()
            if f.partition(".")[0] not in gate._inner
        }
        said = given.get(reference + LABEL)
        if said is not None:
            n, agreed = n + 1, agreed + (str(gate.decide(given).label) == said)
    low = interval(n, agreed)[0] if n else 0.0
    return reference, float(low) if 0 < low < 1 else None
