# SPDX-License-Identifier: Apache-2.0
"""Jobs of learning a chain, which run one after the other or on the pool of a sweep; the results are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Pool = Callable[[Callable[[Any, Any], Any], Any, Sequence[Any]], Iterator[tuple[int, Any]]]  # as sweep.executors opens


def in_turn(function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """The pool of this thread: the number and the result of each job, in their order.

    >>> list(in_turn(pow, 2, [1, 3]))
    [(0, 2), (1, 8)]
    """
    for k, item in enumerate(items):
        yield k, function(shared, item)


def results_of(pool: Pool, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> list[Any]:
    """The results of the jobs in their order, whichever ended first."""
    found = dict(pool(function, shared, items))
    return [found[k] for k in range(len(items))]
