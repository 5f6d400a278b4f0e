# SPDX-License-Identifier: Apache-2.0
"""The chain of a joint program in C, with the labels and gaps of ``joint.chain.ChainDecoder``."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from . import _kernel  # type: ignore[attr-defined]


class CompiledChain:
    """A verified chain made ready to decode in C; immutable. ``decode`` is the C object's own method.

    Parameters
    ----------
    labels : K
    transitions : (K * K,), from the label K * before + after
    start, stop : (K,) each
    """

    def __init__(self, labels: int, transitions: Sequence[int], start: Sequence[int], stop: Sequence[int]) -> None:
        chain = _kernel.Chain(labels, array("q", [*transitions, *start, *stop]).tobytes())
        self.decode: Callable[..., tuple[list[int], list[int]]] = chain.decode
