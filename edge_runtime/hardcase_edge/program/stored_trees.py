"""The trees of an ensemble as they lie in a bundle: each is made when it is looked at, and nobody keeps it.

Trees are most of a bundle, and as Python's integers they would take ten times its bytes. Who proves them safe, lays
them out for the kernel or prepares them for Python goes over them one by one. ``decoder`` has checked every record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import overload

from .definition import Tree
from .format import TREE, Tensor

__all__ = ["StoredTrees"]

_RECORD, _PAIR = Struct(f"{TREE}i"), Struct("2h")


class StoredTrees(Sequence[Tree]):
    """A sequence of trees that equals the tuple of the same trees.

    Parameters
    ----------
    records : ``TREE`` words for each tree
    shorts : the pool of slots, thresholds and children
    leaves : the pool of leaves
    """

    __slots__ = ("_leaves", "_records", "_shorts")

    def __init__(self, records: Tensor, shorts: Tensor, leaves: Tensor) -> None:
        self._records = records
        self._shorts = shorts
        self._leaves = leaves

    def __len__(self) -> int:
        return len(self._records) // TREE

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tree, ...]: ...
    def __getitem__(self, index: int | slice) -> Tree | tuple[Tree, ...]:
        where = range(len(self))[index]
        return self._tree(where) if isinstance(where, int) else tuple([self._tree(k) for k in where])

    def __iter__(self) -> Iterator[Tree]:
        return map(self._tree, range(len(self)))

    def _tree(self, k: int) -> Tree:
        output, width, n, has_children, slots, thresholds, children, leaves = _RECORD.unpack_from(
            self._records, k * _RECORD.size
        )
        shorts = self._shorts
        slot: list[int] = shorts[slots : slots + n].tolist()
        return Tree(
            output,
            width,
            tuple([x >> 1 for x in slot]),
            tuple(shorts[thresholds : thresholds + n].tolist()),
            tuple([not x & 1 for x in slot]),
            tuple(_PAIR.iter_unpack(shorts[children : children + 2 * n * has_children])),
            tuple(self._leaves[leaves : leaves + (n + 1) * width].tolist()),
        )

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | StoredTrees) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type[tuple[Tree, ...]], tuple[tuple[Tree, ...]]]:
        return tuple, (tuple(self),)  # a copy stands without the bundle
