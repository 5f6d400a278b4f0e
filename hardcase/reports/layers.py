# SPDX-License-Identifier: Apache-2.0
"""The layout of a policy's picture in layers: a box lies below all boxes that lead to it [1].

Long arrows pass through every layer in a lane of their own, and what lies in a layer is sorted by where its arrows
come from.

References
----------
.. [1] Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .policy_boxes import ANSWER, CLOUD, MORE, Flow

__all__ = ["BOX", "LEFT", "Item", "place_boxes"]

BOX, LANE, GAP = 254, 20, 28  # pixels: width of a box, of a lane, and between them
LEFT = 20  # where the picture begins
SWEEPS = 4


@dataclass(eq=False)
class Item:
    """A box, or a lane of a long arrow (``box`` is None), in a layer; ``above``: where its arrows come from."""

    box: int | None
    layer: int
    above: list[Item] = field(default_factory=list)
    x: float = 0.0  # of its middle

    @property
    def width(self) -> float:
        """In pixels."""
        return LANE if self.box is None else BOX


def _layers_of(flow: Flow) -> list[int]:
    """The layer of each box: one below the lowest of those that lead to it."""
    layers = [0] * len(flow.boxes)
    for _ in flow.boxes:  # a longest way has at most as many arrows as there are boxes
        for a in flow.arrows:
            layers[a.target] = max(layers[a.target], layers[a.source] + 1)
    return layers


def place_boxes(flow: Flow) -> tuple[list[list[Item]], dict[tuple[int, int], list[Item]]]:
    """The items of each layer from left to right, and for each arrow the items that it passes, both ends included."""
    layer_of = _layers_of(flow)
    items = [Item(k, layer) for k, layer in enumerate(layer_of)]
    layers: list[list[Item]] = [[] for _ in range(max(layer_of) + 1)]
    is_end = [box.kind in (ANSWER, CLOUD, MORE) for box in flow.boxes]
    for k in sorted(range(len(items)), key=lambda k: (is_end[k], k)):
        layers[layer_of[k]].append(items[k])
    ways = {}
    for a in flow.arrows:
        way = [items[a.source]]
        for layer in range(layer_of[a.source] + 1, layer_of[a.target]):
            lane = Item(None, layer, [way[-1]])
            layers[layer].append(lane)
            way.append(lane)
        items[a.target].above.append(way[-1])
        ways[a.source, a.target] = [*way, items[a.target]]
    for _ in range(SWEEPS):
        for row in layers:
            _spread(row)
            row.sort(key=lambda item: (_wanted(item), item.x))
    for row in layers:
        _spread(row)
    return layers, ways


def _wanted(item: Item) -> float:
    """Where an item's arrows come from, on the mean."""
    return sum(above.x for above in item.above) / len(item.above) if item.above else LEFT + BOX / 2


def _spread(layer: list[Item]) -> None:
    """Place a layer's items in their order, each as near to where its arrows come from as its neighbour allows."""
    edge = float(LEFT)
    for item in layer:
        item.x = max(edge + item.width / 2, _wanted(item))
        edge = item.x + item.width / 2 + GAP
