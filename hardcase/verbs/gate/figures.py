# SPDX-License-Identifier: Apache-2.0
"""What ``hardcase gate`` shows: the front without f0, and how right each API alone is on the test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardcase_edge.bundle.load import load_bundle
from hardcase_export.drafts.rows import read_rows
from hardcase_export.integers.parity import LocalAnswers
from hardcase_export.picking.audit_claim import at_least
from hardcase_export.picking.risk_choice import RiskTerms
from hardcase_export.picking.risk_test import Counts

from ...gate.answers import LABEL, Log
from ...gate.file import BUNDLE


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


def agreement_of(out: Path, log: Log, local: LocalAnswers, terms: RiskTerms | None) -> tuple[str, float | None]:
    """The API that audits ask, and the share of the gate's answers with which it agrees at least.

    It is the one that stands in for the truth, or the one that is right most often in the log. If the gate promises at
    most a share of wrong answers, the two can differ by that share, and by the share in which the gate is right and the
    reference wrong, which is none where it stands in for the truth. If it promises something else, or nothing, the
    share is that of the test rows. Both are measured as the exporter measures what devices audit.

    Parameters
    ----------
    local : what the gate answers to the test rows
    """
    right = {
        name: sum(str(a) == str(b) for a, b in zip(labels, log.truth, strict=True))
        for name, labels in log.labels.items()
    }
    reference, manifest = log.stands_in or max(right, key=lambda name: right[name]), load_bundle(out / BUNDLE).manifest
    rows, column = read_rows(out / "build" / "test.npz", manifest), manifest.features.index(reference + LABEL)
    texts, classes = manifest.categories[reference + LABEL], [str(label) for label in manifest.classes]
    said = [(k, int(answer), rows.X[k, column]) for k, answer in zip(local.rows, local.answers, strict=True)]
    answers = [(classes[k], texts[int(code)], classes[int(rows.y[row])]) for row, k, code in said if code == code]
    if terms is None or terms.is_excess:
        return reference, _share([own != other for own, other, _ in answers])
    spared = 1.0 if log.stands_in else _share([own == truth != other for own, other, truth in answers])
    share = None if spared is None else spared - terms.risk
    return reference, share if share is not None and 0 < share < 1 else None


def _share(differs: Sequence[bool]) -> float | None:
    """How often they do not, at least."""
    n = len(differs)
    return at_least(Counts(n, n, sum(differs), sum(differs), 0))
