# SPDX-License-Identifier: Apache-2.0
"""``golden.h``: the golden cases of a bundle as C tables, in the word format that ``replay.h`` describes."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from hardcase_edge.bundle.golden import GoldenCase
from hardcase_edge.program.definition import Program
from hardcase_edge.session.recorded import ROUTES

from .header import words
from .names import array, int64
from .readings import pack_readings, reading_offsets

__all__ = ["golden_header", "golden_tables"]

GOLDEN = Template("""\
/* Golden cases: everything that a decision depends on, and the trace that it must have; replay.h reads them. */
#include <stdint.h>

$tables""")

TABLES = Template("""\
static const int64_t ${prefix}_words[] = {
$cases
};

static const uint64_t ${prefix}_readings[] = {
$readings
};

static const uint32_t ${prefix}_offsets[] = {
$offsets
};
""")


def golden_header(program: Program, cases: Sequence[GoldenCase]) -> str:
    """The text of ``golden.h``."""
    return GOLDEN.substitute(tables=golden_tables(program, cases, "golden"))


def golden_tables(program: Program, cases: Sequence[GoldenCase], prefix: str) -> str:
    """Three tables, named with this prefix: words, readings, and the offset of each sensor's readings in a case."""
    readings = b"".join(pack_readings(program, case.readings) for case in cases)
    return TABLES.substitute(
        prefix=prefix,
        cases=array(int64(w) for w in [len(cases), *(w for case in cases for w in _words(case))]),
        readings=array(words(readings) or ["0"]),
        offsets=array(str(n) for n in reading_offsets(program)),
    )


def _words(case: GoldenCase) -> list[int]:
    decision = case.expected
    inputs = [-1 if case.budget is None else case.budget, case.item_size, int(case.cloud), int(case.reply is not None)]
    inputs += [*(case.reply or (0, 0)), len(case.failed), *case.failed]
    expected = [ROUTES.index(decision.route), int(decision.result), decision.confidence, decision.cost]
    return [*inputs, *expected, len(decision.sensors), *decision.sensors, len(decision.trace), *decision.trace]
