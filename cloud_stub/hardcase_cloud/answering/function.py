"""The HPC as your own Python function, ``MODULE:FUNCTION``, for a system that is no ONNX file.

    # legacy.py, in the folder where the worker is started
    def answer(X, names):    # (n, n_features) float64, NaN for missing; the columns' names
        return [...]         # (n, n_classes) probabilities, classes as the bundle has them; or n labels

A bundle says what such an HPC is known by, what a request carries and which classes there are. The function is called
on a thread of its own. What it does wrong, and whatever it raises, costs the requests of that batch their answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import read_bundle_bytes, unpack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, SensorError, one_line
from hardcase_edge.program.definition import Program
from hardcase_edge.program.readings import Reading
from hardcase_edge.sensors.plugin import load_function
from hardcase_edge.sensors.timeout import TimedCall
from hardcase_edge.verifier.verify import verify

from .onnx_model import BASIS_POINTS, rounded

__all__ = ["FunctionHpc", "function_for"]

Array = NDArray[Any]
LIMIT_S = 30.0  # of one call; devices wait 2 s unless told otherwise


class FunctionHpc:
    """A function that answers for the HPC of a bundle.

    Parameters
    ----------
    name : ``MODULE:FUNCTION``
    program, manifest : of a bundle that forwards

    Attributes
    ----------
    sha256 : str
        What the bundle knows its HPC by.
    dtypes, names : tuple of str
        Type and name of each reading in a request.
    classes : tuple of label

    Raises
    ------
    InputError
        There is no such function, or the bundle never forwards.
    """

    def __init__(self, name: str, program: Program, manifest: Manifest, *, limit_s: float = LIMIT_S) -> None:
        if not manifest.hpc:
            raise InputError(f"the bundle {manifest.name!r} never forwards: there is nothing for {name} to answer")
        self.sha256 = manifest.hpc
        self.names = tuple(manifest.features[f] for f in program.uplink.features)
        self.dtypes = tuple(program.features[f].dtype for f in program.uplink.features)
        self.classes = manifest.classes
        self._name = name
        self._limit_s = limit_s
        self._number = {label: k for k, label in enumerate(manifest.classes)}
        function = load_function(name, "HPC")
        self._call = TimedCall(lambda X: np.asarray(function(X, self.names)))

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """Class index and confidence in basis points of each row, all in one call.

        Raises
        ------
        InputError
            The function fails on these rows, takes too long, or says what it must not.
        """
        if not rows:
            return []
        nan = float("nan")
        found = self._ask(np.array([[nan if x is None else x for x in row] for row in rows], dtype=np.float64))
        return self._from_labels(found, len(rows)) if found.ndim == 1 else self._from_probabilities(found, len(rows))

    # ------------------------------------------------------------ parts

    def _ask(self, X: Array) -> Array:
        ticket = self._call.begin(X)
        if ticket is None:
            raise self._wrong("has not come back from an earlier call")
        try:
            found = ticket.result(monotonic() + self._limit_s)
        except SensorError as error:
            if error.__cause__ is None:
                raise self._wrong(f"took more than {self._limit_s:g} s for {len(X)} rows") from error
            cause = error.__cause__
            raise self._wrong(f"fails on a batch of {len(X)}: {type(cause).__name__}: {one_line(cause)}") from cause
        assert isinstance(found, np.ndarray)
        return found

    def _from_labels(self, labels: Array, n: int) -> list[tuple[int, int]]:
        """Labels are sure of themselves, as a table of ones and zeros is."""
        if labels.shape != (n,):
            raise self._wrong(f"gives {len(labels)} labels for {n} rows")
        try:
            return [(self._number[label], BASIS_POINTS) for label in labels.tolist()]
        except (KeyError, TypeError) as error:
            known = ", ".join(map(repr, self.classes[:8]))
            raise self._wrong(f"gives a label that is no class: {one_line(error)}; classes are {known}") from error

    def _from_probabilities(self, p: Array, n: int) -> list[tuple[int, int]]:
        wanted = (n, len(self.classes))
        if p.shape != wanted or p.dtype.kind not in "fiub":
            raise self._wrong(f"gives {p.dtype} of shape {p.shape}, probabilities of shape {wanted} are expected")
        if not ((p >= 0) & (p <= 1)).all():  # NaN is not in between
            raise self._wrong("gives probabilities that are not from 0 to 1")
        best = p.argmax(axis=1)
        return rounded(best, p[np.arange(n), best])

    def _wrong(self, what: str) -> InputError:
        return InputError(f"HPC {self._name} {what}")


def function_for(name: str, bundle: str | Path) -> FunctionHpc:
    """The function that answers for the HPC of this bundle.

    Raises
    ------
    InputError
        There is no such function, the bundle cannot be read, or it never forwards.
    BundleError
        The file is damaged or no bundle.
    """
    read = unpack_bundle(read_bundle_bytes(bundle))
    verify(read.program)
    return FunctionHpc(name, read.program, Manifest.from_json(read.manifest, read.program))
