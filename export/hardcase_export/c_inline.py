"""``inline.c``: tree ensembles as C code, in place of tables that the kernel walks.

Trees are unrolled together, not one by one: those that ask the same question at their roots ask it once, and so do the
subtrees on either side. Sums of integers do not depend on their order, and the verifier proves that no part of a
sum leaves 32 bits, so the scores are those of the tables. Questions are sorted by cell and threshold, so that a
compiler sees which answers follow from earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template

from hardcase_edge.cells import Cells
from hardcase_edge.ensemble_image import children_of
from hardcase_edge.program import Trees

__all__ = ["Leaf", "Split", "Unrolled", "inline_source", "unroll", "with_cells"]

SOURCE = Template("""\
/* Tree ensembles as code, made by hardcase: hardcase.c calls hc_inline, as hardcase_config.h says.
 * x holds a code per cell: 8 bits where they fit, else 16. */
#include <string.h>

#include "hardcase.h"

static inline int x8(const unsigned char *x, unsigned cell)
{
    return x[cell];
}

static inline int x16(const unsigned char *x, unsigned cell)
{
    int16_t code;
    memcpy(&code, x + 2 * cell, 2);
    return code;
}

static inline void put(unsigned char *scores, unsigned output, int64_t sum)
{
    memcpy(scores + 8 * output, &sum, 8);
}

$functions
void hc_inline(uint32_t scorer, const unsigned char *small, const unsigned char *wide, unsigned char *scores)
{
    (void)small;
    (void)wide;
    switch (scorer) {
$cases
    }
}
""")

FUNCTION = Template("""\
static void scorer_$k(const unsigned char *x, unsigned char *scores)
{
    int32_t $sums;
    (void)x;
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
    """Left if the cell's code is at most the threshold, else right."""

    cell: int
    threshold: int
    left: Split | Leaf
    right: Split | Leaf


@dataclass(frozen=True, slots=True)
class Unrolled:
    """An ensemble ready to be code: the roots of its trees over cells, of 8 bits (small) or 16."""

    is_small: bool
    base: tuple[int, ...]
    roots: tuple[Split | Leaf, ...]


def with_cells(scorer: Trees, cells: Cells, is_small: bool) -> Unrolled:
    """An ensemble's trees over an image's cells."""
    roots = []
    for tree in scorer.trees:
        leaves = [
            Leaf(tree.output, tuple(int(v) for v in tree.leaves[k : k + tree.width]))
            for k in range(0, len(tree.leaves), tree.width)
        ]
        children = children_of(tree)
        made: list[Split | Leaf] = [leaves[0]] * max(1, len(tree.splits))
        for i in range(len(tree.splits) - 1, -1, -1):
            left, right = (made[c] if c >= 0 else leaves[-1 - c] for c in children[i])
            column = scorer.columns[tree.splits[i]]
            cell, threshold = cells.split(column, tree.thresholds[i], not tree.missing_left[i], is_small)
            made[i] = Split(cell, threshold, left, right)
        roots.append(made[0])
    return Unrolled(is_small, tuple(int(b) for b in scorer.base), tuple(roots))


def inline_source(ensembles: Mapping[int, Unrolled]) -> str:
    """The text of ``inline.c``, for ensembles by the number of their scorer."""
    functions, cases = [], []
    for k, ensemble in ensembles.items():
        outputs = range(len(ensemble.base))
        functions.append(
            FUNCTION.substitute(
                k=k,
                sums=", ".join(f"s{o} = {ensemble.base[o]}" for o in outputs),
                body="\n".join(unroll(ensemble.roots, "x8" if ensemble.is_small else "x16")),
                stores="\n".join(f"    put(scores, {o}, s{o});" for o in outputs),
            )
        )
        x = "small" if ensemble.is_small else "wide"
        cases.append(f"    case {k}:\n        scorer_{k}({x}, scores);\n        break;")
    return SOURCE.substitute(functions="\n".join(functions), cases="\n".join(cases))


def unroll(trees: Sequence[Split | Leaf], x: str, indent: str = "    ") -> Iterator[str]:
    """Lines of C that add the leaves of all these trees to s0, s1, ...; ``x`` is the function that gives a code."""
    sums: dict[int, int] = {}
    questions: dict[tuple[int, int], list[Split]] = {}
    for tree in trees:
        if isinstance(tree, Split):
            questions.setdefault((tree.cell, tree.threshold), []).append(tree)
        else:
            for o, value in enumerate(tree.values, tree.output):
                sums[o] = sums.get(o, 0) + value
    for o, value in sorted(sums.items()):
        if value:
            yield f"{indent}s{o} += {value};"
    for (cell, threshold), asking in sorted(questions.items()):
        yield f"{indent}if ({x}(x, {cell}) <= {threshold}) {{"
        yield from unroll([tree.left for tree in asking], x, indent + "    ")
        yield f"{indent}}} else {{"
        yield from unroll([tree.right for tree in asking], x, indent + "    ")
        yield f"{indent}}}"
