# SPDX-License-Identifier: Apache-2.0
"""Plans: what to read next in each state, as nodes of a program. docs/math.md (105), (106).

A plan ships some sets, each with a model. A state is the set of sensors read so far; its answer is that of the most
accurate shipped subset. The nodes are ``Select``, ``Acquire`` and ``Answer`` as every program has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hardcase_edge.program.definition import ARGMAX, Acquire, Answer, Branch, Candidate, Node, Select, targets_of
from hardcase_edge.program.reads import led

from .by_answer import ByAnswer
from .greedy import Sequences, prefixes
from .index import Set
from .sets import Costs, Polynomial, members
from .signs import is_never_below, minus

MOST_LOST = 1  # sensors that may fail in a decision before an any-time plan reads no more
LEAST_GAIN = 3e-4  # of accuracy, over all items in a state, for an answer to have choices of its own


@dataclass(frozen=True)
class Shipped:
    """The sets that have models, the empty one among them, most accurate first.

    by_answer : what is known of them for each answer; None: the next reading depends on size and time alone
    """

    sets: tuple[Set, ...]
    costs: Costs
    by_answer: ByAnswer | None = None

    def best_within(self, state: int) -> Set:
        """The most accurate shipped subset of a state."""
        return next(s for s in self.sets if s.mask & ~state == 0)

    def missing(self, state: int, mask: int) -> Polynomial:
        """What is still to be paid for a set: the sum of the costs of its sensors that the state lacks."""
        return self.costs.of(mask & ~state)

    def choices(self, state: int, lost: int = 0, gains: Mapping[int, float] | None = None) -> list[Set]:
        """The sets that may be the best to read next, most accurate first, at what they still cost.

        They are supersets of the state without the sensors that are lost. Where some are lost and no superset is
        better, they are any other sets, because the state may lead only to sets that need what is lost.

        Parameters
        ----------
        gains : of accuracy over the state's answer, by mask; None: those of all items
        """
        own = self.best_within(state).accuracy
        sets = [s for s in self.sets if not s.mask & lost]
        if gains is None:
            better = [s for s in sets if s.accuracy > own]
        else:
            gaining = sorted((s for s in sets if gains[s.mask] > 0 and s.mask != state), key=lambda s: -gains[s.mask])
            better = [replace(s, accuracy=own + gains[s.mask]) for s in gaining]
        larger = [s for s in better if not state & ~s.mask]
        kept: list[Set] = []
        for s in larger or (better if lost else ()):
            if not any(self._is_never_below(s.mask & ~state, other.mask & ~state) for other in kept):
                kept.append(s)
        return [replace(s, cost=self.missing(state, s.mask)) for s in kept]

    def _is_never_below(self, one: int, other: int) -> bool:
        """Whether reading a set costs at least as much as reading another, for items of every size."""
        if (one, other) not in self._compared:
            difference = minus(self.costs.of(one), self.costs.of(other))
            self._compared[one, other] = is_never_below(difference, 1, self.costs.largest)
        return self._compared[one, other]

    @cached_property
    def _compared(self) -> dict[tuple[int, int], bool]:
        return {}

    def by_class(self, state: int, lost: int = 0) -> list[list[Set]]:
        """The choices of each answer of a state's model, or those of all items alone, if no answer's own gain more."""
        common, best = self.choices(state, lost), self.best_within(state).mask
        if self.by_answer is None or not best or not common:
            return [common]
        masks, ways = [s.mask for s in self.sets], []
        for share, row in zip(self.by_answer.shares(best), self.by_answer.gains(best, masks).tolist(), strict=True):
            gains = dict(zip(masks, row, strict=True))
            own = self.choices(state, lost, gains) if share > LEAST_GAIN else common
            ways.append(own if share * self._more(own, common, gains) > LEAST_GAIN else common)
        return ways if any(way is not common for way in ways) else [common]

    def _more(self, own: list[Set], common: list[Set], gains: Mapping[int, float]) -> float:
        """What an answer's own choices gain over the common ones, on the mean over budgets at the middle size."""
        size = (self.costs.largest + 1) // 2
        budgets = sorted({s.at(size) for s in (*own, *common)})

        def value(choices: list[Set], budget: int) -> float:
            return next((gains[s.mask] for s in choices if s.at(size) <= budget), 0.0)

        return sum(value(own, b) - value(common, b) for b in budgets) / len(budgets)

    def first(self, state: int, target: int) -> int:
        """The sensor to read first on the way to a set: of the cheapest way to a better answer, the cheapest."""
        amounts = self.costs.at((self.costs.largest + 1) // 2)
        accuracy = self.best_within(state).accuracy
        ways = [s.mask & ~state for s in self.sets if s.mask & ~target == 0 and s.accuracy > accuracy]
        way = min(ways or [target & ~state], key=lambda mask: (amounts[mask], mask))
        return min(members(way), key=lambda k: (amounts[1 << k], k))


class _Nodes:
    """Nodes that name their targets by keys until all are there; answers come last."""

    def __init__(self) -> None:
        self._made: dict[object, Callable[[Callable[[object], int]], Node]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._made

    def add(self, key: object, make: Callable[[Callable[[object], int]], Node]) -> None:
        """A node; ``make`` gets a function that says the number of a key."""
        self._made[key] = make

    def numbered(self, answers: Sequence[Answer]) -> tuple[Node, ...]:
        """The nodes that can be reached; the key of an answer is its own number."""
        place = {key: k for k, key in enumerate(self._made)}
        n = len(place)
        nodes = [make(lambda key: n + key if isinstance(key, int) else place[key]) for make in self._made.values()]
        return _reached([*nodes, *answers])


def _reached(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that can be reached from the first, renumbered."""
    reached = {0}
    for k, node in enumerate(nodes):
        if k in reached:
            reached |= set(targets_of(node))
    place = {old: new for new, old in enumerate(sorted(reached))}
    return tuple(led(nodes[k], place.__getitem__) for k in sorted(reached))


def index_nodes(shipped: Shipped, answers: Sequence[Answer]) -> tuple[Node, ...]:
    """Poly-Dom: the most accurate set that fits is read as a whole.

    Where nothing fits, or a sensor fails, the empty set's model answers. ``answers``: of each shipped set, in order.
    """
    nodes, sets = _Nodes(), [s for s in shipped.sets if s.mask]
    places = {s.mask: k for k, s in enumerate(shipped.sets)}
    nothing = places[0]
    if not sets:
        return (answers[nothing],)
    nodes.add(
        "select",
        lambda at: Select(
            tuple(Candidate(shipped.costs.largest, s.cost, at(("read", s.mask))) for s in sets), at(nothing)
        ),
    )
    for s in sets:

        def acquire(at: Callable[[object], int], mask: int = s.mask) -> Node:
            return Acquire(members(mask), at(places[mask]), at(nothing))

        nodes.add(("read", s.mask), acquire)
    return nodes.numbered(answers)


def anytime_nodes(shipped: Shipped, answers: Sequence[Answer], most_lost: int = MOST_LOST) -> tuple[Node, ...]:
    """The hybrid: after each sensor, a ``Select`` of what is left to read; otherwise the best answer so far.

    Where the sets are known by answer, a ``Branch`` on the answer so far leads to a ``Select`` of its own.
    A sensor that fails is lost: the plan goes on with the sets without it. After ``most_lost`` of them, the answer is
    that of what is there.
    """
    places = {s.mask: k for k, s in enumerate(shipped.sets)}
    nodes, waiting, ways = _Nodes(), [(0, 0)], {(0, 0): shipped.by_class(0)}

    def key_of(state: int, lost: int) -> object:
        """The key of a state's node: its answer, if there is nothing better to read."""
        return ("choose", state, lost) if any(ways[state, lost]) else places[shipped.best_within(state).mask]

    def visit(state: int, lost: int) -> None:
        if (state, lost) not in ways:
            ways[state, lost] = shipped.by_class(state, lost)
            waiting.append((state, lost))

    while waiting:
        waiting.sort(key=lambda pair: (pair[0].bit_count() + pair[1].bit_count(), pair))
        here = state, lost = waiting.pop(0)
        if not any(ways[here]):
            continue
        answer, is_last = places[shipped.best_within(state).mask], lost.bit_count() == most_lost
        lists = [[(s.cost, shipped.first(state, s.mask)) for s in choices] for choices in ways[here]]
        firsts = list(dict.fromkeys(sensor for choices in lists for _, sensor in choices))
        for sensor in firsts:
            visit(state | 1 << sensor, lost)
            if not is_last:
                visit(state, lost | 1 << sensor)
        different = list(dict.fromkeys(tuple(choices) for choices in lists))
        if len(different) > 1:
            keys = [("choose", *here, different.index(tuple(choices))) if choices else answer for choices in lists]

            def branch(at: Callable[[object], int], keys: Sequence[object] = keys, answer: int = answer) -> Node:
                return Branch(answers[answer].scores, ARGMAX, tuple(at(key) for key in keys))

            nodes.add(("choose", *here), branch)
        for k, choices in enumerate(different):

            def select(
                at: Callable[[object], int],
                here: tuple[int, int] = here,
                choices: tuple[tuple[Polynomial, int], ...] = choices,
                answer: int = answer,
            ) -> Node:
                options = (Candidate(shipped.costs.largest, cost, at(("read", *here, s))) for cost, s in choices)
                return Select(tuple(options), at(answer))

            if choices:
                nodes.add(("choose", *here, k) if len(different) > 1 else ("choose", *here), select)
        for sensor in firsts:
            then = key_of(state | 1 << sensor, lost)
            otherwise = answer if is_last else key_of(state, lost | 1 << sensor)

            def acquire(
                at: Callable[[object], int], sensor: int = sensor, then: object = then, otherwise: object = otherwise
            ) -> Node:
                return Acquire((sensor,), at(then), at(otherwise))

            nodes.add(("read", state, lost, sensor), acquire)
    return nodes.numbered(answers)


def sequence_nodes(
    shipped: Shipped,
    groups: Sequence[tuple[int, Sequences]],
    answers: Sequence[Answer],
    keeps: Callable[[int], bool] = lambda mask: True,
) -> tuple[Node, ...]:
    """Greedy: begin on the order of the best set that the budget allows at the order's size, and follow it.

    ``groups``: sequences and the largest item for which each serves, by rising size. ``keeps``: whether a decision may
    read a set, by its mask.
    """
    places = {s.mask: k for k, s in enumerate(shipped.sets)}
    nodes = _Nodes()

    def select(at: Callable[[object], int]) -> Node:
        options = []
        for g, (largest, sequences) in enumerate(groups):
            useful = _lengths(shipped, sequences, keeps)
            starts = [(s, o) for s, o in sequences.starts if useful[o]] or sequences.starts
            heads = {o: at(("read", g, o, 0)) if useful[o] else at(places[0]) for _, o in starts}
            for start, order in starts:
                options.append(Candidate(largest, (start.at(sequences.size),), heads[order]))
            # nothing fits at that size, but it may at this item's
            options.append(Candidate(largest, (0,), heads[starts[-1][1]]))
        return Select(tuple(options), at(places[0]))

    nodes.add("select", select)
    for g, (_, sequences) in enumerate(groups):
        used, useful = {order for _, order in sequences.starts}, _lengths(shipped, sequences, keeps)
        for o, order in enumerate(sequences.orders):
            states, length = [0, *prefixes(order)], useful[o]
            for k, sensor in enumerate(order[:length] if o in used else ()):
                before, end = (places[shipped.best_within(state).mask] for state in states[k : k + 2])
                after: object = ("read", g, o, k + 1) if k + 1 < length else end

                def acquire(
                    at: Callable[[object], int], sensor: int = sensor, after: object = after, before: int = before
                ) -> Node:
                    return Acquire((sensor,), at(after), at(before))

                nodes.add(("read", g, o, k), acquire)
    return nodes.numbered(answers)


def _lengths(shipped: Shipped, sequences: Sequences, keeps: Callable[[int], bool]) -> list[int]:
    """How many sensors of each order are worth reading: up to the last that leads to a better answer."""
    lengths = []
    for order in sequences.orders:
        states = [0, *(mask for mask in prefixes(order) if keeps(mask))]
        accuracies = [shipped.best_within(state).accuracy for state in states]
        lengths.append(max((k + 1 for k in range(len(states) - 1) if accuracies[k + 1] > accuracies[k]), default=0))
    return lengths
