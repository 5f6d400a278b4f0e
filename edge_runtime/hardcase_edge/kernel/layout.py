# SPDX-License-Identifier: Apache-2.0
"""The layout of an image: every kind, every word and where it lies, in one table.

``image.py`` writes by these names. ``hc_layout.h``, by which the kernel reads, and the tables of docs/SPEC-image-v1.md
are made of this table by ``make golden``; a test compares both byte for byte. A change of a number here is another
version of the image.
"""

from __future__ import annotations

import struct
from typing import Any

MAGIC, MAGIC_MORE = 0x31494348, 0x32494348
STRUCT_BYTES = 64
NOT_SENT = 0xFFFF


class Kinds:
    """What one word says by its number: ``SCORER.TREES`` is 1. The names are those of the C enum, too."""

    def __init__(self, name: str, doc: str, *members: tuple[str, str], first: int = 0) -> None:
        self.name, self.doc, self.members, self.first = name, doc, members, first
        self._numbers = {member: k for k, (member, _) in enumerate(members, first)}

    def __getattr__(self, member: str) -> int:
        try:
            return self._numbers[member]
        except KeyError:
            raise AttributeError(member) from None


class Record:
    """Fields that lie one behind the other, each aligned to its width.

    Parameters
    ----------
    name : the enum in C
    prefix : of its words in C
    doc : what it is
    fields : name, meaning and, unless it is a word of 32 bits, ``struct`` code of each
    behind : the record behind whose words these lie
    unit : bytes that a position in C counts
    """

    def __init__(
        self, name: str, prefix: str, doc: str, *fields: tuple[str, ...], behind: Record | None = None, unit: int = 4
    ) -> None:
        self.name, self.prefix, self.doc, self.behind, self.unit = name, prefix, doc, behind, unit
        self.docs = {field[0]: field[1] for field in fields}
        self.codes = [field[2] if len(field) > 2 else "I" for field in fields]
        self.at: dict[str, int] = {}  # bytes from the record's start
        end: int = behind.n_bytes if behind else 0
        for field, code in zip(self.docs, self.codes, strict=True):
            self.at[field] = end
            end += struct.calcsize(code)
        self.n_bytes: int = end

    def words(self, **values: int) -> list[int]:
        """The values in order, without those of the record that they lie behind.

        Raises
        ------
        TypeError
            A field has no value, or a value no field.
        """
        if values.keys() != self.docs.keys():
            raise TypeError(f"{self.name} has the fields {', '.join(self.docs)}, not {', '.join(values)}")
        return [values[field] for field in self.docs]

    def pack(self, **values: Any) -> bytes:
        """The bytes of ``words``."""
        return struct.pack("<" + "".join(self.codes), *self.words(**values))


# ------------------------------------------------------------ kinds

TYPE = Kinds(
    "type", "the declared type of a reading",
    ("I32", "4 bytes"), ("F32", "4 bytes"), ("F64", "8 bytes"),
)  # fmt: skip
PLAIN = Kinds(
    "plain", "how the kernel may feed a sensor faster; 0: in no such way",
    ("ALL_I32", "its readings are all i32, and none is nullable"),
    ("ALL_F32", "its readings are all f32, and none is nullable"),
    ("ALL_DIRECT", "as 1, and all its columns are direct and small"),
    first=1,
)  # fmt: skip
RULE = Kinds(
    "rule", "how a reading becomes the value of a cell",
    ("AFFINE", "the code; in a small cell the code - low + 1. a: the offset of the numbers below"),
    ("RANK", "keys below the reading's, + 1 in a small cell, - 32767 in a wide one. a: the offset of b keys, i32, or"
             " i64 for f64"),
    ("DIRECT", "i32 only: reading - a (signed), held within 0 to b, then as a rank"),
    ("COPY", "the value of the column before it, with missing on the other side"),
)  # fmt: skip
SCORER = Kinds(
    "scorer", "the kind of a scorer",
    ("POLYNOMIAL", "a linear or polynomial scorer"), ("TREES", "an ensemble of trees"),
    ("STACK", "a linear scorer over single trees"),
    ("INLINED", "an ensemble whose scores come from a function beside the kernel (`hardcase export --c --inline`)"),
    ("LEAF", "a tree that several stacks name: its value is kept until a sensor that it reads is fed"),
    ("NETWORK", "layers of int8 numbers"),
)  # fmt: skip
LAYERS = Kinds(
    "layer_kind", "the kind of a layer, as in the program",
    ("CONV", "sums over all channels of a window"), ("DEPTHWISE", "sums over one channel"),
    ("AVERAGE", "the mean of one channel"), ("LARGEST", "the largest value of one channel"),
)  # fmt: skip
LAYOUT = Kinds(
    "layout", "how the trees of a group lie",
    ("SMALL_HEAP", "per tree, with n = 2^depth: n cells (u8), n thresholds (u8), n leaves of `width` i16"),
    ("WIDE_HEAP", "the same with cells (u16) and thresholds (i16)"),
    ("SMALL_POINTERS", "per tree its words; a node is cell (u8), threshold (u8), left (i16), right (i16)"),
    ("WIDE_POINTERS", "the same with cell (u16) and threshold (i16)"),
)  # fmt: skip
NODE = Kinds(
    "node", "the kind of a node",
    ("ACQUIRE", "buys sensors"), ("BRANCH", "goes on by scores"), ("SELECT", "goes on by size and budget"),
    ("ANSWER", "ends the decision"), ("FORWARD", "asks the HPC"),
)  # fmt: skip
BRANCH_RULE = Kinds(
    "branch_rule", "the rule of a branch, as in the program",
    ("THRESHOLD", "one score against the threshold"), ("MARGIN", "the best score's lead against the threshold"),
    ("ARGMAX", "the best score"), ("TOURNAMENT", "matches of two, each decided by a score"),
)  # fmt: skip
KINDS = (TYPE, PLAIN, RULE, SCORER, LAYERS, LAYOUT, NODE, BRANCH_RULE)

CONSTANTS = (
    ("MAGIC", MAGIC, "`HCI1`"),
    ("MAGIC_MORE", MAGIC_MORE, "`HCI2`"),
    ("STRUCT_BYTES", STRUCT_BYTES, "of the struct that begins a session's memory"),
    ("NOT_SENT", NOT_SENT, "the place of a feature that requests do not carry"),
    ("COLUMN_IS_WIDE", 1, "of a column's flags: its cell is wide"),
    ("NETWORK_WINDOWS", 4, "windows that a convolution multiplies at a time"),
    ("COLUMN_TYPE", 1, "the bits of a column's flags below the feature's type"),
)

# ------------------------------------------------------------ records

HEADER = Record(
    "header", "H", "words of the header",
    ("magic", "`HCI1` (0x31494348); `HCI2` (0x32494348): words 32 and 33 follow"),
    ("image_bytes", "bytes of the image"), ("session_bytes", "bytes of a session"),
    ("features", "number of features"), ("sensors", "number of sensors"), ("columns", "number of columns"),
    ("scorers", "number of scorers, leaves included"), ("nodes", "number of nodes"),
    ("classes", "`n_classes`"), ("item_size", "`max_item_size`"),
    ("at_features", "offset of the features"), ("at_sensors", "offset of the sensors"),
    ("at_columns", "offset of the columns"), ("at_scorers", "offset of the scorers' offsets, a word each"),
    ("at_nodes", "offset of the nodes' offsets, a word each"),
    ("request_bytes", "bytes of a request's readings"), ("request_cost", "of one request, 64 bits", "q"),
    ("small_left", "small cells with missing to the left"), ("small", "all small cells"),
    ("wide_left", "wide cells with missing to the left"), ("wide", "all wide cells"),
    ("steps", "nodes on the longest path"), ("entrants", "entrants and winners of the largest tournament"),
)  # fmt: skip
PARTS = Record(
    "part", "S", "words of the header that say where the parts of a session lie in its memory, in this order",
    ("scores", "i64 each"), ("request", "the readings that a request sends"), ("wide", "wide cells, i16 each"),
    ("trace", "visited nodes, u16 each"), ("winners", "of a tournament, i16 each"), ("sensors", "flags, u8 each"),
    ("is_scored", "whether a scorer is computed, u8 each"), ("small", "small cells, u8 each"),
    behind=HEADER,
)  # fmt: skip
MORE = Record(
    "more", "M", "words behind these in an image that begins with HCI2",
    ("start_cost", "of each decision before it buys anything, above 0, 64 bits", "q"),
    behind=PARTS,
)  # fmt: skip
FEATURE = Record(
    "feature", "FEATURE", "bytes of a feature",
    ("uplink", "its offset in the request; 0xFFFF: it is not sent", "H"), ("type", "its type", "B"),
    ("nullable", "1 if it may be missing", "B"),
    unit=1,
)  # fmt: skip
SENSOR = Record(
    "sensor", "SENSOR", "words of a sensor",
    ("feature", "its first feature"), ("features", "number of its features"), ("column", "its first column"),
    ("columns", "number of its columns"), ("cost", "offset (i64) of its cost's coefficients"),
    ("costs", "number of these"), ("scorers", "offset (u16) of the scorers that read it"),
    ("scorers_count", "number of these"),
    ("reading_bytes", "bytes of its readings"), ("plain", "how it may be fed faster"),
    ("keys", "the offset of the keys of its readings in a session, or 0 if the session keeps none"),
)  # fmt: skip
COLUMN = Record(
    "column", "COLUMN", "bytes of a column",
    ("rule", "its rule", "B"), ("flags", "bit 0 wide, bits 1 and 2 the feature's type", "B"), ("cell", "its cell", "H"),
    ("a", "as its rule says", "I"), ("b", "as its rule says", "H"),
    ("reading", "the offset of its reading among the sensor's, in units of 4 bytes", "H"),
    unit=1,
)  # fmt: skip
AFFINE = Record(
    "affine", "AFFINE", "bytes of the numbers of an affine rule, i64 each",
    *((name, "as in the program", "q") for name in ("frac", "mul", "add", "shift", "low", "high")),
    unit=1,
)  # fmt: skip
SCORER_HEAD = Record(
    "scorer_head", "SCORER", "words with which each scorer begins",
    ("kind", "its kind"), ("outputs", "number of its outputs"), ("first", "index of its first score"),
)  # fmt: skip
POLYNOMIAL = Record(
    "polynomial", "POLYNOMIAL", "words of a polynomial",
    ("columns", "number of columns that it reads"), ("cells", "offset of their wide cells (u16)"),
    ("substitutes", "offset of their substitutes (i16)"), ("terms", "number of terms"), ("degree", "of each term"),
    ("positions", "offset of the terms' columns (u16)"), ("weights", "offset of the weights"),
    ("weight_bytes", "of each weight, 1 or 2"), ("bias", "offset of the biases (i64)"),
    ("constant", "the constant, signed"),
    behind=SCORER_HEAD,
)  # fmt: skip
TREES = Record(
    "trees", "TREES", "words of an ensemble of trees; its groups follow",
    ("base", "offset of the biases (i32)"), ("groups", "number of its groups"),
    behind=SCORER_HEAD,
)  # fmt: skip
GROUP = Record(
    "group", "GROUP", "words of a group: trees that share a layout, a first output and a width",
    ("layout", "how its trees lie"), ("output", "the first output of its trees"), ("width", "values of a leaf"),
    ("trees", "number of its trees"), ("depth", "of its heaps; 0 with pointers"), ("data", "offset of its trees"),
)  # fmt: skip
TREE = Record(
    "tree", "TREE", "words of a tree with pointers",
    ("nodes", "offset of its nodes"), ("leaves", "offset of its leaves"), ("count", "number of its nodes"),
)  # fmt: skip
STACK = Record(
    "stack", "STACK", "words of a stack; its members follow",
    ("members", "number of its members"), ("weights", "offset of the weights (i16)"),
    ("bias", "offset of the biases (i64)"),
    behind=SCORER_HEAD,
)  # fmt: skip
MEMBER = Record(
    "member", "MEMBER", "words of a member of a stack: a tree",
    ("scorer", "its ensemble; or, where other stacks name the tree, too, its leaf"),
    ("group", "its group; of a leaf not read"), ("tree", "its number in the group; of a leaf not read"),
)  # fmt: skip
INLINED = Record(
    "inlined", "INLINED", "words of an ensemble that is code",
    ("count", "number of the sensors whose keys it reads"), ("sensors", "their offset (u16)"),
    behind=SCORER_HEAD,
)  # fmt: skip
LEAF = Record(
    "leaf", "LEAF", "words of a tree that several stacks name",
    ("trees", "its ensemble"), ("group", "its group"), ("tree", "its number in the group"),
    behind=SCORER_HEAD,
)  # fmt: skip
NETWORK = Record(
    "network", "NETWORK", "words of a network; its layers follow",
    ("columns", "number of columns that it reads"), ("cells", "offset of their wide cells (u16)"),
    ("substitutes", "offset of their substitutes (i16)"),
    ("lent", "offset of the memory that a session lends it"),
    ("window_bytes", "bytes of its windows, i16 each, at the beginning of that memory"),
    ("bytes", "behind them, of the input and the output of a layer"),
    ("height", "of the codes"), ("width", "of the codes"), ("channels", "of the codes"),
    ("zero_point", "the code that stands for 0, signed"), ("layers", "number of its layers"),
    behind=SCORER_HEAD,
)  # fmt: skip
LAYER = Record(
    "layer", "LAYER", "words of a layer",
    ("kind", "its kind"), ("window_height", "rows of a window"), ("window_width", "columns of a window"),
    ("down", "rows from a window to the next"), ("right", "columns from a window to the next"),
    ("above", "rows of the first window above the input"), ("left", "columns of it left of the input"),
    ("height", "of its output"), ("width", "of its output"), ("channels", "of its output"),
    ("zero_point", "the output that stands for 0, signed"), ("low", "the least output, signed"),
    ("high", "the largest output, signed"), ("weights", "offset of the weights (i8)"),
    ("bias", "offset of the biases (i32)"), ("multipliers", "offset of the multipliers (i32)"),
    ("shifts", "offset of the shifts (u8)"),
)  # fmt: skip
NODE_HEAD = Record("node_head", "NODE", "words with which each node begins", ("kind", "its kind"))
ACQUIRE = Record(
    "acquire", "BUY", "words of an acquire or a forward; its sensors follow",
    ("then", "the next node; of a forward its fallback"),
    ("otherwise", "the next node if they cannot be had; of a forward its fallback"),
    ("sensors", "number of the sensors"),
    behind=NODE_HEAD,
)  # fmt: skip
FORWARD = ACQUIRE
BRANCH = Record(
    "branch", "BRANCH", "words of a branch; its targets follow, then two entrants for each match of a tournament",
    ("scorer", "whose scores it reads"), ("start", "the first of them"), ("width", "number of them"),
    ("rule", "its rule"), ("threshold", "offset of the threshold (i64)"), ("targets", "number of its targets"),
    behind=NODE_HEAD,
)  # fmt: skip
SELECT = Record(
    "select", "SELECT", "words of a select; its candidates follow",
    ("otherwise", "the next node if no candidate fits"), ("candidates", "number of its candidates"),
    behind=NODE_HEAD,
)  # fmt: skip
CANDIDATE = Record(
    "candidate", "CANDIDATE", "words of a candidate",
    ("size", "`max_size`"), ("target", "the next node"), ("cost", "offset (i64) of its cost's coefficients"),
    ("costs", "number of these"),
)  # fmt: skip
ANSWER = Record(
    "answer", "ANSWER", "words of an answer",
    ("scorer", "whose scores it reads"), ("start", "the first of them"), ("width", "number of them"),
    ("kind", "0 for a class; for a value 1 and, in the second byte, the shift, signed"),
    ("margins", "number of the margins"),
    ("at_margins", "offset of the margins (i64)"), ("at_confidences", "offset of the confidences (u16), one more"),
    behind=NODE_HEAD,
)  # fmt: skip
RECORDS = (
    HEADER, PARTS, MORE, FEATURE, SENSOR, COLUMN, AFFINE, SCORER_HEAD, POLYNOMIAL, TREES, GROUP, TREE, STACK,
    MEMBER, INLINED, LEAF, NETWORK, LAYER, NODE_HEAD, ACQUIRE, BRANCH, SELECT, CANDIDATE, ANSWER,
)  # fmt: skip
