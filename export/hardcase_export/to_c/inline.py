# SPDX-License-Identifier: Apache-2.0
"""``inline.c``: tree ensembles as C code, in place of tables that the kernel walks.

Trees are unrolled together: trees with the same question at their roots ask it once, and so do the subtrees on either
side. Sums of integers do not depend on their order, and the verifier proves that no partial sum exceeds 32 bits, so the
scores equal those of the tables. Questions are sorted by place and bound, so that a compiler sees which answers follow
from earlier ones. ``conditions`` writes the questions in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template

from hardcase_edge.kernel.image import Image
from hardcase_edge.program.definition import Tree, Trees
from hardcase_edge.program.stored_trees import children_of

from .names import int64

SOURCE = Template("""\
/* Tree ensembles as code, made by hardcase: hardcase.c calls hc_inline, as hardcase_config.h says. */
#include <string.h>

#include "hardcase.h"

#if defined(__GNUC__)
#define ALIGNED(p, n) __builtin_assume_aligned((p), (n))
#else
#define ALIGNED(p, n) (p)
#endif

$readers
static inline void put(unsigned char *scores, unsigned output, int64_t sum)
{
    memcpy(ALIGNED(scores + 8 * output, 8), &sum, 8);
}

$functions
void hc_inline(uint32_t scorer, const unsigned char *keys, const unsigned char *small, const unsigned char *wide,
               unsigned char *scores)
{
    (void)keys;
    (void)small;
    (void)wide;
    switch (scorer) {
$cases
    }
}
""")

FUNCTION = Template("""\
static void scorer_$k(const unsigned char *keys, const unsigned char *small, const unsigned char *wide,
                     unsigned char *scores)
{
    int32_t $sums;
    (void)keys;
    (void)small;
    (void)wide;
$body
$stores
}
""")
# By the reader's name: the pointer it takes, its result type and its body. A reader comes after the readers it calls.
READERS = {
    "small_cell": ("small", "int", "return x[at];"),
    "wide_cell": ("wide", "int", "int16_t code;\n    memcpy(&code, ALIGNED(x + 2 * at, 2), 2);\n    return code;"),
    "key32": ("keys", "int32_t", "int32_t key;\n    memcpy(&key, ALIGNED(x + at, 4), 4);\n    return key;"),
    "last32": ("keys", "uint32_t", "return (uint32_t)key32(x, at) - 0x80000001u; /* i32 from -2147483647 on */"),
    "key64": ("keys", "int64_t", "int64_t key;\n    memcpy(&key, ALIGNED(x + at, 8), 8);\n    return key;"),
    "last64": ("keys", "uint64_t", "return (uint64_t)key64(x, at) - 0x8010000000000000u; /* the lowest double */"),
}
LOWEST = {"last32": -(2**31) + 1, "last64": -0x7FF0_0000_0000_0000}
CALLS = {"last32": "key32", "last64": "key64"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """Adds ``values`` to the scores from ``output`` on."""

    output: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """An inner node: left if the answer to ``question`` is yes, otherwise right."""

    question: Question
    left: Fork | Leaf
    right: Fork | Leaf


@dataclass(frozen=True, slots=True)
class Unrolled:
    """An ensemble ready to be written as code: the first value of each sum, and the roots of its trees."""

    base: tuple[int, ...]
    roots: tuple[Fork | Leaf, ...]


def unrolled(image: Image, k: int) -> Unrolled:
    """Ensemble ``k``, which must be one of the image's inlined scorers."""
    scorer = image.p.scorers[k]
    assert isinstance(scorer, Trees)
    is_small = image.ensembles[k].is_small
    return Unrolled(tuple(int(b) for b in scorer.base), tuple(_root(image, scorer, t, is_small) for t in scorer.trees))


def _root(image: Image, scorer: Trees, tree: Tree, is_small: bool) -> Fork | Leaf:
    """A tree without the questions whose answer is always yes."""
    leaves = [
        Leaf(tree.output, tuple(int(v) for v in tree.leaves[k : k + tree.width]))
        for k in range(0, len(tree.leaves), tree.width)
    ]
    children = children_of(tree)
    nodes: list[Fork | Leaf] = [leaves[0]] * max(1, len(tree.splits))
    for i in range(len(tree.splits) - 1, -1, -1):
        left, right = (nodes[c] if c >= 0 else leaves[-1 - c] for c in children[i])
        column = scorer.columns[tree.splits[i]]
        test = question(image, column, tree.thresholds[i], tree.missing_left[i], is_small)
        nodes[i] = left if test is None else Fork(test, left, right)
    return nodes[0]


def inline_source(ensembles: Mapping[int, Unrolled]) -> str:
    """The text of ``inline.c``, for ensembles by the number of their scorer."""
    functions, cases = [], []
    for k, ensemble in ensembles.items():
        outputs = range(len(ensemble.base))
        functions.append(
            FUNCTION.substitute(
                k=k,
                sums=", ".join(f"s{o} = {ensemble.base[o]}" for o in outputs),
                body="\n".join(unroll(ensemble.roots)),
                stores="\n".join(f"    put(scores, {o}, s{o});" for o in outputs),
            )
        )
        cases.append(f"    case {k}:\n        scorer_{k}(keys, small, wide, scores);\n        break;")
    questions = {q for ensemble in ensembles.values() for root in ensemble.roots for q in _questions(root)}
    return SOURCE.substitute(readers=readers(questions), functions="\n".join(functions), cases="\n".join(cases))


def _questions(root: Fork | Leaf) -> Iterator[Question]:
    pending = [root]
    while pending:
        tree = pending.pop()
        if isinstance(tree, Fork):
            yield tree.question
            pending += [tree.left, tree.right]


def unroll(trees: Sequence[Fork | Leaf], indent: str = "    ") -> Iterator[str]:
    """Lines of C that add the leaves of all these trees to the sums s0, s1, ..."""
    sums: dict[int, int] = {}
    questions: dict[Question, list[Fork]] = {}
    for tree in trees:
        if isinstance(tree, Fork):
            questions.setdefault(tree.question, []).append(tree)
        else:
            for o, value in enumerate(tree.values, tree.output):
                sums[o] = sums.get(o, 0) + value
    for o, value in sorted(sums.items()):
        if value:
            yield f"{indent}s{o} += {value};"
    for condition, forks in sorted(questions.items()):
        yield f"{indent}if ({condition.text()}) {{"
        yield from unroll([tree.left for tree in forks], indent + "    ")
        yield f"{indent}}} else {{"
        yield from unroll([tree.right for tree in forks], indent + "    ")
        yield f"{indent}}}"


# Conditions in C for tree nodes: whether a reading's key, or a column's code, is at most a bound.
#
# A node on a rank column compares the order-preserving key of the reading itself
# (``hardcase_edge/kernel/reading_keys``); no code is computed. A node on an affine column compares the code in its
# cell, as the tables do.
#
# A missing reading has the lowest key, so it goes left without further code. If it should go right, the keys are
# counted from the lowest key of a number, unsigned, so that the key of a missing reading wraps around to the highest
# value.


@dataclass(frozen=True, slots=True, order=True)
class Question:
    """Whether what ``reader`` reads at ``at`` (a cell's number or a key's byte offset) is at most ``bound``."""

    reader: str
    at: int
    bound: int

    def text(self) -> str:
        """The condition in C."""
        bound = str(self.bound)
        if self.reader in LOWEST:
            bound = f"{self.bound - LOWEST[self.reader]}u"
        elif self.reader == "key64":
            bound = int64(self.bound)
        return f"{self.reader}({READERS[self.reader][0]}, {self.at}) <= {bound}"


def question(image: Image, column: int, threshold: int, missing_left: bool, is_small: bool) -> Question | None:
    """The condition under which a node goes left; None if it always does.

    Parameters
    ----------
    image : the image whose keys and cells are read
    column, threshold, missing_left : of the node
    is_small : whether the ensemble's cells have 8 bits; otherwise they have 16
    """
    if not image.keys.has(column):
        cell, above = image.cells.split(column, threshold, not missing_left, is_small)
        return Question("small_cell" if is_small else "wide_cell", cell, above)
    bits = 64 if image.p.features[image.p.columns[column].feature].dtype == "f64" else 32
    highest, bound = 2 ** (bits - 1) - 1, image.keys.bound(column, threshold)
    if missing_left:
        if bound is None or bound == highest:
            return None
        return Question(f"key{bits}", image.keys.place(column), bound)
    return Question(f"last{bits}", image.keys.place(column), highest if bound is None else bound)


def readers(questions: Iterable[Question]) -> str:
    """C source of the functions that these questions call."""
    called = {q.reader for q in questions}
    called |= {CALLS[name] for name in called if name in CALLS}
    return "\n".join(
        f"static inline {returns} {name}(const unsigned char *x, unsigned at)\n{{\n    {body}\n}}\n"
        for name, (_, returns, body) in READERS.items()
        if name in called
    )
