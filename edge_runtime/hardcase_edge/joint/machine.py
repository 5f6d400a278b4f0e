# SPDX-License-Identifier: Apache-2.0
"""Opens a joint program in one evaluator: parts and chain in C where the kernel is there, or all of it in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..kernel.machine import KERNEL, name_of, open_machine
from ..program.cost import start_of, with_start
from ..program.definition import Program
from .definition import Joint
from .session import JointMachine

if TYPE_CHECKING:
    from ..program.stored_trees import Outline


def open_joint(
    part: Program, joint: Joint, evaluator: str | None = None, outlines: Sequence[Outline] | None = None
) -> JointMachine:
    """A verified joint program made ready to run; the parameters and errors are those of ``open_machine``."""
    machine = open_machine(_without_start(part), evaluator, outlines)
    if name_of(machine) != KERNEL:
        return JointMachine(joint, machine, program=part)
    from ..kernel.compiled_chain import CompiledChain

    c = joint.chain
    return JointMachine(joint, machine, CompiledChain(c.labels, c.transitions, c.start, c.stop), part)


def _without_start(part: Program) -> Program:
    """The program of a part, whose item pays once for its start."""
    if not start_of(part.costs):
        return part
    from dataclasses import replace  # here: a device starts without it

    return replace(part, costs=with_start(part.costs, 0))
