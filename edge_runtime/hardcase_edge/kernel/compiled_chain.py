# SPDX-License-Identifier: Apache-2.0
"""A joint program in C: its chain with the labels and gaps of ``joint.chain.ChainDecoder``, and its whole items."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from . import _kernel  # type: ignore[attr-defined]

__all__ = ["CompiledChain", "open_items"]


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


def open_items(
    image: Any,
    numbers: Sequence[int],
    nodes: Sequence[Sequence[int]],
    settings: tuple[int, int, bool, int, Sequence[int], Callable[[int | None], Sequence[int]]],
    tables: Sequence[Sequence[int]],
    records: tuple[type, ...],
) -> Callable[..., Any]:
    """What opens sessions of items that run in C; their methods are those of ``joint.session.JointSession``.

    Parameters
    ----------
    image : of the part program
    numbers : transitions, starts and stops of the chain
    nodes : of each node scorer, start and stop of what it tells the chain, and the same of its policy; -1 for none
    settings : labels, the most parts, whether it is anytime, the threshold, 1 for each inner sensor and 0 for others,
        and a function from an item size to the costs of sensors
    tables : margins and confidences of parts, and of items
    records : NeedParts, NeedReplies, PartDecision, JointDecision and SessionError
    """
    k, most, is_anytime, threshold, inner, costs = settings
    words = [w for margins, confidences in zip(tables[::2], tables[1::2], strict=True)
             for w in (len(margins), *margins, *confidences)]  # fmt: skip
    items = _kernel.Items(
        image, array("q", numbers).tobytes(), array("i", [w for node in nodes for w in node]).tobytes(),
        (k, most, is_anytime, threshold, bytes(inner), costs), array("i", words).tobytes(), records,
    )  # fmt: skip
    session: Callable[..., Any] = items.session
    return session
