# SPDX-License-Identifier: Apache-2.0
"""Parts of a program: each slice of scores that a Branch reads is a gate, each that an Answer reads an LPC.

A common policy has one of each. Several are numbered in the order of the program's nodes, stage by stage: ``gate-1``,
``gate-2``, ``lpc-1``. Nodes that read the same slice share a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Answer, Branch, Opaque, Program, Slice, Stack
from hardcase_edge.program.kinds import answers_number

GATE, LPC = "gate", "lpc"
MAX_PARTS = 64


@dataclass(frozen=True, slots=True)
class ScorerPart:
    """A slice of scores that becomes a model of its own.

    ``nodes``: numbers of the nodes that read it. ``inputs``: its features by declared type, in the order of that
    input's columns.
    """

    name: str
    scores: Slice
    nodes: tuple[int, ...]
    inputs: dict[str, tuple[int, ...]]

    @property
    def width(self) -> int:
        """Number of scores."""
        return self.scores.stop - self.scores.start

    def to_json(self, program: Program, manifest: Manifest) -> dict[str, Any]:
        """Description of the model for its users: inputs by name, and how the nodes use the scores."""
        return {
            "inputs": {d: [manifest.features[f] for f in features] for d, features in self.inputs.items()},
            "scores": self.width,
            "nodes": [{"node": k, **_use(program, k, manifest)} for k in self.nodes],
        }


def _use(program: Program, k: int, manifest: Manifest) -> dict[str, Any]:
    node = program.nodes[k]
    if isinstance(node, Branch):
        return {"rule": node.rule, "threshold": node.threshold, "targets": list(node.targets)}
    assert isinstance(node, Answer)
    use = {"kind": node.kind, "margins": list(node.margins), "confidences": list(node.confidences)}
    if not answers_number(node.kind):
        return {**use, "classes": list(manifest.classes)}
    return use if manifest.value is None else {**use, "steps": manifest.value.steps - node.shift}


def parts_of(program: Program) -> list[ScorerPart]:
    """The parts of a program, gates first.

    Raises
    ------
    InputError
        The program has more than ``MAX_PARTS``.
    """
    readers: dict[tuple[str, Slice], list[int]] = {}
    for k, node in enumerate(program.nodes):
        if isinstance(node, Branch | Answer):
            readers.setdefault((GATE if isinstance(node, Branch) else LPC, node.scores), []).append(k)
    if len(readers) > MAX_PARTS:
        raise InputError(
            f"the program reads {len(readers)} slices of scores, but at most {MAX_PARTS} become models of their own; "
            "pick another point with --method"
        )
    parts = []
    for role in (GATE, LPC):
        slices = [scores for kind, scores in readers if kind == role]
        for number, scores in enumerate(slices, 1):
            name = role if len(slices) == 1 else f"{role}-{number}"
            parts.append(ScorerPart(name, scores, tuple(readers[role, scores]), _inputs(program, scores)))
    return parts


def _inputs(program: Program, scores: Slice) -> dict[str, tuple[int, ...]]:
    """The features that the scorer reads, by declared type; if it reads none, the program's first feature."""
    scorer = program.scorers[scores.scorer]
    if isinstance(scorer, Stack):
        scorer = program.scorers[scorer.trees]
    if isinstance(scorer, Opaque):
        return {"f32": scorer.features}  # a TFLite model takes float32, whatever the declared types
    features = sorted({program.columns[c].feature for c in scorer.columns}) or [0]  # type: ignore[union-attr]
    return {
        dtype: tuple(f for f in features if program.features[f].dtype == dtype)
        for dtype in ("f32", "f64", "i32")
        if any(program.features[f].dtype == dtype for f in features)
    }
