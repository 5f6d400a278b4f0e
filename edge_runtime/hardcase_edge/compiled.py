"""The compiled evaluator: the kernel in C behind the interface of ``session.Machine`` and ``session.Session``.

Only ``evaluator`` imports this module; importing it fails where the extension was not built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _kernel  # type: ignore[attr-defined]
from .columns import Reading, normalise
from .errors import SessionError
from .image import make_image
from .layout import DTYPES
from .program import Program
from .session import CLOUD, DEGRADED, LOCAL, NOT_READINGS, Decision, NeedReply, NeedSensors

if TYPE_CHECKING:
    from .session import Session

__all__ = ["CompiledMachine"]


class CompiledMachine:
    """A program made ready to run in C; immutable, shared by any number of sessions.

    Raises
    ------
    ImageError
        The kernel cannot run this program.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        dtypes = [tuple(program.features[f].dtype for f in s.features) for s in program.sensors]

        def held(sensor: int, values: Any, is_row: bool) -> list[Reading] | None:
            """What the sensor's types hold of what it gave; None if it failed."""
            if values is None or (values.__class__ is not list and isinstance(values, NOT_READINGS)):
                return None
            try:
                if is_row:
                    values = [values[f] for f in program.sensors[sensor].features]
                return normalise(values, dtypes[sensor])
            except Exception:  # as in session: whatever a foreign number raises, its sensor has failed
                return None

        codes = {name: k for k, name in enumerate(DTYPES)}
        self._image = _kernel.Image(
            make_image(program),
            len(program.features),
            tuple(
                (bytes(codes[d] for d in types), s.features) for types, s in zip(dtypes, program.sensors, strict=True)
            ),
            bytes(codes[program.features[f].dtype] for f in program.uplink.features),
            (NeedSensors, NeedReply, Decision, SessionError, held, (LOCAL, CLOUD, DEGRADED), program.n_classes),
        )

    def session(
        self, *, budget: int | None = None, item_size: int = 1, dead: Iterable[int] = (), cloud: bool = True
    ) -> Session:
        """A session: see ``session.Session``."""
        made: Session = self._image.session(budget=budget, item_size=item_size, dead=dead, cloud=cloud)
        return made

    def decide(
        self,
        row: Sequence[Reading],
        *,
        budget: int | None = None,
        item_size: int = 1,
        dead: Iterable[int] = (),
        cloud: bool = True,
        reply: tuple[int, int] | None = None,
    ) -> Decision:
        """A whole decision: see ``evaluator.decide``. A row may also be a buffer, such as ``array("f", ...)``, where
        all features have one type and sensors name them in order."""
        decision: Decision = self._image.decide(
            row, budget=budget, item_size=item_size, dead=dead, cloud=cloud, reply=reply
        )
        return decision
