# SPDX-License-Identifier: Apache-2.0
"""The image: a verified program as one flat, aligned array of bytes that the C kernel executes in place.

``layout.py`` names every word, and docs/SPEC-image-v1.md says what they mean. An image makes the same decisions as its
program, but it is not an exchange format: each machine makes it from the bundle, for its own version of the kernel.

``Image`` works in two passes. The first, in ``__init__``, looks at every scorer: it groups the trees of ensembles and
collects the cells that scorers read (``cells.py``), because a cell's number and width depend on all of its readers. The
second, ``pack``, appends sections (``sections.py``) in this order:

    header       128 bytes (136 where a decision costs something at its start), reserved first and filled in last,
                 when all offsets are known
    sensors      rules of their columns, coefficients of their costs and the numbers of the scorers that read them;
                 then all features, all columns, and all sensor records
    scorers      trees, weights and biases, each scorer's words after the data that they refer to; then the table of
                 the scorers' offsets
    nodes        the same: the numbers of each node, its words, and the table of offsets

Data come before the records that refer to them, so every offset is known when it is written and points backwards; equal
runs are stored once. The kernel addresses everything by offset and follows no pointer, so an image can lie in flash or
in a file. Features, columns and cells are renumbered so that what a feed or a scorer reads together lies together;
sensors, nodes, scorers and outputs keep the program's numbers, because sessions report them. A tree that several stacks
read is a scorer of its own behind these: it keeps its value until a sensor that it reads is fed.

The image also fixes the memory of a session (``Memory``): the keys of readings that inlined ensembles compare, what
networks are lent, scores, the request, wide cells, the trace, winners of a tournament, flags and small cells. The
widest types come first, which leaves little padding, and cells with missing to the left precede those with missing to
the right, so that the kernel resets each kind by filling one range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import assert_never

from ..errors import ImageError
from ..program.cost import Meter
from ..program.definition import (
    LAYERS,
    Acquire,
    Answer,
    Branch,
    Forward,
    Network,
    Node,
    Opaque,
    Polynomial,
    Program,
    Select,
    Sensor,
    Stack,
    Trees,
    offsets_of,
    targets_of,
)
from ..program.format import RULES
from ..program.kinds import ANSWERS
from ..program.limits import MAX_SCORERS
from ..program.readings import DTYPES
from ..program.reads import indices_of, read_by_trees, readers_of, shared_trees
from ..program.stored_trees import Outline, outline_of
from ..verifier.networks import scratch_bytes
from . import layout
from .cells import Cells, Splits
from .ensembles import Ensemble, plan_ensemble
from .reading_keys import Keys
from .sections import Sections

KERNEL_BYTES = 10_240  # of flash at most, for the kernel and the loop of a decision on any Cortex-M core


def make_image(program: Program, outlines: Sequence[Outline] | None = None, moved: Collection[int] = ()) -> bytes:
    """The image of a verified, quantised program.

    Parameters
    ----------
    program : Program
    outlines : the outlines of the verifier's report; None: they are computed again
    moved : Branch nodes whose thresholds ``hc_move`` may set, in an image that lies in RAM

    Raises
    ------
    ImageError
        The kernel cannot run this program, which then runs in Python: it has an opaque scorer, or it is a draft.
    """
    return Image(program, outlines=outlines, moved=moved).pack()


class Image:
    """A program on its way to bytes. ``inlined``: ensembles that are exported as C code instead of tables."""

    def __init__(
        self,
        program: Program,
        inlined: Iterable[int] = (),
        outlines: Sequence[Outline] | None = None,
        moved: Collection[int] = (),
    ) -> None:
        self.p = program
        self.moved = frozenset(moved)
        self.inlined = frozenset(inlined)
        self.session_bytes = 0  # known after pack
        self.start_cost = Meter(program).start()
        self.out = Sections((layout.MORE if self.start_cost else layout.PARTS).n_bytes)
        self.cells = Cells(program)
        self.keys = Keys(program, sorted(self.inlined))
        self.ensembles: dict[int, Ensemble] = {}
        for k, scorer in enumerate(program.scorers):
            if isinstance(scorer, Opaque):
                raise ImageError(f"scorer {k} is a TFLite model, which runs in Python only")
            if isinstance(scorer, Polynomial | Network):
                self.cells.want_polynomial(scorer.columns)
            elif isinstance(scorer, Trees):
                keyed = {c for c in scorer.columns if self.keys.has(c)} if k in self.inlined else set()
                outline = outlines[k] if outlines else outline_of(scorer.trees)
                self.ensembles[k] = plan_ensemble(scorer, outline, self.cells, keyed)
            elif not isinstance(scorer, Stack):
                raise ImageError(f"scorer {k} is of kind {type(scorer).__name__}, which the kernel does not know yet")
        trees = [(k, m) for k, members in shared_trees(program).items() for m in members]
        trees = trees[: MAX_SCORERS - len(program.scorers)]  # others are walked for each stack
        self.leaves = {tree: len(program.scorers) + i for i, tree in enumerate(trees)}
        lent = [sum(scratch_bytes(s)) for s in program.scorers if isinstance(s, Network)]
        self.memory = Memory()
        self.memory.take(self.keys.n_bytes, 8)
        self.at_lent = self.memory.take(max(lent), 8) if lent else 0  # networks take turns
        self.cells.number()
        self._splits = [Splits(self.cells, is_small) for is_small in (False, True)]

    def pack(self) -> bytes:
        """All bytes of the image; sets ``session_bytes``."""
        p, out = self.p, self.out
        first = [0, *accumulate(len(offsets_of(s)) for s in p.scorers)]
        at_sensors = self._sensors()
        n_scorers, n_scores = len(p.scorers) + len(self.leaves), first[-1] + len(self.leaves)
        records = [self._scorer(k, first[k]) for k in range(len(p.scorers))]
        records += [
            out.i32([*_head(layout.SCORER.LEAF, 1, first[-1] + i), k, *self.ensembles[k].place[m]])
            for i, (k, m) in enumerate(self.leaves)
        ]
        at_scorers = out.i32(records)
        at_nodes = out.i32([self._node(k, node) for k, node in enumerate(p.nodes)])
        steps = _longest_path(p.nodes)
        entrants = max((2 * len(n.targets) - 1 for n in p.nodes if isinstance(n, Branch) and n.bracket), default=0)
        request = sum(DTYPES[p.features[f].dtype].size for f in p.uplink.features)
        small_left, small, wide_left, wide = self.cells.counts
        memory = self.memory
        parts = layout.PARTS.pack(
            scores=memory.take(8 * n_scores, 8), request=memory.take(request, 8), wide=memory.take(2 * wide, 2),
            trace=memory.take(2 * steps, 2), winners=memory.take(2 * entrants, 2),
            sensors=memory.take(len(p.sensors), 1), is_scored=memory.take(n_scorers, 1), small=memory.take(small, 1),
        )  # fmt: skip
        self.session_bytes = memory.total()
        size = out.close()
        head = layout.HEADER.pack(
            magic=layout.MAGIC_MORE if self.start_cost else layout.MAGIC, image_bytes=size,
            session_bytes=self.session_bytes,
            features=len(p.features), sensors=len(p.sensors), columns=len(self.cells.columns), scorers=n_scorers,
            nodes=len(p.nodes), classes=p.n_classes, item_size=p.max_item_size,
            at_features=self.at_features, at_sensors=at_sensors, at_columns=self.at_columns, at_scorers=at_scorers,
            at_nodes=at_nodes, request_bytes=request, request_cost=Meter(p).request_cost,
            small_left=small_left, small=small, wide_left=wide_left, wide=wide, steps=steps, entrants=entrants,
        )  # fmt: skip
        more = layout.MORE.pack(start_cost=self.start_cost) if self.start_cost else b""
        return out.pack(head + parts + more)

    # ------------------------------------------------------------ sensors, features, columns

    def _sensors(self) -> int:
        p, out = self.p, self.out
        sent, n_sent = {}, 0
        for f in p.uplink.features:
            sent[f] = n_sent
            n_sent += DTYPES[p.features[f].dtype].size
        trees = read_by_trees(p) if self.leaves else {}
        readers = readers_of(p)
        leaf_readers: list[list[int]] = [[] for _ in p.sensors]
        for (ensemble, tree), number in self.leaves.items():
            for sensor in indices_of(trees[ensemble][tree]):
                leaf_readers[sensor].append(number)
        records: list[int] = []
        features, columns, n_features, n_columns = bytearray(), bytearray(), 0, 0
        for k, s in enumerate(p.sensors):
            n_bytes, before, is_direct = 0, n_columns, True
            for f in s.features:
                feature, dtype = p.features[f], DTYPES[p.features[f].dtype]
                features += layout.FEATURE.pack(
                    uplink=sent.get(f, layout.NOT_SENT), type=dtype.number, nullable=feature.nullable
                )
                n_bytes += -n_bytes % dtype.size
                for record in self.cells.records(f, n_bytes, out):
                    columns += record
                    is_direct = is_direct and record[:2] == bytes([layout.RULE.DIRECT, 0])
                    n_columns += 1
                n_bytes += dtype.size
            scorers = [*readers[k], *leaf_readers[k]]  # feeding it invalidates their scores
            records += layout.SENSOR.words(
                feature=n_features, features=len(s.features), column=before, columns=n_columns - before,
                cost=out.i64(s.cost), costs=len(s.cost), scorers=out.i16(scorers), scorers_count=len(scorers),
                reading_bytes=n_bytes, plain=self._plain(s, is_direct), keys=self._keys(k),
            )  # fmt: skip
            n_features += len(s.features)
        self.at_features, self.at_columns = out.raw(bytes(features), 4), out.raw(bytes(columns), 4)
        return out.i32(records)

    def _plain(self, sensor: Sensor, is_direct: bool) -> int:
        """How the kernel may feed a sensor faster: a ``layout.PLAIN``, or 0."""
        kinds = {(self.p.features[f].dtype, self.p.features[f].nullable) for f in sensor.features}
        if kinds == {("i32", False)}:
            return layout.PLAIN.ALL_DIRECT if is_direct else layout.PLAIN.ALL_I32
        return layout.PLAIN.ALL_F32 if kinds == {("f32", False)} else 0

    def _keys(self, sensor: int) -> int:
        """The offset of the keys of a sensor's readings in a session; 0: the session stores no keys of this sensor."""
        return layout.STRUCT_BYTES + self.keys.sensors[sensor] if sensor in self.keys.sensors else 0

    # ------------------------------------------------------------ scorers

    def _scorer(self, k: int, first: int) -> int:
        s, out = self.p.scorers[k], self.out
        if isinstance(s, Trees) and k in self.inlined:
            sensors = self.keys.sensors_of(k)
            words = layout.INLINED.words(count=len(sensors), sensors=out.i16(sensors))
            return out.i32(_head(layout.SCORER.INLINED, len(s.base), first) + words)
        if isinstance(s, Trees):
            ensemble = self.ensembles[k]
            words = layout.TREES.words(base=out.i32(s.base), groups=len(ensemble.groups))
            groups = ensemble.records(self._splits[ensemble.is_small], out)
            return out.i32(_head(layout.SCORER.TREES, len(s.base), first) + words + groups)
        if isinstance(s, Stack):
            members = [w for m in s.members for w in self._member(s.trees, m)]
            weights = out.i16([w for row in s.weights for w in row])
            words = layout.STACK.words(members=len(s.members), weights=weights, bias=out.i64(s.bias))
            return out.i32(_head(layout.SCORER.STACK, len(s.bias), first) + words + members)
        if isinstance(s, Network):
            return self._network(s, first)
        assert isinstance(s, Polynomial)
        cells, substitutes = [self.cells.wide(c) for c in s.columns], [x or 0 for x in s.substitutes]
        positions = [k for term in s.terms for k in term]
        values = [w for row in s.weights for w in row]
        at_weights = out.i8(values) if s.weight_bits == 8 else out.i16(values)
        words = layout.POLYNOMIAL.words(
            columns=len(s.columns), cells=out.i16(cells), substitutes=out.i16(substitutes), terms=len(s.terms),
            degree=len(s.terms[0]) if s.terms else 1, positions=out.i16(positions), weights=at_weights,
            weight_bytes=s.weight_bits // 8, bias=out.i64(s.bias), constant=s.constant,
        )  # fmt: skip
        return out.i32(_head(layout.SCORER.POLYNOMIAL, len(s.bias), first) + words)

    def _network(self, s: Network, first: int) -> int:
        out, (windows, activations) = self.out, scratch_bytes(s)
        height, width, channels = s.shape
        words = layout.NETWORK.words(
            columns=len(s.columns), cells=out.i16([self.cells.wide(c) for c in s.columns]),
            substitutes=out.i16([x or 0 for x in s.substitutes]), lent=self.at_lent, window_bytes=windows,
            bytes=activations, height=height, width=width, channels=channels, zero_point=s.zero_point,
            layers=len(s.layers),
        )  # fmt: skip
        for layer in s.layers:
            height, width, channels = layer.shape
            words += layout.LAYER.words(
                kind=LAYERS.index(layer.kind), window_height=layer.window[0], window_width=layer.window[1],
                down=layer.stride[0], right=layer.stride[1], above=layer.padding[0], left=layer.padding[1],
                height=height, width=width, channels=channels, zero_point=layer.zero_point, low=layer.low,
                high=layer.high, weights=out.i8(layer.weights), bias=out.i32(layer.bias),
                multipliers=out.i32(layer.multipliers), shifts=out.i8(layer.shifts),
            )  # fmt: skip
        n_outputs = height * width * channels
        return out.i32(_head(layout.SCORER.NETWORK, n_outputs, first) + words)

    def _member(self, ensemble: int, tree: int) -> tuple[int, int, int]:
        """What a stack says of a member: the leaf that it shares, or its scorer, group and tree."""
        leaf = self.leaves.get((ensemble, tree))
        return (leaf, 0, 0) if leaf is not None else (ensemble, *self.ensembles[ensemble].place[tree])

    # ------------------------------------------------------------ nodes

    def _node(self, k: int, node: Node) -> int:
        out = self.out
        if isinstance(node, Acquire):
            words = layout.ACQUIRE.words(then=node.then, otherwise=node.otherwise, sensors=len(node.sensors))
            return out.i32([layout.NODE.ACQUIRE, *words, *node.sensors])
        if isinstance(node, Branch):
            s = node.scores
            at_threshold = out.own_i64(node.threshold) if k in self.moved else out.i64([node.threshold])
            words = layout.BRANCH.words(
                scorer=s.scorer, start=s.start, width=s.stop - s.start, rule=RULES.index(node.rule),
                threshold=at_threshold, targets=len(node.targets),
            )  # fmt: skip
            entrants = (e for pair in node.bracket for e in pair)
            return out.i32([layout.NODE.BRANCH, *words, *node.targets, *entrants])
        if isinstance(node, Select):
            words = layout.SELECT.words(otherwise=node.otherwise, candidates=len(node.candidates))
            for c in node.candidates:
                words += layout.CANDIDATE.words(
                    size=c.max_size, target=c.target, cost=out.i64(c.cost), costs=len(c.cost)
                )
            return out.i32([layout.NODE.SELECT, *words])
        if isinstance(node, Answer):
            s = node.scores
            words = layout.ANSWER.words(
                scorer=s.scorer, start=s.start, width=s.stop - s.start,
                kind=ANSWERS.index(node.kind) | (node.shift & 0xFF) << 8, margins=len(node.margins),
                at_margins=out.i64(node.margins), at_confidences=out.i16(node.confidences),
            )  # fmt: skip
            return out.i32([layout.NODE.ANSWER, *words])
        if isinstance(node, Forward):
            words = layout.FORWARD.words(then=node.fallback, otherwise=node.fallback, sensors=len(node.sensors))
            return out.i32([layout.NODE.FORWARD, *words, *node.sensors])
        assert_never(node)


class Memory:
    """Assigns places to the parts of a session's memory, after its struct."""

    def __init__(self) -> None:
        self._end = layout.STRUCT_BYTES

    def take(self, size: int, alignment: int) -> int:
        """Reserve ``size`` more bytes, aligned; returns their offset."""
        at = -(-self._end // alignment) * alignment
        self._end = at + size
        return at

    def total(self) -> int:
        """The number of all bytes, rounded up to a multiple of 8."""
        return -(-self._end // 8) * 8


def _head(kind: int, outputs: int, first: int) -> list[int]:
    """The words with which a scorer begins."""
    return layout.SCORER_HEAD.words(kind=kind, outputs=outputs, first=first)


def _longest_path(nodes: Sequence[Node]) -> int:
    longest = [1] * len(nodes)
    for k in range(len(nodes) - 1, -1, -1):
        longest[k] = 1 + max([longest[t] for t in targets_of(nodes[k])], default=0)
    return longest[0]
