# SPDX-License-Identifier: Apache-2.0
"""A small imported network as parts of a program: an opaque scorer, because no scorer of integers expresses it.

The TFLite file computes in float32: readings less their centre, times a factor, then dense layers one after another,
times a power of two, so that scores are integers of up to 2^23 steps. Nothing of it is proved; its labels are compared
with the source's. If a sensor fails, the program gives the answer for the reading that stands for missing ones: that of
the source's imputer, or else the median of the compared rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Feature, Opaque, Trees

from ..importing.agreement import compare
from ..importing.imported import TESTED, Imported
from ..importing.leaves import Summed
from ..importing.probe_rows import as_held, probe_rows
from ..importing.program import Parts, answer_of
from ..importing.reference import reference_scores
from ..importing.sensor_layout import Layout
from ..scorers.replay import tflite_runner
from ..sources.source import Network, Source
from .graph import TfliteGraph

LARGEST = 2**20  # bound, within a factor of 2, on the scores of compared rows, in steps
HELD = 2**23  # bound to which scores are clipped; float32 holds every integer up to here
OPERATORS = {"relu": "RELU", "tanh": "TANH", "logistic": "LOGISTIC"}


def import_network(
    source: Source, layout: Layout, *, rows: NDArray[np.float64] | None, n_check: int, seed: int
) -> Imported:
    """Scorers of a checked source that is a network, compared with it.

    Parameters
    ----------
    layout : sensors and types of the readings, which are never missing where the network reads them
    rows : (n, n_features) in the model's order; those with a missing reading are left out
    n_check, seed : as for ``importing.parts.import_parts``

    Raises
    ------
    InputError
        There are no rows without missing readings, no TFLite interpreter, or the scores are zeros or not finite.
    """
    network = source.network
    assert network is not None
    layout = replace(layout, features=tuple(Feature(f.dtype, False) for f in layout.features))
    X = _rows(source, layout, rows, n_check, seed)
    exact = reference_scores(source, X)
    largest = float(np.abs(exact).max())
    if not 0 < largest < math.inf:
        raise InputError(
            f"the {source.name} gives zeros, or scores that are not finite; scale its readings and train it"
        )
    steps = 2.0 ** math.floor(math.log2(LARGEST / largest))
    n, width = len(source.features), len(source.base)
    blob = _file(network, n, steps)
    runner = tflite_runner(blob)
    scores = np.rint(np.clip(runner({"readings": X.astype(np.float32)}), -HELD, HELD)).astype(np.int64)
    off = np.abs(scores - exact * steps).max(axis=0)  # the largest that was seen: nothing bounds a float's sums here
    opaque = Opaque(tuple(range(n)), blob, (-HELD,) * width, (HELD,) * width)
    stands_for_missing = np.median(X, axis=0) if network.fill is None else network.fill
    base = np.rint(reference_scores(source, stands_for_missing[None])[0] * steps).astype(int)
    summed = Summed((opaque, Trees((), tuple(base.tolist()), ())), steps, off, "float32")
    answer, otherwise = (answer_of(source, steps, scorer) for scorer in (0, 1))
    parts = Parts((), summed.scorers, answer, opaque.features, otherwise)
    answers = None if source.predict is None else source.predict(X)
    match = compare(source, summed, scores, X, answers, exact)
    return Imported(source, layout, parts, summed, match, TESTED, X)


def _rows(source: Source, layout: Layout, rows: NDArray[np.float64] | None, n: int, seed: int) -> NDArray[np.float64]:
    """Rows to compare on: the user's and variations of them, or numbers from the ranges in the layout."""
    dtypes, never = [f.dtype for f in layout.features], [False] * len(layout.features)
    reach = layout.ranges
    if rows is not None:
        rows = rows[~np.isnan(rows).any(axis=1)]
        if len(rows) == 0:
            raise InputError(
                "every row has a missing reading, which a network cannot take; give rows without missing readings"
            )
        rows = as_held(rows, dtypes, never)
        measured = np.stack([rows.min(axis=0), rows.max(axis=0)], axis=1)
        reach = np.where(np.isnan(reach), measured, reach)
    if np.isnan(reach).any():
        raise InputError(
            f"the {source.name} needs the range of its readings; give rows of readings, or [range] in the TOML"
        )
    return probe_rows((), dtypes, never, n, seed, user_rows=rows, reach=reach)


def _file(network: Network, n_features: int, steps: float) -> bytes:
    """The bytes of the TFLite file: readings (1, n_features) float32 in, scores (1, n_outputs) in steps out."""
    g = TfliteGraph()
    x = g.input("readings", "f4", (1, n_features))
    centre = network.centre.astype(np.float32).astype(np.float64)
    x = g.op("SUB", x, g.const([centre], "f4"))
    x = g.op("MUL", x, g.const([network.factor], "f4"))
    rest = (centre - network.centre) * network.factor  # what float32 does not hold of the centre moves into a bias
    for k, layer in enumerate(network.layers):
        bias = layer.bias + layer.weights @ rest if k == 0 else layer.bias
        x = g.op("FULLY_CONNECTED", x, g.const(layer.weights, "f4"), g.const(bias, "f4"), shape=(1, len(bias)))
        if layer.activation in OPERATORS:
            x = g.op(OPERATORS[layer.activation], x)
    return g.model("network", {"scores": g.op("MUL", x, g.const([steps], "f4"))})
