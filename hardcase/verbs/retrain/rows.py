# SPDX-License-Identifier: Apache-2.0
"""The rows of a retraining: those in the store whose labels count, their weights, and rows of the old table beside.

A person's label always counts. F0's count while f0 is what it was when it was trained: where people have labelled rows
enough, f0's answers to these rows show whether that still holds.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardcase_cloud.keep.records.came_back import CameBack
    from hardcase_edge.bundle.load import Loaded
    from hardcase_edge.bundle.manifest import Manifest

LEAST_ROWS = 200
LEAST_BY_PEOPLE = 30  # rows: fewer tell f0's share of right answers, or a policy's, only to 18 points and more
LEAST_OF_CLASS = 10  # training rows of a class; with fewer, the old table's are taken, with the weight of so many
FALLEN = 0.05  # by which f0's share of right answers has fallen for certain when its labels no longer count
Z = 2.326  # of a one-sided bound at 99 %
ALL, MISSING, NONE = "all", "missing", "none"  # which rows of the old table are learned from


@dataclass(frozen=True)
class OldRows:
    """Rows of the table that the old bundle was trained on; all of them are training rows.

    X : (n, n_carried) readings in the order of a request, NaN for missing
    labels : of each row
    weight : of each row
    filled : of each class of which too few rows came back, how many rows the old table gives
    """

    X: NDArray[np.float64]
    labels: Sequence[Any]
    weight: NDArray[np.float64]
    filled: Mapping[str, int]


@dataclass(frozen=True)
class Rows:
    """What there is to learn from.

    rows : whose labels count
    weights : (n,) how many decisions each of them stands for
    all_rows, all_weights : the same of all that came back
    left_out : rows that only f0 has labelled, whose labels do not count
    f0_right : share of the rows labelled by people that f0 answers so, of ``f0_of`` rows; None if there are few
    f0_was : what that share was when f0 was trained
    f0_has_fallen : whether it is lower now for certain, so that neither f0's labels nor agreement with f0 count
    old : rows of the old table beside them
    """

    rows: list[CameBack]
    weights: NDArray[np.float64]
    all_rows: list[CameBack]
    all_weights: NDArray[np.float64]
    left_out: list[CameBack] = field(default_factory=list)
    f0_right: float | None = None
    f0_of: int = 0
    f0_was: float = 1.0
    f0_has_fallen: bool = False
    old: OldRows | None = None

    @property
    def by_person(self) -> int:
        """How many rows people have labelled."""
        return sum(row.is_by_person for row in self.rows)

    def figures(self) -> dict[str, Any]:
        """What ``--json`` says of them."""
        n, cases = len(self.rows), sum(row.is_case for row in self.rows)
        return {
            "rows": n, "audits": n - cases, "cases": cases, "by_person": self.by_person, "by_f0": n - self.by_person,
            "left_out": len(self.left_out), "f0_right": self.f0_right, "f0_has_fallen": self.f0_has_fallen,
            "old_rows": 0 if self.old is None else len(self.old.labels),
            "filled": {} if self.old is None else dict(self.old.filled),
        }  # fmt: skip

    def lines(self) -> list[str]:
        """What the terminal says of the rows, as text."""
        f = self.figures()
        lines = [
            f"{f['rows']} labelled rows: {f['audits']} audits, {f['cases']} cases; {f['by_person']} labels are "
            f"people's and {f['by_f0']} are f0's"
        ]
        if self.f0_right is not None:
            said = f"f0 is right in {self.f0_right:.1%} of the {self.f0_of} rows that people have labelled"
            gone = f" ({self.f0_was:.1%} when it was trained): {f['left_out']} rows with its label alone are left out"
            lines.append(said + gone * self.f0_has_fallen)
        if self.old is not None and self.old.filled:
            named = ", ".join(f"{n} of {label}" for label, n in sorted(self.old.filled.items()))
            lines.append(f"rows of the old table stand in for classes of which too few came back: {named}")
        return lines


def carried(loaded: Loaded) -> list[str]:
    """The names of the readings of a request, in its order."""
    return [loaded.manifest.features[f] for f in loaded.machine.program.uplink.features]


def read_rows(args: argparse.Namespace, olds: Sequence[Loaded]) -> Rows:
    """The rows of a store that these bundles have sent.

    Raises
    ------
    InputError
        The store cannot be used, has too few rows, or ``--audited`` is missing or not a share above 0.
    """
    from hardcase_cloud.keep.records.came_back import came_back
    from hardcase_cloud.keep.records.database import Database
    from hardcase_edge.program.readings import normalise

    names, manifest, program = [each.bundle.sha256 for each in olds], olds[0].manifest, olds[0].machine.program
    hpc = next((each.manifest.hpc for each in olds if each.manifest.hpc), "")
    database = Database(args.store, makes=False)
    try:
        rows = came_back(
            database, names, hpc, len(carried(olds[0])), [str(c) for c in manifest.classes], most=args.rows,
            per_device=args.per_device,
        )  # fmt: skip
    finally:
        database.close()
    dtypes = [program.features[f].dtype for f in program.uplink.features]  # what a device of this bundle can read
    rows = [replace(row, readings=tuple(normalise(row.readings, dtypes))) for row in rows]
    if args.audited is None and len({row.is_case for row in rows}) == 2:
        raise InputError("the store has audits and cases; say with --audited which share devices audit, such as 5%")
    found = _counting(args, olds[0], rows)
    if len(found.rows) < LEAST_ROWS:
        what = (
            f"f0 is right in only {found.f0_right:.1%} of what people have labelled, so " if found.f0_has_fallen else ""
        )
        remedy = (
            "have people label more (hardcase cloud label --labels)" if found.f0_has_fallen else "let devices audit "
            "(--audit), have f0 answer (hardcase cloud label), and keep cases (hardcase cloud worker --cases)"
        )  # fmt: skip
        raise InputError(
            f"{what}the store has {len(found.rows)} labelled rows of these bundles, and {LEAST_ROWS} are needed; "
            f"{remedy}"
        )
    return found


def _counting(args: argparse.Namespace, old: Loaded, rows: list[CameBack]) -> Rows:
    """The rows whose labels count, with their weights."""
    weights = _weights(args.audited, rows)
    told = [row for row in rows if row.is_by_person]
    if len(told) < LEAST_BY_PEOPLE or args.hpc is None:
        return Rows(rows, weights, rows, weights)
    is_right, was = _f0_right(args, old, told), _was(old.manifest)
    right = sum(is_right) / len(told)
    if _highest_of_all(rows, weights, told, is_right) >= was - FALLEN:
        return Rows(rows, weights, rows, weights, f0_right=right, f0_of=len(told), f0_was=was)
    standing = standing_for(rows, weights, [row.is_by_person for row in rows])
    others = [row for row in rows if not row.is_by_person]
    return Rows(told, standing, rows, weights, others, right, len(told), was, f0_has_fallen=True)


def _weights(audited: str | None, rows: Sequence[CameBack]) -> NDArray[np.float64]:
    """How many decisions each row stands for, (n,)."""
    import numpy as np

    from hardcase_edge.settings.values import parse_share

    share = 1.0 if audited is None else parse_share(audited, "--audited")
    return np.array([1 / row.share if row.is_case else 1 / share for row in rows])


def standing_for(
    rows: Sequence[CameBack], weights: NDArray[np.float64], is_kept: Sequence[bool]
) -> NDArray[np.float64]:
    """Weights of the rows that are kept, (n_kept,), by which they also stand for the others of their kind.

    Audits stand for audits, and cases for cases, where any of the kind are kept: people may have labelled only some.
    """
    import numpy as np

    keep, is_case = np.array(is_kept, bool), np.array([row.is_case for row in rows], bool)
    out: NDArray[np.float64] = weights.copy()
    for kind in (is_case, ~is_case):
        kept = weights[kind & keep].sum()
        if kept:
            out[kind] *= weights[kind].sum() / kept
    return np.asarray(out[keep])


def _f0_right(args: argparse.Namespace, old: Loaded, rows: Sequence[CameBack]) -> list[bool]:
    """Of each of these rows whether f0 answers with its label."""
    from hardcase_cloud.answer.onnx_model import Hpc

    model, labels = Hpc(args.hpc), [str(c) for c in old.manifest.classes]
    answers = model.answer([row.readings for row in rows])
    return [labels[k] == row.label for (k, _), row in zip(answers, rows, strict=True)]


def _was(manifest: Manifest) -> float:
    """F0's share of right answers on the test rows of the old build; 1 if the bundle tells another measure."""
    claims, measure = manifest.claims.get("hpc"), manifest.claims.get("measure")
    share = claims.get("test") if isinstance(claims, dict) else None
    is_accuracy = isinstance(measure, dict) and measure.get("kind") == "accuracy"
    return float(share) if is_accuracy and isinstance(share, int | float) else 1.0


def _highest_of_all(
    rows: Sequence[CameBack], weights: NDArray[np.float64], told: Sequence[CameBack], is_right: Sequence[bool]
) -> float:
    """The highest share of all decisions that f0 may answer right, by the rows that people have labelled.

    Hard cases are not what f0 was tested on, and easy ones are not either: each kind counts by the decisions that it
    stands for, and one of which people have labelled no row as if f0 had all of it right.
    """
    highest = 0.0
    for is_case in (True, False):
        told_so = [ok for row, ok in zip(told, is_right, strict=True) if row.is_case == is_case]
        share = weights[[row.is_case == is_case for row in rows]].sum() / weights.sum()
        highest += share * (_highest(sum(told_so) / len(told_so), len(told_so)) if told_so else 1.0)
    return float(highest)


def _highest(share: float, n: int) -> float:
    """The upper end of a one-sided interval at 99 % of a share of n (Wilson)."""
    centre, half = share + Z * Z / (2 * n), Z * (share * (1 - share) / n + Z * Z / (4 * n * n)) ** 0.5
    return float((centre + half) / (1 + Z * Z / n))


# ---------------------------------------------------------------- the old table


def with_old_rows(found: Rows, args: argparse.Namespace, old: Loaded, path: Any) -> Rows:
    """The rows with those of the old table (``path``) that ``--with-old`` asks for.

    Raises
    ------
    InputError
        They are needed, and the table cannot be used or has none; or they are not wanted, and a class is missing.
    """
    import numpy as np

    from ...measuring.labelled_rows import labelled_rows

    manifest = old.manifest
    n_of = Counter(row.label for row in found.rows if row.part == "train")
    lacking = [c for c in manifest.classes if n_of[str(c)] < LEAST_OF_CLASS]
    if args.with_old == NONE or (args.with_old == MISSING and not lacking):
        if absent := [c for c in lacking if not n_of[str(c)]]:
            raise InputError(
                f"no row of class {str(absent[0])[:60]!r} came back to train on; take those of {path} with --with-old "
                f"{MISSING}, or wait for some"
            )
        return found
    try:
        X, y, _ = labelled_rows(path, manifest, old.machine.program)
    except InputError as error:
        why = (
            f"too few rows of class {str(lacking[0])[:60]!r} came back, and the old table" if lacking else "--with-old"
        )
        raise InputError(f"{why} cannot be used: {error}") from error
    labels = [manifest.classes[k] for k in y.tolist()]
    keep = np.array([args.with_old == ALL or label in lacking for label in labels], bool)
    filled = {str(c): labels.count(c) for c in lacking}
    if absent := [c for c in lacking if not n_of[str(c)] + filled[str(c)]]:
        raise InputError(
            f"no row of class {str(absent[0])[:60]!r} came back, and {path} has none; name the table that the old "
            f"bundle was trained on in [data] file of {args.config}"
        )
    usual = float(np.mean(found.weights))
    of_class = {c: usual * min(1.0, LEAST_OF_CLASS / max(1, filled[str(c)])) for c in lacking}
    weight = np.array([of_class.get(label, float(found.weights.min())) for label in labels])
    columns = [manifest.features.index(name) for name in carried(old)]
    kept = [label for label, wanted in zip(labels, keep, strict=True) if wanted]
    return replace(found, old=OldRows(X[keep][:, columns], kept, weight[keep], {c: n for c, n in filled.items() if n}))
