# SPDX-License-Identifier: Apache-2.0
"""The prices of a bundle: which thresholds a run may move, how far, and where each stands at each price.

An optional key of the manifest, signed with it (docs/SPEC-bundle-v1.md section 3.3). A row of thresholds is a *level*;
level 0 has the lowest price of a unit of cost and spends most, the last level spends least. Between two levels
thresholds lie on a line, so no position has a threshold outside the table. The verifier's bounds do not depend on
thresholds, so they hold at every position.
"""

from __future__ import annotations

from typing import Any

from ..base.record import record
from ..errors import BundleError
from ..program.definition import MARGIN, THRESHOLD, Branch, Program

LEVEL = 1 << 16  # positions from one level to the next
MAX_LEVELS = 64
MAX_MOVED = 64  # nodes; a decision more would take 20 us
MOST_COST = 1e18  # in the user's unit
MOST_THRESHOLD = 2**61  # so that the difference of two fits 64 bits


@record(frozen=True, slots=True)
class Prices:
    """The table.

    nodes : Branch nodes by threshold or margin, in order
    levels : at least two, each with a threshold for each node; a node's thresholds rise, or fall, from first to last
    costs, forwards : what the exporter measured at each level on validation rows: mean cost (the user's unit), and the
        share of rows that is forwarded
    shipped : the level at which the thresholds are the program's own
    """

    nodes: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    costs: tuple[float, ...]
    forwards: tuple[float, ...]
    shipped: int

    @property
    def last(self) -> int:
        """The highest position; the lowest is 0."""
        return (len(self.levels) - 1) * LEVEL

    def at(self, position: int) -> tuple[int, ...]:
        """The thresholds at a position, one for each node; positions outside 0 to ``last`` are moved to the nearest.

        >>> table = Prices((1,), ((100,), (40,)), (5.0, 1.0), (0.5, 0.0), 0)
        >>> table.at(0), table.at(LEVEL // 2), table.at(10 * LEVEL)
        ((100,), (70,), (40,))
        """
        level, part = divmod(min(max(position, 0), self.last), LEVEL)
        if not part:
            return self.levels[level]
        return tuple(
            [
                a + ((b - a) * part >> 16) if b >= a else a - ((a - b) * part >> 16)
                for a, b in zip(self.levels[level], self.levels[level + 1], strict=True)
            ]
        )

    def report(self) -> dict[str, Any]:
        """What ``hardcase-edge verify`` says: the range of the price, and its ends' mean costs on validation rows.

        >>> Prices((1,), ((100,), (40,)), (5.0, 1.0), (0.5, 0.0), 0).report()
        {'price_range': [0, 1], 'price_shipped': 0, 'price_costs': [5.0, 1.0], 'thresholds_that_move': 1}
        """
        return {
            "price_range": [0, len(self.levels) - 1],
            "price_shipped": self.shipped,
            "price_costs": [self.costs[0], self.costs[-1]],
            "thresholds_that_move": len(self.nodes),
        }

    def to_json(self) -> dict[str, Any]:
        """The value of the manifest's key ``prices``."""
        return {
            "nodes": list(self.nodes),
            "levels": [list(level) for level in self.levels],
            "costs": list(self.costs),
            "forwards": list(self.forwards),
            "shipped": self.shipped,
        }


def prices_of(value: object, program: Program) -> Prices:
    """The table in the manifest's key ``prices``, checked against its program.

    Raises
    ------
    BundleError
        It has another form, moves what the program does not have, or its thresholds do not rise or fall throughout.
    """
    if not isinstance(value, dict) or set(value) != {"nodes", "levels", "costs", "forwards", "shipped"}:
        raise _wrong("an object of nodes, levels, costs, forwards and shipped")
    nodes, levels, shipped = value["nodes"], value["levels"], value["shipped"]
    if not _are_ints(nodes, len(program.nodes) - 1) or not 1 <= len(nodes) <= MAX_MOVED:
        raise _wrong(f"of 1 to {MAX_MOVED} nodes of the program")
    if nodes != sorted(set(nodes)) or not all(can_move(program, k) for k in nodes):
        raise _wrong("of Branch nodes by threshold or margin, in order")
    if not isinstance(levels, list) or not 2 <= len(levels) <= MAX_LEVELS:
        raise _wrong(f"of 2 to {MAX_LEVELS} levels")
    if not all(_are_ints(level, MOST_THRESHOLD, -MOST_THRESHOLD) and len(level) == len(nodes) for level in levels):
        raise _wrong("of one threshold for each node, within 2^61")
    for column in zip(*levels, strict=True):
        if list(column) not in (sorted(column), sorted(column, reverse=True)):
            raise _wrong("of thresholds that rise, or fall, from the first level to the last")
    if type(shipped) is not int or not 0 <= shipped < len(levels):
        raise _wrong("with the number of the shipped level")
    if levels[shipped] != [program.nodes[k].threshold for k in nodes]:
        raise _wrong("with the program's own thresholds at the shipped level")
    for key, most in (("costs", MOST_COST), ("forwards", 1.0)):
        if not _are_amounts(value[key], most) or len(value[key]) != len(levels):
            raise _wrong(f"with an amount of {key} for each level")
    rows = tuple([tuple(level) for level in levels])
    return Prices(tuple(nodes), rows, tuple(value["costs"]), tuple(value["forwards"]), shipped)


def can_move(program: Program, k: int) -> bool:
    """Whether a node has a threshold that a table may move."""
    node = program.nodes[k]
    return isinstance(node, Branch) and node.rule in (THRESHOLD, MARGIN)


def _are_ints(value: object, most: int, least: int = 0) -> bool:
    return isinstance(value, list) and all(type(x) is int and least <= x <= most for x in value)


def _are_amounts(value: object, most: float) -> bool:
    if not isinstance(value, list) or not all(type(x) in (int, float) for x in value):
        return False
    return all(0 <= x <= most for x in value)  # refuses NaN, too


def _wrong(what: str) -> BundleError:
    return BundleError(f"the manifest's prices are not {what}; export the bundle again")
