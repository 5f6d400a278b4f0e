# SPDX-License-Identifier: Apache-2.0
"""The picture of a policy: its boxes in layers from top to bottom, joined by arrows as wide as their share of rows.

A box lies below all boxes that lead to it [1]. Long arrows pass through every layer in a lane of their own, and what
lies in a layer is sorted by where its arrows come from.

References
----------
.. [1] Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hardcase_edge.base.escape import markup as safe
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.program.definition import Program
from hardcase_edge.session.actions import Decision

from ..measuring.measure import node_figures
from .page import STYLE, title
from .policy_boxes import ANSWER, BUY, CLOUD, MORE, Arrow, Box, Flow, flow_of
from .policy_states import states_of

BOX, LANE, GAP = 254, 20, 28  # pixels: width of a box, of a lane, and between them
LEFT = 20  # where the picture begins
SWEEPS = 4
LINE, PADDING, BETWEEN = 17, 12, 50  # pixels: height of a line, above and below the lines, between layers
HEAD = 58  # height of the heading
WIDEST, FINEST = 28.0, 1.6  # width of the arrow of all rows, and of the least
MAX_LETTERS = (33, 40)  # of a title, which is bold, and of another line in a box
COLOURS = {BUY: "var(--buy)", ANSWER: "var(--local)", CLOUD: "var(--cloud)"}


def policy_svg(
    program: Program,
    manifest: Manifest,
    decisions: Sequence[Decision] | None = None,
    y: Sequence[float] = (),
    *,
    note: str = "",
    sizes: Sequence[int] = (),
) -> str:
    """The picture, an SVG document that loads nothing.

    Parameters
    ----------
    decisions, y : the program's decisions on some rows, and their class indices or values; None: no shares are shown
    note : a line below the heading, such as what the rows are
    sizes : size of each row's item; empty: all are 1
    """
    figures = None if decisions is None else node_figures(program, decisions, y, sizes)
    flow = flow_of(program, manifest, figures)
    if decisions is not None and any(box.kind == MORE for box in flow.boxes):
        flow = states_of(program, manifest, decisions, y)  # too many nodes to show them all
    return draw(flow, f"{manifest.name}: {manifest.target}", note)


def draw(flow: Flow, heading: str, note: str) -> str:
    """The boxes and arrows as an SVG document."""
    layers, ways = place_boxes(flow)
    tops, y = [], float(HEAD)
    for layer in layers:
        tops.append(y)
        y += max(_height(flow.boxes[i.box]) if i.box is not None else 0 for i in layer) + BETWEEN
    width = max(max(i.x + i.width / 2 for layer in layers for i in layer) + LEFT, 520)
    height = y - BETWEEN + 46
    out = [
        f'<svg class="hc policy" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="The policy as a flow of rows">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="24" style="font-size:15px;font-weight:600">{safe(heading, 90)}</text>',
        f'<text class="soft" x="{LEFT}" y="43">{safe(note, 150)}</text>',
    ]
    out += _arrows(flow, ways, tops)
    for layer, top in zip(layers, tops, strict=True):
        out += [_box(flow, flow.boxes[i.box], i.x - BOX / 2, top) for i in layer if i.box is not None]
    if flow.left_out:
        words = f"{flow.left_out} more nodes, for failed sensors and missing replies, are not shown"
        out.append(f'<text class="soft" x="{LEFT}" y="{height - 14:.0f}">{words}</text>')
    return "\n".join([*out, "</svg>\n"])


def _height(box: Box) -> int:
    return 2 * PADDING + LINE * (1 + len(box.lines))


def _box(flow: Flow, box: Box, x: float, y: float) -> str:
    colour, height = COLOURS.get(box.kind, "var(--soft)"), _height(box)
    dash = ' stroke-dasharray="5 4"' if box.kind == MORE else ""
    nodes = f' data-nodes="{" ".join(map(str, box.nodes))}"' if box.nodes else ""
    out = [
        f'<g{nodes}>{title(box.details)}<rect x="{x:.1f}" y="{y:.1f}" width="{BOX}" height="{height}" rx="7" '
        f'fill="var(--card)" stroke="var(--line)"{dash}/>',
        f'<rect x="{x:.1f}" y="{y:.1f}" width="5" height="{height}" rx="2.5" fill="{colour}"/>',
    ]
    if box.rows is not None and flow.n:
        share = (BOX - 14) * box.rows / flow.n
        out.append(
            f'<rect x="{x + 10:.1f}" y="{y + height - 7:.1f}" width="{share:.1f}" height="3" rx="1.5" fill="{colour}"/>'
        )
    for k, line in enumerate((box.title, *box.lines)):
        look = ' style="font-weight:600"' if k == 0 else ' class="soft"'
        out.append(
            f'<text{look} x="{x + 14:.1f}" y="{y + PADDING + 9 + LINE * k:.1f}">{safe(line, MAX_LETTERS[k > 0])}</text>'
        )
    return "".join([*out, "</g>"])


def _arrows(flow: Flow, ways: dict[tuple[int, int], list[Item]], tops: list[float]) -> list[str]:
    """Wide arrows first, so that narrow ones lie above them; their ends lie side by side at a box."""
    starts = _ports(flow, ways, by_source=True)
    ends = _ports(flow, ways, by_source=False)
    out = []
    for a in sorted(flow.arrows, key=lambda a: -(a.rows or 0)):
        way = ways[a.source, a.target]
        points = [(starts[a], tops[way[0].layer] + _height(flow.boxes[a.source]))]
        points += [(lane.x, tops[lane.layer] + shift) for lane in way[1:-1] for shift in (0, BETWEEN / 2)]
        points.append((ends[a], tops[way[-1].layer]))
        colour = COLOURS.get(flow.boxes[a.target].kind, "var(--soft)")
        colour = "var(--soft)" if flow.boxes[a.target].kind == BUY else colour
        words = "" if a.rows is None else title(f"{a.rows} of {flow.n} rows")
        out.append(
            f'<path data-way="{a.source} {a.target}" d="{_curve(points)}" fill="none" stroke="{colour}" '
            f'stroke-opacity=".45" '
            f'stroke-width="{_thickness(flow, a):.1f}">{words}</path>'
        )
        if a.label:
            x, y = points[0]
            out.append(
                f'<text class="soft" x="{x + _thickness(flow, a) / 2 + 4:.1f}" y="{y + 14:.1f}">{a.label}</text>'
            )
    return out


def _thickness(flow: Flow, arrow: Arrow) -> float:
    return FINEST if arrow.rows is None or not flow.n else max(FINEST, WIDEST * arrow.rows / flow.n)


def _ports(flow: Flow, ways: dict[tuple[int, int], list[Item]], *, by_source: bool) -> dict[Arrow, float]:
    """Where each arrow leaves its source, or enters its target: side by side, in the order of the ways."""
    out: dict[Arrow, float] = {}
    for k in range(len(flow.boxes)):
        own = [a for a in flow.arrows if k == (a.source if by_source else a.target)]
        own.sort(key=lambda a: ways[a.source, a.target][1 if by_source else -2].x)
        room = 34.0 if by_source else 4.0  # between arrows; labels stand at their sources
        x = -(sum(_thickness(flow, a) for a in own) + room * (len(own) - 1)) / 2
        for a in own:
            middle = ways[a.source, a.target][0 if by_source else -1].x
            out[a] = middle + x + _thickness(flow, a) / 2
            x += _thickness(flow, a) + room
    return out


def _curve(points: list[tuple[float, float]]) -> str:
    """A smooth way from point to point, vertical at each of them."""
    (x, y), *rest = points
    out = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        out.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(out)


# ---------------------------------------------------------------- the layout in layers


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
