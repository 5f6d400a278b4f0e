"""Which evaluator serves: the kernel in C where it was built and can run the program, pure Python everywhere else.

``HARDCASE_EVALUATOR`` in the environment, or an argument, says ``python`` or ``kernel`` to have just that one. Both
decide alike, bit for bit; everything but their speed is the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from ..errors import ImageError, InputError
from ..program.definition import Program
from ..program.readings import Reading
from ..session.drive import drive
from ..session.session import Decision, Machine

if TYPE_CHECKING:
    from ..verifier.tree_shapes import Outline
    from .compiled import CompiledMachine

__all__ = ["EVALUATORS", "KERNEL", "PYTHON", "VARIABLE", "decide", "has_kernel", "name_of", "open_machine"]

KERNEL, PYTHON = "kernel", "python"
EVALUATORS = (KERNEL, PYTHON)
VARIABLE = "HARDCASE_EVALUATOR"


@cache
def _compiled() -> type[CompiledMachine] | None:
    try:
        from .compiled import CompiledMachine
    except ImportError:
        return None
    return CompiledMachine


def has_kernel() -> bool:
    """Whether the kernel was built when this package was installed."""
    return _compiled() is not None


def open_machine(
    program: Program, evaluator: str | None = None, outlines: Sequence[Outline] | None = None
) -> Machine | CompiledMachine:
    """A verified program made ready to run.

    Parameters
    ----------
    program : Program
    evaluator : "kernel", "python" or None
        None: as the environment says, else the kernel if it can, else Python.
    outlines : those of the verifier's report, which the kernel's image is made by; None: looked for again

    Raises
    ------
    InputError
        There is no such evaluator, or the kernel is asked for and not here.
    ImageError
        The kernel is asked for and cannot run this program.
    """
    wanted = evaluator or os.environ.get(VARIABLE) or None
    if wanted not in (None, *EVALUATORS):
        raise InputError(f"{VARIABLE} is {wanted!r}; {' or '.join(EVALUATORS)} is expected")
    if wanted == PYTHON:
        return Machine(program)
    compiled = _compiled()
    if compiled is None:
        if wanted == KERNEL:
            raise InputError(
                "the kernel is asked for and was not built: install a C compiler, then run hardcase-edge doctor --build"
            )
        return Machine(program)
    try:
        return compiled(program, outlines)
    except ImageError:
        if wanted == KERNEL:
            raise
        return Machine(program)


def name_of(machine: Machine | CompiledMachine) -> str:
    """Which evaluator this is."""
    return PYTHON if isinstance(machine, Machine) else KERNEL


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
    """One whole decision over a row that is already known.

    Parameters
    ----------
    machine : what ``open_machine`` gave
    row : (n_features,) readings in the program's order, None for missing
    reply : (result, confidence) of the HPC where it is asked, None where it does not answer
    budget, item_size, dead, cloud : as of a session
    """
    if not isinstance(machine, Machine):
        return machine.decide(row, budget=budget, item_size=item_size, dead=dead, cloud=cloud, reply=reply)
    sensors = machine.program.sensors

    def read(asked: tuple[int, ...]) -> dict[int, list[Reading]]:
        return {s: [row[f] for f in sensors[s].features] for s in asked}

    session = machine.session(budget=budget, item_size=item_size, dead=dead, cloud=cloud)
    return drive(session, read, lambda _: reply)
