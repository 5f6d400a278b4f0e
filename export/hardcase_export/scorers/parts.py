"""What a program scores, part by part: each slice that a Branch reads is a gate, each that an Answer reads an LPC.

The common policy has one of each. With more, they are numbered in the order of the program's nodes, stage by stage:
``gate-1``, ``gate-2``, ``lpc-1``. Nodes that read the same slice share a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Answer, Branch, Opaque, Program, Slice, Stack

__all__ = ["GATE", "LPC", "Part", "parts_of"]

GATE, LPC = "gate", "lpc"
MAX_PARTS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A slice to be a model of its own.

    ``nodes`` read it. ``inputs``: the features it takes, by declared type, in the order of each input's columns.
    """

    name: str
    scores: Slice
    nodes: tuple[int, ...]
    inputs: dict[str, tuple[int, ...]]

    @property
    def width(self) -> int:
        """How many scores it gives."""
        return self.scores.stop - self.scores.start

    def to_json(self, program: Program, manifest: Manifest) -> dict[str, Any]:
        """What a reader of the model needs: its inputs by name, and what its nodes do with the scores."""
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
    said = {"kind": node.kind, "margins": list(node.margins), "confidences": list(node.confidences)}
    return {**said, "classes": list(manifest.classes)} if node.kind == "class" else said


def parts_of(program: Program) -> list[Part]:
    """The parts of a program, gates first.

    Raises
    ------
    InputError
        It has more than ``MAX_PARTS``.
    """
    read: dict[tuple[str, Slice], list[int]] = {}
    for k, node in enumerate(program.nodes):
        if isinstance(node, Branch | Answer):
            read.setdefault((GATE if isinstance(node, Branch) else LPC, node.scores), []).append(k)
    if len(read) > MAX_PARTS:
        raise InputError(
            f"the program reads {len(read)} different slices of scores, and at most {MAX_PARTS} are made models of "
            "their own; pick another point with --method"
        )
    out = []
    for role in (GATE, LPC):
        slices = [scores for kind, scores in read if kind == role]
        for number, scores in enumerate(slices, 1):
            name = role if len(slices) == 1 else f"{role}-{number}"
            out.append(Part(name, scores, tuple(read[role, scores]), _inputs(program, scores)))
    return out


def _inputs(program: Program, scores: Slice) -> dict[str, tuple[int, ...]]:
    """The features that the scorer reads, by declared type; the program's first where it reads none."""
    scorer = program.scorers[scores.scorer]
    if isinstance(scorer, Stack):
        scorer = program.scorers[scorer.trees]
    if isinstance(scorer, Opaque):
        return {"f32": scorer.features}  # whatever is declared of them
    features = sorted({program.columns[c].feature for c in scorer.columns}) or [0]  # type: ignore[union-attr]
    return {
        dtype: tuple(f for f in features if program.features[f].dtype == dtype)
        for dtype in ("f32", "f64", "i32")
        if any(program.features[f].dtype == dtype for f in features)
    }
