# SPDX-License-Identifier: Apache-2.0
"""What the dashboard knows of bundles: names, releases, classes, and names of readings, from files and from the store.

A file (``--bundle``) tells everything; the store tells of each bundle that a roll-out has brought its name, release,
classes and f0, but not which reading is which.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hardcase_edge.bundle.agreement import promised_share
from hardcase_edge.bundle.load import Loaded

from ..records.database import Database

MOST_CLASSES = 10_000


@dataclass(frozen=True, slots=True)
class Feature:
    """One reading of a request."""

    name: str
    texts: tuple[str, ...] = ()  # of a reading that is the number of a text
    low: float | None = None  # least and greatest of the training rows
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """One bundle."""

    sha256: str
    name: str
    classes: tuple[str, ...] = ()
    hpc: str = ""  # SHA-256 of its f0
    features: tuple[Feature, ...] = ()  # of a request; (): not known
    promised: float | None = None  # share of its answers with which f0 agrees
    release: str = ""  # of the metadata that brought it


def known_of(loaded: Loaded) -> Known:
    """What the file of a bundle tells."""
    manifest, program = loaded.manifest, loaded.machine.program
    features = []
    for f in program.uplink.features:
        low, high = manifest.ranges[f] or (None, None) if manifest.ranges else (None, None)
        name = manifest.features[f]
        features.append(Feature(name, manifest.categories.get(name, ()), low, high))
    return Known(
        loaded.bundle.sha256, manifest.name, tuple(str(c) for c in manifest.classes), manifest.hpc, tuple(features),
        promised_share(manifest.claims),
    )  # fmt: skip


class Bundles:
    """Bundles by their SHA-256 and by their f0's.

    Parameters
    ----------
    files : bundles whose files were named; they come first
    """

    def __init__(self, database: Database, files: Sequence[Known] = ()) -> None:
        self._database = database
        self._files = {known.sha256: known for known in files}
        self._known = dict(self._files)
        self._of_hpc: dict[str, Known] = {}
        self._n = (0, 0.0)
        self._index()

    def renew(self) -> None:
        """Read what roll-outs have brought. Raises ``InputError`` if the store cannot be read."""
        [n] = self._database.read("SELECT COUNT(*), COALESCE(MAX(added), 0.0) FROM bundles")
        if n == self._n:
            return
        for sha256, name, root, targets, manifest in self._database.read(
            "SELECT sha256, name, root, targets, manifest FROM bundles ORDER BY added"
        ):
            of_store = _of_store(sha256, name, f"{root}.{targets}", manifest)
            of_file = self._files.get(sha256)
            self._known[sha256] = replace(of_file, release=of_store.release) if of_file else of_store
        self._n = n
        self._index()

    def of(self, sha256: str) -> Known | None:
        """The bundle of this SHA-256."""
        return self._known.get(sha256)

    def of_record(self, fields: Mapping[str, Any]) -> Known | None:
        """The bundle of a record, or one with the same f0: requests of both are alike."""
        bundle, hpc = fields.get("bundle"), fields.get("hpc")
        known = self._known.get(bundle) if isinstance(bundle, str) else None
        alike = self._of_hpc.get(hpc if isinstance(hpc, str) else known.hpc if known is not None else "")
        if known is None or (alike is not None and not known.features):
            return alike if known is None or alike is None else replace(known, features=alike.features)
        return known

    def f0_label(self, fields: Mapping[str, Any]) -> str | None:
        """The label that f0 gave a forwarded case."""
        result, known = fields.get("result"), self.of_record(fields)
        if known is None or type(result) is not int or not 0 <= result < len(known.classes):
            return None
        return known.classes[result]

    def title(self, sha256: str) -> str:
        """A bundle for people: name, release and first digits, as far as they are known."""
        known = self._known.get(sha256)
        words = [sha256[:12] or "unknown"] if known is None else [known.name[:64], known.release, sha256[:12]]
        return " ".join(w for w in words if w)

    def title_of(self, digits: str) -> str:
        """A bundle for people, by its first 12 digits."""
        return self.title(next((known for known in self._known if digits and known.startswith(digits)), digits))

    def _index(self) -> None:
        by_rank: Iterable[Known] = sorted(self._known.values(), key=lambda known: bool(known.features))
        self._of_hpc = {known.hpc: known for known in by_rank if known.hpc}


def _of_store(sha256: str, name: str, release: str, manifest: str) -> Known:
    try:
        fields = json.loads(manifest)
        classes = tuple(str(c) for c in (fields.get("classes") or ())[:MOST_CLASSES])
        hpc, promised = str(fields.get("hpc") or ""), fields.get("agreement")
    except (ValueError, TypeError, AttributeError, RecursionError):
        classes, hpc, promised = (), "", None
    return Known(sha256, name, classes, hpc, (), promised if type(promised) is float else None, release)
