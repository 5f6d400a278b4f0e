# SPDX-License-Identifier: Apache-2.0
"""Drives a session to its decision with two functions: one reads sensors, one asks the cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..program.readings import Reading
from .actions import Decision, NeedReply, NeedSensors

if TYPE_CHECKING:
    from .session import Session

Read = Callable[[tuple[int, ...]], Mapping[int, Sequence[Reading] | None]]
Ask = Callable[[NeedReply], tuple[int, int] | None]


def drive(session: Session, read: Read, ask: Ask, clock: Callable[[], int] | None = None) -> Decision:
    """Run a session to its end.

    Parameters
    ----------
    session : a session of either evaluator
    read : function from sensor numbers to their readings, None for a sensor that failed
    ask : function from a ``NeedReply`` to the HPC's result and confidence (basis points), or None if no reply came
    clock : function that gives what has been spent since the decision began, in micro-units; None: declared costs count

    Raises
    ------
    SessionError
        A function returned something else than was asked for.

    Examples
    --------
    A program that buys a thermometer and answers class 1 above 20 degrees:

    >>> from hardcase_edge.program.definition import *
    >>> from hardcase_edge.session.session import Machine, Session
    >>> program = Program(
    ...     features=(Feature("f32"),),
    ...     sensors=(Sensor(features=(0,), cost=(2_000_000,)),),
    ...     uplink=Uplink(),
    ...     columns=(Column(0, Rank((20.0,))),),
    ...     scorers=(Trees((0,), (0,), (Tree(0, 1, (0,), (-CODE_MAX,), (True,), (), (-5, 5)),)),),
    ...     nodes=(Acquire((0,), then=1, otherwise=1), Answer(Slice(0, 0, 1))),
    ...     n_classes=2,
    ... )
    >>> decision = drive(Session(Machine(program)), lambda sensors: {s: [21.5] for s in sensors}, lambda need: None)
    >>> decision.result, decision.route, decision.cost
    (1, 'local', 2000000)
    """
    if clock is not None:
        session.elapsed(clock())
    while True:
        action = session.next_action()
        if isinstance(action, NeedSensors):
            session.feed(read(action.sensors))
            if clock is not None:
                session.elapsed(clock())
        elif isinstance(action, NeedReply):
            answer = ask(action)
            if clock is not None:
                session.elapsed(clock())
            if answer is None:
                session.no_reply()
            else:
                session.reply(*answer)
        else:
            return action
