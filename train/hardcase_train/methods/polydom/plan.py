# SPDX-License-Identifier: Apache-2.0
"""Plans: what to read next in each state, as nodes of a program. docs/math.md (105), (106).

A plan ships some sets, each with a model. A state is the set of sensors read so far; its answer is that of the most
accurate shipped subset. The nodes are ``Select``, ``Acquire`` and ``Answer`` as every program has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hardcase_edge.program.definition import Acquire, Answer, Candidate, Node, Select, led, targets_of

from .greedy import Sequences, prefixes
from .index import Set
from .sets import Costs, Polynomial, members
from .signs import is_never_below, minus

__all__ = ["MOST_LOST", "Shipped", "anytime_nodes", "index_nodes", "sequence_nodes"]

MOST_LOST = 1  # sensors that may fail in a decision before an any-time plan reads no more


@dataclass(frozen=True)
class Shipped:
    """The sets that have models, the empty one among them, most accurate first."""

    sets: tuple[Set, ...]
    costs: Costs

    def best_within(self, state: int) -> Set:
        """The most accurate shipped subset of a state."""
        return next(s for s in self.sets if s.mask & ~state == 0)

    def missing(self, state: int, mask: int) -> Polynomial:
        """What is still to be paid for a set: the sum of the costs of its sensors that the state lacks."""
        return self.costs.of(mask & ~state)

    def choices(self, state: int, lost: int = 0) -> list[Set]:
        """The sets that may be the best to read next, most accurate first, at what they still cost.

        They are supersets of the state without the sensors that are lost. Where some are lost and no superset is
        better, they are any other sets, because the state may lead only to sets that need what is lost.
        """
        accuracy = self.best_within(state).accuracy
        better = [s for s in self.sets if s.accuracy > accuracy and not s.mask & lost]
        larger = [s for s in better if not state & ~s.mask]
        kept: list[Set] = []
        for s in larger or (better if lost else ()):
            cost = self.missing(state, s.mask)
            if not any(is_never_below(minus(cost, other.cost), 1, self.costs.largest) for other in kept):
                kept.append(replace(s, cost=cost))
        return kept

    def first(self, state: int, target: int) -> int:
        """The sensor to read first on the way to a set: of the cheapest way to a better answer, the cheapest."""
        amounts = self.costs.at((self.costs.largest + 1) // 2)
        accuracy = self.best_within(state).accuracy
        ways = [s.mask & ~state for s in self.sets if s.mask & ~target == 0 and s.accuracy > accuracy]
        way = min(ways, key=lambda mask: (amounts[mask], mask))
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

    A sensor that fails is lost: the plan goes on with the sets without it. After ``most_lost`` of them, the answer is
    that of what is there.
    """
    places = {s.mask: k for k, s in enumerate(shipped.sets)}
    nodes, waiting, choices = _Nodes(), [(0, 0)], {(0, 0): shipped.choices(0)}

    def key_of(state: int, lost: int) -> object:
        """The key of a state's node: its answer, if there is nothing better to read."""
        return ("choose", state, lost) if choices[state, lost] else places[shipped.best_within(state).mask]

    def visit(state: int, lost: int) -> None:
        if (state, lost) not in choices:
            choices[state, lost] = shipped.choices(state, lost)
            waiting.append((state, lost))

    while waiting:
        waiting.sort(key=lambda pair: (pair[0].bit_count() + pair[1].bit_count(), pair))
        state, lost = waiting.pop(0)
        if not choices[state, lost]:
            continue
        firsts = [shipped.first(state, s.mask) for s in choices[state, lost]]
        answer = places[shipped.best_within(state).mask]
        is_last = lost.bit_count() == most_lost
        for sensor in dict.fromkeys(firsts):
            visit(state | 1 << sensor, lost)
            if not is_last:
                visit(state, lost | 1 << sensor)

        def select(
            at: Callable[[object], int],
            here: tuple[int, int] = (state, lost),
            firsts: list[int] = firsts,
            answer: int = answer,
        ) -> Node:
            pairs = zip(choices[here], firsts, strict=True)
            options = (Candidate(shipped.costs.largest, s.cost, at(("read", *here, k))) for s, k in pairs)
            return Select(tuple(options), at(answer))

        nodes.add(("choose", state, lost), select)
        for sensor in dict.fromkeys(firsts):
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
