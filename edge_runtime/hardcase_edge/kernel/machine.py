# SPDX-License-Identifier: Apache-2.0
"""Chooses the evaluator: the C kernel if it was built and can run the program, otherwise pure Python.

The environment variable ``HARDCASE_EVALUATOR``, or an argument, forces ``python`` or ``kernel``. Both evaluators make
the same decisions bit for bit and differ only in speed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeGuard

from ..errors import ImageError, InputError
from ..program.definition import Program
from ..program.readings import Reading
from ..session.drive import drive

if TYPE_CHECKING:
    from ..program.stored_trees import Outline
    from ..session.actions import Decision
    from ..session.session import Machine
    from .compiled import CompiledMachine

KERNEL, PYTHON = "kernel", "python"
EVALUATORS = (KERNEL, PYTHON)
VARIABLE = "HARDCASE_EVALUATOR"


def _in_python(program: Program) -> Machine:
    from ..session.session import Machine

    return Machine(program)


@cache
def _compiled() -> type[CompiledMachine] | None:
    try:
        from .compiled import CompiledMachine
    except ImportError:
        return None
    return CompiledMachine


def has_kernel() -> bool:
    """Whether the compiled kernel is there to import."""
    return _compiled() is not None


def open_machine(
    program: Program,
    evaluator: str | None = None,
    outlines: Sequence[Outline] | None = None,
    moved: Collection[int] = (),
) -> Machine | CompiledMachine:
    """A verified program made ready to run.

    Parameters
    ----------
    program : Program
    evaluator : "kernel", "python" or None
        None: the environment decides; where it does not, the kernel if it can run the program, otherwise Python.
    outlines : the outlines of the verifier's report, from which the kernel's image is made
        None: they are computed again.
    moved : Branch nodes whose thresholds the machine's ``move`` may set

    Raises
    ------
    InputError
        There is no such evaluator, or the kernel was demanded and was not built.
    ImageError
        The kernel was demanded and cannot run this program.
    """
    choice = evaluator or os.environ.get(VARIABLE) or None
    if choice not in (None, *EVALUATORS):
        raise InputError(f"{VARIABLE} is {choice!r}; set it to {' or '.join(EVALUATORS)}")
    if choice == PYTHON:
        return _in_python(program)
    compiled = _compiled()
    if compiled is None:
        if choice == KERNEL:
            raise InputError(
                "the kernel was demanded but was not built; install a C compiler, then run hardcase-edge doctor --build"
            )
        return _in_python(program)
    try:
        return compiled(program, outlines, moved)
    except ImageError:
        if choice == KERNEL:
            raise
        return _in_python(program)


def _is_compiled(machine: Machine | CompiledMachine) -> TypeGuard[CompiledMachine]:
    compiled = _compiled()
    return compiled is not None and isinstance(machine, compiled)


def name_of(machine: Machine | CompiledMachine) -> str:
    """The evaluator of this machine: "kernel" or "python"."""
    return KERNEL if _is_compiled(machine) else PYTHON


def decide(
    machine: Machine | CompiledMachine,
    row: Sequence[Reading],
    reply: tuple[int, int] | None = None,
    *,
    budget: int | None = None,
    item_size: int = 1,
    dead: Iterable[int] = (),
    cloud: bool = True,
) -> Decision:
    """A whole decision on a row whose readings are all known in advance.

    Parameters
    ----------
    machine : the machine that ``open_machine`` returned
    row : sequence of shape (n_features,), readings in the program's order, None for missing
    reply : the HPC's result and confidence in case it is asked; None: it does not reply
    budget, item_size, dead, cloud : as for ``session.Session``

    Examples
    --------
    >>> from hardcase_edge.program.definition import *
    >>> program = Program(
    ...     features=(Feature("f32"),),
    ...     sensors=(Sensor(features=(0,), cost=(2_000_000,)),),
    ...     uplink=Uplink(),
    ...     columns=(Column(0, Rank((20.0,))),),
    ...     scorers=(Trees((0,), (0,), (Tree(0, 1, (0,), (-CODE_MAX,), (True,), (), (-5, 5)),)),),
    ...     nodes=(Acquire((0,), then=1, otherwise=1), Answer(Slice(0, 0, 1))),
    ...     n_classes=2,
    ... )
    >>> machine = open_machine(program)
    >>> [decide(machine, [degrees]).result for degrees in (19.5, 20.0, 20.5)]
    [0, 0, 1]
    """
    if _is_compiled(machine):
        return machine.decide(row, budget=budget, item_size=item_size, dead=dead, cloud=cloud, reply=reply)
    sensors = machine.program.sensors

    def read(asked: tuple[int, ...]) -> dict[int, list[Reading]]:
        return {s: [row[f] for f in sensors[s].features] for s in asked}

    session = machine.session(budget=budget, item_size=item_size, dead=dead, cloud=cloud)
    return drive(session, read, lambda _: reply)
