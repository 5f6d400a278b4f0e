"""``golden.h``: a bundle's golden cases as tables; ``replay.h`` says what their words are."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from hardcase_edge.bundle.golden import ROUTES, GoldenCase
from hardcase_edge.program.definition import Program

from .header import words
from .names import array, int64
from .readings import pack_readings, reading_offsets

__all__ = ["golden_header", "golden_tables"]

GOLDEN = Template("""\
/* Golden cases: what a decision depends on and the whole trace that must come of it; replay.h reads them. */
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
    """Three tables, named with this prefix: words, readings, and where each sensor's readings begin in a case."""
    readings = b"".join(pack_readings(program, case.readings) for case in cases)
    return TABLES.substitute(
        prefix=prefix,
        cases=array(int64(w) for w in [len(cases), *(w for case in cases for w in _words(case))]),
        readings=array(words(readings) or ["0"]),
        offsets=array(str(n) for n in reading_offsets(program)),
    )


def _words(case: GoldenCase) -> list[int]:
    said = case.expected
    given = [-1 if case.budget is None else case.budget, case.item_size, int(case.cloud), int(case.reply is not None)]
    given += [*(case.reply or (0, 0)), len(case.failed), *case.failed]
    expected = [ROUTES.index(said.route), int(said.result), said.confidence, said.cost]
    return [*given, *expected, len(said.sensors), *said.sensors, len(said.trace), *said.trace]
