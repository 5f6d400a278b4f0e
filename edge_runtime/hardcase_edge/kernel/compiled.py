# SPDX-License-Identifier: Apache-2.0
"""The compiled evaluator: the C kernel behind the interface of ``session.Machine`` and ``session.Session``.

Only ``kernel.machine`` imports this module; the import fails where the extension was not built, or was built for
another version of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ImageError, SessionError
from ..program.definition import Program
from ..program.limits import SAFE
from ..program.readings import DTYPES, Reading, normalise
from ..session.actions import CLOUD, DEGRADED, LOCAL, NOT_READINGS, Decision, NeedReply, NeedSensors
from . import _kernel  # type: ignore[attr-defined]
from .image import make_image

if TYPE_CHECKING:
    from ..program.stored_trees import Outline
    from ..session.session import Session

INTERFACE = 7  # as in py_module.c
if getattr(_kernel, "INTERFACE", 1) != INTERFACE:
    raise ImportError("the kernel was built for another version; run hardcase-edge doctor --build")


class CompiledMachine:
    """A program made ready to run in C, for any number of sessions; only ``move`` changes it.

    ``session`` and ``decide`` are methods of the C object itself, because a Python call around them would take as long
    as a decision. A row for ``decide`` is a list of readings. If all features have one type and the sensors name them
    in order, it may also be any buffer of that type that is aligned to 8 bytes: ``array("f", ...)`` or a row of a numpy
    array. One of another type is read as a list.

    Parameters
    ----------
    program : a verified, quantised program
    outlines, moved : as for ``image.make_image``

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    """

    def __init__(
        self, program: Program, outlines: Sequence[Outline] | None = None, moved: Collection[int] = ()
    ) -> None:
        self.program = program
        self._moved = frozenset(moved)
        dtypes = [tuple(program.features[f].dtype for f in s.features) for s in program.sensors]

        def held(sensor: int, values: Any, is_row: bool) -> list[Reading] | None:
            """A sensor's readings as its declared types hold them; None if the sensor failed."""
            if values is None or (values.__class__ is not list and isinstance(values, NOT_READINGS)):
                return None
            try:
                if is_row:
                    values = [values[f] for f in program.sensors[sensor].features]
                return normalise(values, dtypes[sensor])
            except Exception:  # as in the session: a foreign number may raise anything, and then its sensor has failed
                return None

        codes = {name: dtype.number for name, dtype in DTYPES.items()}
        parts = (
            make_image(program, outlines, moved),
            len(program.features),
            tuple(
                (bytes(codes[d] for d in types), s.features) for types, s in zip(dtypes, program.sensors, strict=True)
            ),
            bytes(codes[program.features[f].dtype] for f in program.uplink.features),
            (NeedSensors, NeedReply, Decision, SessionError, held, (LOCAL, CLOUD, DEGRADED), program.n_classes),
        )
        try:
            image = _kernel.Image(*parts)
        except ValueError as error:
            raise ImageError(f"the kernel refuses this program: {error}") from error

        self.image = image
        self._move: Callable[[int, int], None] = image.move
        self.session: Callable[..., Session] = image.session  # as session.Machine.session
        self.decide: Callable[..., Decision] = image.decide  # as machine.decide, and takes rows in buffers too

    def move(self, node: int, threshold: int) -> None:
        """As ``session.Machine.move``, for the nodes that this machine was opened for.

        Raises
        ------
        ValueError
            It is another node, or the threshold is outside -2^62 to 2^62.
        """
        if node not in self._moved or not -SAFE <= threshold <= SAFE:
            raise ValueError(f"a threshold of {threshold} cannot be set there")
        self._move(node, threshold)
