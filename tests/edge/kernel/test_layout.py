# SPDX-License-Identifier: Apache-2.0
"""The image has one layout: the C header and the page are made of the table, and the program has the same numbers."""

from __future__ import annotations

import pytest

from hardcase_edge.kernel import layout
from hardcase_edge.program.format import RULES
from hardcase_edge.program.readings import DTYPES
from tests.golden.make_layout import HEADER_FILE, PAGE, c_header, page


def names(kinds: layout.Kinds) -> list[str]:
    return [name for name, _ in kinds.members]


def test_the_header_in_c_is_made_of_the_table() -> None:
    assert HEADER_FILE.read_text(encoding="utf-8") == c_header()


def test_the_tables_of_the_page_are_made_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_numbers_of_types_and_rules_are_those_of_the_program() -> None:
    assert names(layout.TYPE) == [dtype.upper() for dtype in DTYPES]
    assert [dtype.number for dtype in DTYPES.values()] == list(range(len(DTYPES)))
    assert names(layout.BRANCH_RULE) == [rule.upper() for rule in RULES]


def test_fields_are_aligned_to_their_width() -> None:
    for record in layout.RECORDS:
        for at, code in zip(record.at.values(), record.codes, strict=True):
            assert at % {"B": 1, "H": 2, "I": 4, "q": 8}[code] == 0


def test_a_record_takes_each_of_its_fields_and_no_other() -> None:
    assert layout.TREE.words(count=3, nodes=8, leaves=16) == [8, 16, 3]
    for fields in ({"nodes": 8, "leaves": 16}, {"nodes": 8, "leaves": 16, "count": 3, "depth": 1}):
        with pytest.raises(TypeError, match="tree has the fields nodes, leaves, count"):
            layout.TREE.words(**fields)
    with pytest.raises(AttributeError):
        layout.NODE.BRANHC  # noqa: B018
