# SPDX-License-Identifier: Apache-2.0
"""An int8 network of a file as columns and a scorer of integers, and its comparison with what the file's runtime says.

A reading becomes the code of its grid, rounded to the nearest, halves up; a missing one counts as the median of the
rows, or without rows as 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError, ProgramError
from hardcase_edge.more.batch.codes import codes_of
from hardcase_edge.more.batch.scores import score_codes
from hardcase_edge.program.definition import Affine, Column
from hardcase_edge.verifier.scorers import prove_scorer

from ..sources.int8 import Grid, scorer_of
from ..sources.source import Source
from .agreement import compare
from .imported import TESTED, Imported
from .leaves import Summed
from .probe_rows import as_held, probe_rows
from .program import Parts, plain
from .reference import labels_of_scores
from .sensor_layout import Layout

SHIFT = 51  # of a column: its factor has 30 bits
STEP_BITS = 22  # a step of a code is at least half of this many bits of the reading
VALUE_BITS = 20  # of a value's smallest step, which is one of the network's output


def import_int8(
    source: Source, layout: Layout, *, rows: NDArray[np.float64] | None, n_check: int, seed: int
) -> Imported:
    """Columns and the scorer of a checked source that is an int8 network; parameters as of ``parts.import_parts``.

    Raises
    ------
    InputError
        The verifier refuses the network, or the file's own runtime cannot run it.
    """
    network = source.int8
    assert network is not None
    assert network.run is not None
    grid, last = network.grid, network.layers[-1].grid
    dtypes, never = [f.dtype for f in layout.features], [False] * len(layout.features)
    user_rows = None if rows is None else as_held(rows, dtypes, never)
    columns = tuple(Column(f, column_of(grid)) for f in range(len(dtypes)))
    steps = None if source.kind.has_classes else VALUE_BITS - math.frexp(last.scale)[1]
    scorer = scorer_of(network, _substitutes(columns, rows, grid), steps)
    unit = 1.0 if steps is None else 2.0**steps
    parts = Parts.of(source, columns, Summed((scorer,), unit, np.zeros(1), "int8"))
    program = plain(layout.features, layout.sensors, parts, len(layout.classes), layout.costs)
    try:
        prove_scorer(program, 0, ())
    except ProgramError as error:
        raise InputError(f"the {source.name} cannot be proved: {error}; quantise a smaller network") from error
    ends = [grid.scale * (q - grid.zero_point) for q in (-128, 127)]
    reach = np.tile(ends, (len(dtypes), 1))
    X = probe_rows((), dtypes, never, n_check, seed, user_rows=user_rows, reach=reach)
    codes = codes_of(columns, X)
    scores = score_codes((scorer,), 0, codes)
    said = np.asarray(network.run(codes.T.astype(np.int8)), dtype=np.float64)
    answers: NDArray[Any]
    if steps is None:
        off, answers = np.abs(scores - said).max(axis=0), labels_of_scores(said, ties_up=source.ties_up)
    else:
        said = said * last.scale
        off, answers = np.array([last.scale * unit + 1]), said[:, 0]  # a step of the output, and the value's rounding
    summed = Summed((scorer,), unit, off, "int8")
    return Imported(source, layout, parts, summed, compare(source, summed, scores, X, answers, said), TESTED, X)


def column_of(grid: Grid) -> Affine:
    """The rule of the nearest code, halves up.

    >>> column_of(Grid(0.5, -3))
    Affine(frac=22, mul=1073741824, add=-5629499534213120, shift=51, low=-128, high=127)
    """
    frac = STEP_BITS - math.frexp(grid.scale)[1]
    mul = round(2.0 ** (SHIFT - frac) / grid.scale)
    return Affine(frac, mul, (2 * grid.zero_point + 1) << (SHIFT - 1), SHIFT, -128, 127)


def _substitutes(columns: Sequence[Column], rows: NDArray[np.float64] | None, grid: Grid) -> list[int]:
    typical = np.zeros((1, len(columns)))
    if rows is not None:
        seen = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
        typical = np.nanmedian(seen, axis=0)[None]
    return [int(c) for c in codes_of(columns, typical)[:, 0]]
