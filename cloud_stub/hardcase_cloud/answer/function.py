# SPDX-License-Identifier: Apache-2.0
"""The HPC as a user's Python function, ``MODULE:FUNCTION``, for systems that are not ONNX files.

    # legacy.py, in the folder where the worker is started
    def answer(X, names):    # (n, n_features) float64, NaN for missing; the columns' names
        return [...]         # (n, n_classes) probabilities, classes in the bundle's order; or n labels, or n values

A bundle gives the SHA-256 that identifies the HPC, the features that a request carries, and the classes. The worker
calls the function on a thread of its own. If the function raises an exception, takes too long or returns something
unusable, the batch has no answer. A thread whose call takes too long is abandoned, because Python cannot end it, and
the next call gets a new one; with ``MAX_ABANDONED`` such threads the process must end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.bundle.file import Bundle, read_bundle_bytes, unpack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import HpcStuckError, HpcTimeoutError, InputError, SensorError, one_line
from hardcase_edge.program.definition import Program
from hardcase_edge.program.readings import Reading
from hardcase_edge.sensors.plugin import load_function
from hardcase_edge.sensors.timeout import Ticket, TimedCall
from hardcase_edge.verifier.verify import verify

from .onnx_model import BASIS_POINTS, results_of, rounded

Array = NDArray[Any]
LIMIT_S = 0.7  # for one call: a batch that hangs and then its culprit fit into the 2 s that devices wait by default
MAX_ABANDONED = 16  # threads whose calls have not returned


class FunctionHpc:
    """A function in the place of a bundle's HPC.

    Parameters
    ----------
    name : ``MODULE:FUNCTION``
    program, manifest : of a bundle that forwards
    limit_s : seconds that one call may take
    function : what to call; None: what the name says

    Attributes
    ----------
    sha256 : str
        The HPC's identity in the bundle and in requests, in hex.
    dtypes, names : tuple of str
        Type and name of each reading in a request.
    classes : tuple of str, int or float
        The label of each class index.

    Raises
    ------
    InputError
        There is no such function, or the bundle never forwards.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        manifest: Manifest,
        *,
        limit_s: float = LIMIT_S,
        function: Callable[..., Any] | None = None,
    ) -> None:
        if not manifest.hpc:
            raise InputError(
                f"the bundle {manifest.name!r} never forwards, so {name} has nothing to answer; use another"
            )
        self.sha256 = manifest.hpc
        self.names = tuple(manifest.features[f] for f in program.uplink.features)
        self.dtypes = tuple(program.features[f].dtype for f in program.uplink.features)
        self.classes = manifest.classes
        self._name = name
        self._limit_s = limit_s
        self._steps = None if manifest.value is None else manifest.value.steps
        self._number = {label: k for k, label in enumerate(manifest.classes)}
        answer = function or load_function(name, "HPC")
        self._function = lambda X: np.asarray(answer(X, self.names))
        self._call = TimedCall(self._function)
        self._abandoned: list[Ticket] = []

    def answer(self, rows: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """The class index or result, and the confidence in basis points, of each row, from one call of the function.

        Raises
        ------
        InputError
            The function raises an exception, returns something unusable or gets no thread; ``HpcTimeoutError`` if it
            takes too long.
        HpcStuckError
            ``MAX_ABANDONED`` earlier calls have not returned.
        """
        if not rows:
            return []
        nan = float("nan")
        X = np.array([[nan if x is None else x for x in row] for row in rows], dtype=np.float64)
        output = self._ask(X)
        if self._steps is not None:
            return results_of(output, len(rows), self._steps, 0, f"HPC {self._name}")
        return self._from_labels(output, len(rows)) if output.ndim == 1 else self._from_probabilities(output, len(rows))

    # ------------------------------------------------------------ parts

    def _ask(self, X: Array) -> Array:
        self._abandoned = [ticket for ticket in self._abandoned if not ticket.is_done]
        if len(self._abandoned) >= MAX_ABANDONED:
            raise HpcStuckError(
                f"HPC {self._name}: {MAX_ABANDONED} calls have not returned, so no more are made; correct the "
                "function, or give it more time with --limit-ms"
            )
        ticket = self._call.begin(X)
        if ticket is None:  # the call before has returned, or its thread was abandoned
            raise self._wrong("gets no thread; the system has too many")
        try:
            output = ticket.result(monotonic() + self._limit_s)
        except SensorError as error:
            if error.__cause__ is None:
                raise self._abandon(ticket, len(X)) from error
            cause = error.__cause__
            raise self._wrong(f"fails on a batch of {len(X)}: {type(cause).__name__}: {one_line(cause)}") from cause
        assert isinstance(output, np.ndarray)
        return output

    def _abandon(self, ticket: Ticket, n: int) -> HpcTimeoutError:
        """Give the next call another thread; this one ends when its call returns."""
        self._abandoned.append(ticket)
        self._call.close()
        self._call = TimedCall(self._function)
        return HpcTimeoutError(f"HPC {self._name} took more than {self._limit_s * 1000:g} ms for {n} rows (--limit-ms)")

    def _from_labels(self, labels: Array, n: int) -> list[tuple[int, int]]:
        """Answers from labels, each with full confidence."""
        if labels.shape != (n,):
            raise self._wrong(f"returns {len(labels)} labels for {n} rows")
        try:
            return [(self._number[label], BASIS_POINTS) for label in labels.tolist()]
        except (KeyError, TypeError) as error:
            classes = ", ".join(map(repr, self.classes[:8]))
            raise self._wrong(
                f"returns a label that is not a class: {one_line(error)}; classes are {classes}"
            ) from error

    def _from_probabilities(self, p: Array, n: int) -> list[tuple[int, int]]:
        """Answers from probabilities of shape (n, n_classes): the most likely class of each row."""
        expected = (n, len(self.classes))
        if p.shape != expected or p.dtype.kind not in "fiub":
            raise self._wrong(f"returns {p.dtype} of shape {p.shape}, probabilities of shape {expected} are expected")
        if not ((p >= 0) & (p <= 1)).all():  # refuses NaN too
            raise self._wrong("returns probabilities that are not from 0 to 1")
        best = p.argmax(axis=1)
        return rounded(best, p[np.arange(n), best])

    def _wrong(self, what: str) -> InputError:
        return InputError(f"HPC {self._name} {what}")


def function_for(name: str, bundle: str | Path, *, limit_s: float = LIMIT_S) -> FunctionHpc:
    """The function of this name in the place of a bundle's HPC.

    Parameters
    ----------
    name : ``MODULE:FUNCTION``
    bundle : path of the ``.hcb`` file
    limit_s : seconds that one call may take

    Raises
    ------
    InputError
        There is no such function, the bundle cannot be read, or it never forwards.
    BundleError
        The file is damaged or is not a bundle.
    """
    contents = verified(bundle)
    return FunctionHpc(name, contents.program, Manifest.from_json(contents.manifest, contents.program), limit_s=limit_s)


def verified(bundle: str | Path) -> Bundle:
    """What a bundle holds; its golden cases are not replayed.

    Raises
    ------
    InputError
        It cannot be read.
    BundleError
        The file is damaged or is not a bundle.
    """
    contents = unpack_bundle(read_bundle_bytes(bundle))
    verify(contents.program)
    return contents
