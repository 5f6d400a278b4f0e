# SPDX-License-Identifier: Apache-2.0
"""From a trained chain to a joint bundle: integers, confidences, golden items, agreement with the floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardcase_edge.bundle.file import Bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.joint.definition import FEATURES, ROUND, Joint
from hardcase_edge.joint.golden import JointCase, run_item
from hardcase_edge.joint.machine import open_joint
from hardcase_edge.joint.prove import JointReport, verify_joint
from hardcase_edge.joint.session import JointDecision, JointMachine
from hardcase_edge.program.cost import start_of, to_unit
from hardcase_edge.program.definition import FREE, Costs
from hardcase_edge.program.inner import DECODER

from ..drafts.costs import Origins
from ..publish import check_out, checked, publish_bytes
from .atypical import Scored, with_scores
from .decide import decide_rows
from .model import ChainModel, decide_floats
from .quantise import Asking, Integers, quantise_chain

MOST_STEPS = 8
LEAST_ROWS = 30  # of a step, so that its share is known to about 9 points


@dataclass(frozen=True)
class Agreement:
    """How a joint program decides beside its float model on the same items, without budget and failures."""

    parts: int
    same_labels: float  # share of parts
    same_purchases: float
    right: float  # share of parts whose integer label is the true one
    right_floats: float
    bought: float  # share of parts for which the second sensor was bought


@dataclass(frozen=True)
class ExportedChain:
    """A joint bundle that was made, and written if ``path`` is not None."""

    path: Path | None
    data: bytes
    report: JointReport
    agreement: Agreement
    scale: float


def export_chain(
    model: ChainModel, train: Sequence[np.ndarray], valid: Sequence[np.ndarray], valid_labels: Sequence[np.ndarray], *,
    name: str, unit: str, max_parts: int, out: str | Path | None = None, key: bytes | None = None,
    weight_bits: int = 8, asking: Asking | None = None, hpc: str = "", n_golden: int = 6, golden_parts: int = 3,
    force: bool = False, target: str = "label", trained: dict[str, Any] | None = None, atypical: float | None = None,
    costs: Costs = FREE, origins: Origins | None = None,
) -> ExportedChain:  # fmt: skip
    """Make a joint bundle of a chain, and write it.

    Parameters
    ----------
    train : items of (parts, columns) from which the integers' ranges come
    valid, valid_labels : held-out items and their labels' numbers, for confidences and agreement
    max_parts : longer items are refused by the device
    asking, hpc : None and "": nothing is forwarded; otherwise the SHA-256 of the model in the cloud
    n_golden, golden_parts : golden items, and the most parts of one
    target : column of a CSV file that has the labels of parts
    costs : in micro-units, those beside the sensors'
    origins : where costs are from; None: nobody says
    atypical : share of the held-out parts at each Answer that count as atypical, whose confidence is lower; None: parts
        have no such score

    Raises
    ------
    InputError
        There are no items, too few parts for the score of atypical ones, or the file may not be written.
    BundleError
        A device would refuse the bundle.
    """
    if not train or not valid:
        raise InputError("a chain is exported with items to take ranges from and items to measure on; give both")
    check_out(out, force)
    features: list[np.ndarray] = []
    for item in train:
        decide_floats(model, item, features)
    integers = quantise_chain(
        model, np.concatenate(train), np.concatenate(features), max_parts=max_parts, weight_bits=weight_bits,
        asking=asking,
        costs=costs,
    )  # fmt: skip
    report = verify_joint(integers.part, integers.joint)  # before anything runs it
    integers = replace(integers, joint=_with_tables(integers, valid, valid_labels))
    scored = Scored(integers.part)
    if atypical is not None:
        scored = with_scores(integers, train, valid, valid_labels, atypical)
        integers = replace(integers, part=scored.part)
        report = verify_joint(integers.part, integers.joint)
    machine = open_joint(integers.part, integers.joint, outlines=report.part.outlines)
    measured = agreement(model, machine, valid, valid_labels)
    pieces = [item[: min(golden_parts, max_parts)] for item in valid]
    manifest = _manifest(model, name, unit, hpc, measured, target, trained or {})
    manifest = replace(manifest, atypical=scored.branches, claims=manifest.claims | scored.claims)
    manifest = manifest if origins is None else replace(manifest, claims=manifest.claims | {"costs": origins.to_json()})
    bundle = Bundle(
        manifest.to_json(), integers.part, (),
        joint=integers.joint, items=_golden(model, machine, pieces, n_golden),
    )  # fmt: skip
    data, _ = checked(bundle)
    path = None if out is None else Path(out)
    if path is not None:
        publish_bytes(data, path, key)
    return ExportedChain(path, data, report, measured, integers.scale)


def agreement(
    model: ChainModel, machine: JointMachine, items: Sequence[np.ndarray], labels: Sequence[np.ndarray]
) -> Agreement:
    """Compare the two on every item that is not too long."""
    n = same = purchases = right = right_floats = bought = 0
    for item, truth in zip(items, labels, strict=True):
        if len(item) > machine.joint.max_parts:
            continue
        a, b = decide_floats(model, item), decide_rows(machine, item, cloud=False)
        buys = np.array([1 in p.sensors for p in b.parts])
        n += len(item)
        same += int((a.labels == b.labels).sum())
        purchases += int((a.bought == buys).sum())
        right += int((truth == b.labels).sum())
        right_floats += int((truth == a.labels).sum())
        bought += int(buys.sum())
    if not n:
        raise InputError(f"no item has at most {machine.joint.max_parts} parts; allow more")
    return Agreement(n, same / n, purchases / n, right / n, right_floats / n, bought / n)


def _with_tables(integers: Integers, items: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> Joint:
    """The joint record with confidences over the gaps of held-out items."""
    joint = integers.joint
    probe = open_joint(integers.part, replace(joint, margins=(2**31 - 1,), confidences=(0, 1)))
    gaps: list[int] = []
    right: list[bool] = []
    least: list[int] = []
    all_right: list[bool] = []
    for item, truth in zip(items, labels, strict=True):
        if len(item) > joint.max_parts:
            continue
        session_gaps, decided = gaps_of(probe, item)
        gaps += session_gaps
        right += (truth == decided).tolist()
        least.append(min(session_gaps))
        all_right.append(bool((truth == decided).all()))
    if not gaps:
        return joint
    margins, confidences = table_of(gaps, right)
    item_margins, item_confidences = table_of(least, all_right)
    return replace(
        joint, margins=margins, confidences=confidences, item_margins=item_margins, item_confidences=item_confidences
    )


class _Watch:
    """Decodes as a chain does, and keeps the last gaps."""

    def __init__(self, chain: Any) -> None:
        self._chain, self.gaps = chain, list[int]()

    def decode(self, scores: Any, fixed: Any, with_gaps: bool = True) -> tuple[list[int], list[int]]:
        labels, self.gaps = self._chain.decode(scores, fixed, with_gaps)
        return labels, self.gaps


def gaps_of(machine: JointMachine, item: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The gaps and labels at the end of an item."""
    watch = _Watch(machine.chain)
    decision = decide_rows(JointMachine(machine.joint, machine.machine, watch), item, cloud=False)
    return watch.gaps, np.array(decision.labels)


def _manifest(
    model: ChainModel, name: str, unit: str, hpc: str, measured: Agreement, target: str, trained: dict[str, Any]
) -> Manifest:
    inner = (*FEATURES, *(ROUND,) * (len(model.later) > 0))
    return Manifest(
        name=name,
        unit=unit,
        features=(*model.cheap.features, *model.dear.features, *(f"{DECODER}.{f}" for f in inner)),
        sensors=(model.cheap.name, model.dear.name, DECODER),
        classes=model.labels,
        target=target,
        hpc=hpc,
        claims={
            "parts": measured.parts,
            "right": round(measured.right, 4),
            "bought": round(measured.bought, 4),
            "agreement": round(measured.same_labels, 4),
        },
        trained=trained,
    )


def _golden(model: ChainModel, machine: JointMachine, pieces: Sequence[np.ndarray], n: int) -> tuple[JointCase, ...]:
    """Short pieces of held-out items: plain, with a tight budget, with failures, and with replies."""
    a, b = (to_unit(s.cost[0]) for s in machine.program.sensors[:2])
    cases = []
    for k in range(min(n, len(pieces))):
        piece = pieces[k * len(pieces) // n]
        parts = len(piece)
        rows = tuple(tuple(_plain(x) for x in row) for row in piece.tolist())
        failed = tuple((k // 3 % 2,) if k >= 2 and p == k % parts else () for p in range(parts))
        budget = start_of(machine.program.costs) + round((a * parts + b) * 1e6) if k % 3 == 1 else None
        replies = tuple((k % len(model.labels), 9000) if (p + k) % 2 else None for p in range(parts))
        case = JointCase(rows, failed, budget, 1, True, replies, JointDecision((), 0, "local", 0, 0))
        cases.append(replace(case, expected=run_item(machine, case)))
    return tuple(cases)


def _plain(x: float) -> float:
    return int(x) if x == int(x) else float(np.float32(x))


# Confidence tables over gaps: how often a label with at least this gap was right on held-out items.


def table_of(gaps: Sequence[int], right: Sequence[bool]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Margins and confidences in basis points, of the gaps of held-out parts or items and whether they were right.

    Steps have equally many gaps; neighbours whose confidence would fall are pooled.
    A confidence is (right + 1) / (n + 2).

    >>> table_of([1] * 30 + [9] * 30, [False] * 30 + [True] * 30)
    ((9,), (312, 9687))
    """
    order = np.argsort(gaps, kind="stable")
    values, hits = np.asarray(gaps)[order], np.asarray(right, dtype=np.int64)[order]
    n_steps = max(1, min(MOST_STEPS, len(values) // LEAST_ROWS))
    cuts = sorted({int(values[len(values) * s // n_steps]) for s in range(1, n_steps)} - {int(values[0])})
    groups = np.searchsorted(cuts, values, side="right")
    steps = [[int((groups == g).sum()), int(hits[groups == g].sum()), cut] for g, cut in enumerate([-1, *cuts])]
    pooled: list[list[int]] = []
    for n, n_right, cut in steps:
        pooled.append([n, n_right, cut])
        while len(pooled) > 1 and _share(pooled[-1]) <= _share(pooled[-2]):
            last = pooled.pop()
            pooled[-1] = [pooled[-1][0] + last[0], pooled[-1][1] + last[1], pooled[-1][2]]
    return tuple(step[2] for step in pooled[1:]), tuple(int(10_000 * _share(step)) for step in pooled)


def _share(step: Sequence[int]) -> float:
    return (step[1] + 1) / (step[0] + 2)
