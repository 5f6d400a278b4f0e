# SPDX-License-Identifier: Apache-2.0
"""The boxes of a policy's picture: which nodes of a program stand together, in words, and how many boxes are shown.

Nodes that always follow each other share a box: "buy these sensors, then ask whether the answer is sure". Nodes that no
row passes (or, without rows, that only failures lead to) are counted and left out. If boxes are still too many, those
that most rows pass are shown, and one box stands for the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.value import Value
from hardcase_edge.program.cost import Meter, to_unit
from hardcase_edge.program.definition import MARGIN, THRESHOLD, Acquire, Answer, Branch, Forward, Node, Program, Select

from ..measuring.measure import NodeFigures
from .page import amount, percent

BUY, CHOOSE, ANSWER, CLOUD, MORE = "buy", "choose", "answer", "cloud", "more"
MAX_BOXES = 32
MAX_BOXES_WITHOUT_ROWS = 14
MAX_NAMES = 28  # letters of the sensors in a title


@dataclass(frozen=True)
class Box:
    """One box. ``rows``: how many pass it, None without rows; ``details`` is its tooltip. Texts are not yet escaped.

    ``nodes``: of the program, for which it stands.
    """

    kind: str
    title: str
    lines: tuple[str, ...]
    rows: int | None
    details: str = ""
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """From one box to another, by number; ``rows``: how many go that way, None without rows."""

    source: int
    target: int
    rows: int | None
    label: str = ""


@dataclass(frozen=True)
class Flow:
    """Boxes, the first of which is the start, and arrows, over ``n`` rows (None: without rows).

    ``left_out``: number of nodes that are not in the picture, because no row passes them.
    """

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    n: int | None
    left_out: int


def flow_of(program: Program, manifest: Manifest, figures: NodeFigures | None) -> Flow:
    """The boxes of a program.

    Parameters
    ----------
    figures : of its nodes on some rows; None: the picture has no shares
    """
    limit = MAX_BOXES_WITHOUT_ROWS if figures is None else MAX_BOXES
    steps = _normal_steps(program) if figures is None else figures.steps
    runs = _runs(program, steps)
    run_of = {node: k for k, run in enumerate(runs) for node in run}
    links: Counter[tuple[int, int]] = Counter()
    for (a, b), rows in steps.items():
        if run_of[a] != run_of[b]:
            links[run_of[a], run_of[b]] += rows
    shown = _most_used(runs, links, figures, limit)
    writer = _Writer(program, manifest, figures)
    place = {run: k for k, run in enumerate(shown)}
    boxes = [replace(writer.box(runs[run]), nodes=tuple(runs[run])) for run in shown]
    if len(shown) < len(runs):
        rest = [node for k, run in enumerate(runs) if k not in place for node in run]
        boxes.append(replace(writer.rest(rest), nodes=tuple(rest)))
    merged: Counter[tuple[int, int]] = Counter()
    for (a, b), rows in links.items():
        if a in place:
            merged[place[a], place.get(b, len(shown))] += rows
    labels = {(place[run_of[a]], place.get(run_of[b], -1)): word for (a, b), word in writer.labels() if
              a in run_of and b in run_of and run_of[a] in place}  # fmt: skip
    arrows = [Arrow(a, b, None if figures is None else r, labels.get((a, b), "")) for (a, b), r in merged.items()]
    left_out = len(program.nodes) - sum(map(len, runs))
    return Flow(tuple(boxes), tuple(arrows), None if figures is None else figures.n, left_out)


# ---------------------------------------------------------------- which nodes


def _normal_steps(program: Program) -> dict[tuple[int, int], int]:
    """The ways from node to node if every sensor works and the cloud replies, from node 0 on."""
    steps: dict[tuple[int, int], int] = {}
    reached = {0}
    for k, node in enumerate(program.nodes):
        if k in reached:
            targets = set(_normal_targets(node))
            steps |= {(k, t): 0 for t in sorted(targets)}
            reached |= targets
    return steps


def _normal_targets(node: Node) -> Iterator[int]:
    if isinstance(node, Acquire):
        yield node.then
    elif isinstance(node, Branch):
        yield from node.targets
    elif isinstance(node, Select):
        yield from (*(c.target for c in node.candidates), node.otherwise)


def _runs(program: Program, steps: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """The nodes in use, in runs: a node follows in the run of another if it is the only way on from there, and back."""
    ways_on = Counter(a for a, _ in steps)
    ways_back = Counter(b for _, b in steps)
    before = {b: a for a, b in steps}
    runs: list[list[int]] = []
    run_of: dict[int, int] = {}
    for node in sorted({0, *(k for step in steps for k in step)}):
        is_end = isinstance(program.nodes[node], Answer | Forward)
        if ways_back[node] == 1 and ways_on[before[node]] == 1 and not is_end:
            run_of[node] = run_of[before[node]]
            runs[run_of[node]].append(node)
        else:
            run_of[node] = len(runs)
            runs.append([node])
    return runs


def _most_used(
    runs: list[list[int]], links: Mapping[tuple[int, int], int], figures: NodeFigures | None, limit: int
) -> list[int]:
    """Numbers of the runs that are shown, in their order: from the first on, always the most used one in reach."""
    if len(runs) <= limit:
        return list(range(len(runs)))
    shown, reach = {0}, {b for a, b in links if a == 0}
    while reach and len(shown) < limit - 1:
        best = min(reach, key=lambda k: (-figures.rows[runs[k][0]] if figures else 0, k))
        shown.add(best)
        reach = (reach | {b for a, b in links if a == best}) - shown
    return sorted(shown)


# ---------------------------------------------------------------- words


class _Writer:
    """The words of boxes."""

    def __init__(self, program: Program, manifest: Manifest, figures: NodeFigures | None) -> None:
        self.program, self.manifest, self.figures = program, manifest, figures
        self.meters = Meter(program), Meter(program, program.max_item_size)

    def box(self, run: list[int]) -> Box:
        nodes = [self.program.nodes[k] for k in run]
        last, rows = run[-1], self._rows(run[0])
        if isinstance(nodes[0], Answer):
            return Box(ANSWER, "answer", self._ended(last), rows, f"node {last}: {self._answers()}")
        if isinstance(nodes[0], Forward):
            return Box(
                CLOUD, "ask f0 in the cloud", (self._request(nodes[0]), *self._ended(last)), rows, f"node {last}"
            )
        sensors = [s for node in nodes if isinstance(node, Acquire) for s in node.sensors]
        questions = [self._question(node) for node in nodes if isinstance(node, Branch)]
        words = questions if sensors else questions[1:] or ["by the item's size or the budget"] * (not questions)
        names = [self.manifest.sensors[s] for s in sensors]
        title = f"buy {_some(names)}" if sensors else (questions or ["choose"])[0]
        lines = (*([self._price(sensors)] if sensors else []), *words, *self._passed(last))
        details = f"nodes {run[0]} to {last}" + (f": {', '.join(names)}" if names else "")
        return Box(BUY if sensors else CHOOSE, title, lines, rows, details)

    def _answers(self) -> str:
        return "the class of the best score" if self.program.n_classes else "the score as a value"

    def rest(self, nodes: list[int]) -> Box:
        """The box that stands for all nodes that are not shown."""
        title = f"{len(nodes)} more nodes"
        if self.figures is None:
            return Box(MORE, title, (), None)
        ended, lost = sum(self.figures.ended[k] for k in nodes), sum(self.figures.lost[k] for k in nodes)
        lines = (f"{percent(ended / self.figures.n)} of rows end there", error_words(lost, ended, self.manifest.value))
        return Box(MORE, title, lines, ended)

    def labels(self) -> Iterator[tuple[tuple[int, int], str]]:
        """(node, next node) and the answer to the node's question that leads there."""
        for k, node in enumerate(self.program.nodes):
            if isinstance(node, Branch) and node.rule in (MARGIN, THRESHOLD) and node.targets[0] != node.targets[1]:
                yield (k, node.targets[0]), "no"
                yield (k, node.targets[1]), "yes"

    def _question(self, node: Branch) -> str:
        if node.rule == THRESHOLD:
            return f"gate: score above {_number(node.threshold)}?"
        if node.rule != MARGIN:
            return f"the best of {len(node.targets)} ways"
        confidence = self._confidence(node)
        return f"sure? margin ≥ {_number(node.threshold)}" + (f" ({confidence} right)" if confidence else "")

    def _confidence(self, node: Branch) -> str:
        """The confidence of an answer by the same scores whose margin just suffices; empty if no answer reads them."""
        for target in node.targets:
            answer = self.program.nodes[target]
            if isinstance(answer, Answer) and answer.scores == node.scores:
                return f"{answer.confidences[bisect_right(answer.margins, node.threshold)] / 100:.0f} %"
        return ""

    def _price(self, sensors: list[int]) -> str:
        low, high = (amount(to_unit(meter.buy(set(sensors)))) for meter in self.meters)
        return f"{low} {self.manifest.unit}" if low == high else f"{low} to {high} {self.manifest.unit}"

    def _request(self, node: Forward) -> str:
        price = f"{amount(to_unit(self.meters[0].request_cost))} {self.manifest.unit}"
        return f"request {price}, of {len(node.sensors)} sensors"

    def _rows(self, node: int) -> int | None:
        return None if self.figures is None else self.figures.rows[node]

    def _passed(self, node: int) -> tuple[str, ...]:
        if self.figures is None:
            return ()
        f = self.figures
        return (f"{percent(f.rows[node] / f.n)} of rows, {amount(f.cost[node])} {self.manifest.unit} so far",)

    def _ended(self, node: int) -> tuple[str, ...]:
        if self.figures is None:
            return ()
        f = self.figures
        return (
            f"{percent(f.rows[node] / f.n)} of rows, {amount(f.cost[node])} {self.manifest.unit}",
            error_words(f.lost[node], f.ended[node], self.manifest.value),
        )


def error_words(lost: float, n: int, value: Value | None) -> str:
    """The error of ``n`` answers: the share of wrong classes, or the root mean square error of values.

    >>> error_words(1, 60, None).replace("\\xa0", " ")
    'error 1.7 % (1 of 60)'
    """
    if not n:
        return "no row ends here"
    if value is not None:
        return f"RMSE {amount((lost / n) ** 0.5)} {value.unit}".rstrip()
    return f"error {percent(lost / n)} ({lost:.0f} of {n})"


def _some(names: list[str]) -> str:
    """As many names as fit a title, at least one, and the number of the others."""
    for n in range(len(names), 0, -1):
        rest = f" and {len(names) - n} more" if n < len(names) else ""
        text = ", ".join(names[:n]) + rest
        if len(text) <= MAX_NAMES or n == 1:
            return text if n > 1 or len(text) <= MAX_NAMES else f"{names[0][: MAX_NAMES - len(rest) - 1]}…{rest}"
    return ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
