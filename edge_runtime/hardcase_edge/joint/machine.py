# SPDX-License-Identifier: Apache-2.0
"""Opens a joint program in one evaluator: whole items in C where the kernel is there, or in Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import SessionError
from ..kernel.machine import KERNEL, name_of, open_machine
from ..program.cost import Meter
from ..program.definition import Answer, Node, Program, Slice
from .definition import ANYTIME, Joint, Wait
from .session import JointDecision, JointMachine, NeedParts, NeedReplies, PartDecision

if TYPE_CHECKING:
    from ..verifier.tree_shapes import Outline

__all__ = ["open_joint"]


def open_joint(
    part: Program, joint: Joint, evaluator: str | None = None, outlines: Sequence[Outline] | None = None
) -> JointMachine:
    """A verified joint program made ready to run; the parameters and errors are those of ``open_machine``."""
    machine = open_machine(part, evaluator, outlines)
    if name_of(machine) != KERNEL:
        return JointMachine(joint, machine)
    from ..kernel.compiled_chain import CompiledChain, open_items

    c, inner, waits = joint.chain, joint.inner(part), {w.node: w for w in joint.waits}
    in_c = open_items(
        machine.image,  # type: ignore[union-attr]  # the kernel's
        (*c.transitions, *c.start, *c.stop),
        [_told(node, waits.get(k)) for k, node in enumerate(part.nodes)],
        (
            c.labels, joint.max_parts, joint.release == ANYTIME, joint.threshold,
            [int(s in inner) for s in range(len(part.sensors))],
            lru_cache(1)(lambda size: Meter(part, 1 if size is None else size).sensor_costs),
        ),
        (joint.margins, joint.confidences, joint.item_margins, joint.item_confidences),
        (NeedParts, NeedReplies, PartDecision, JointDecision, SessionError),
    )  # fmt: skip
    return JointMachine(joint, machine, CompiledChain(c.labels, c.transitions, c.start, c.stop), in_c)


def _told(node: Node, wait: Wait | None) -> tuple[int, ...]:
    """What a part tells the chain where it stands, and its policy, as ``open_items`` takes them."""
    scores = node.scores if isinstance(node, Answer) else None if wait is None else wait.scores
    policy = None if wait is None else wait.policy
    return (*_words(scores), *_words(policy))


def _words(read: Slice | None) -> tuple[int, int, int]:
    return (-1, 0, 0) if read is None else (read.scorer, read.start, read.stop)
