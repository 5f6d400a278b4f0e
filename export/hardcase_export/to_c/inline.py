"""``inline.c``: tree ensembles as C code, in place of tables that the kernel walks.

Trees are unrolled together, not one by one: those that ask the same question at their roots ask it once, and so do the
subtrees on either side. Sums of integers do not depend on their order, and the verifier proves that no part of a
sum leaves 32 bits, so the scores are those of the tables. Questions are sorted by place and bound, so that a
compiler sees which answers follow from earlier ones. What a question compares, ``c_questions.py`` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template

from hardcase_edge.kernel.image import Image
from hardcase_edge.program.definition import Tree, Trees
from hardcase_edge.program.stored_trees import children_of

from .conditions import Question, question, readers

__all__ = ["Leaf", "Split", "Unrolled", "inline_source", "unroll", "unrolled"]

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


@dataclass(frozen=True, slots=True)
class Leaf:
    """Adds ``values`` to the scores from ``output`` on."""

    output: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Left if the answer is yes, else right."""

    question: Question
    left: Split | Leaf
    right: Split | Leaf


@dataclass(frozen=True, slots=True)
class Unrolled:
    """An ensemble ready to be code: where its sums begin, and the roots of its trees."""

    base: tuple[int, ...]
    roots: tuple[Split | Leaf, ...]


def unrolled(image: Image, k: int) -> Unrolled:
    """Ensemble ``k``, which is no table in this image."""
    scorer = image.p.scorers[k]
    assert isinstance(scorer, Trees)
    is_small = image.ensembles[k].is_small
    return Unrolled(tuple(int(b) for b in scorer.base), tuple(_root(image, scorer, t, is_small) for t in scorer.trees))


def _root(image: Image, scorer: Trees, tree: Tree, is_small: bool) -> Split | Leaf:
    """A tree, without the questions whose answer is always yes."""
    leaves = [
        Leaf(tree.output, tuple(int(v) for v in tree.leaves[k : k + tree.width]))
        for k in range(0, len(tree.leaves), tree.width)
    ]
    children = children_of(tree)
    made: list[Split | Leaf] = [leaves[0]] * max(1, len(tree.splits))
    for i in range(len(tree.splits) - 1, -1, -1):
        left, right = (made[c] if c >= 0 else leaves[-1 - c] for c in children[i])
        column = scorer.columns[tree.splits[i]]
        asked = question(image, column, tree.thresholds[i], tree.missing_left[i], is_small)
        made[i] = left if asked is None else Split(asked, left, right)
    return made[0]


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
    asked = {q for ensemble in ensembles.values() for root in ensemble.roots for q in _questions(root)}
    return SOURCE.substitute(readers=readers(asked), functions="\n".join(functions), cases="\n".join(cases))


def _questions(root: Split | Leaf) -> Iterator[Question]:
    below = [root]
    while below:
        tree = below.pop()
        if isinstance(tree, Split):
            yield tree.question
            below += [tree.left, tree.right]


def unroll(trees: Sequence[Split | Leaf], indent: str = "    ") -> Iterator[str]:
    """Lines of C that add the leaves of all these trees to s0, s1, ..."""
    sums: dict[int, int] = {}
    questions: dict[Question, list[Split]] = {}
    for tree in trees:
        if isinstance(tree, Split):
            questions.setdefault(tree.question, []).append(tree)
        else:
            for o, value in enumerate(tree.values, tree.output):
                sums[o] = sums.get(o, 0) + value
    for o, value in sorted(sums.items()):
        if value:
            yield f"{indent}s{o} += {value};"
    for asked, asking in sorted(questions.items()):
        yield f"{indent}if ({asked.text()}) {{"
        yield from unroll([tree.left for tree in asking], indent + "    ")
        yield f"{indent}}} else {{"
        yield from unroll([tree.right for tree in asking], indent + "    ")
        yield f"{indent}}}"
