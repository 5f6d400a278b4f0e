# SPDX-License-Identifier: Apache-2.0
"""Cells of CSV files mean the same in training and in a replay."""

from __future__ import annotations

import pytest

from hardcase_edge.base.cells import LATIN_1, column_names, number_in, separator_of


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("a,b;c,d", ","),
        ("a;b;c", ";"),
        ("a\tb", "\t"),
        ('"a;b;c;d",e', ","),
        ("heat, C;damp", ";"),  # a comma is likelier in a name
        ("only", ","),
        ("", ","),
    ],
)
def test_the_separator_is_the_most_frequent_one_of_the_header(header: str, separator: str) -> None:
    assert separator_of(header) == separator


@pytest.mark.parametrize(
    ("cell", "separator", "number"),
    [
        ("1.5", ",", 1.5), (" -2 ", ",", -2.0), ("1e3", ",", 1000.0), ("1,5", ";", 1.5), ("1.5", "\t", 1.5),
        ("true", ",", 1.0), (" FALSE", ";", 0.0), ("", ",", None), (" ? ", ",", None), ("NA", ",", None),
    ],
)  # fmt: skip
def test_a_cell_is_a_number_or_missing(cell: str, separator: str, number: float | None) -> None:
    assert number_in(cell, separator) == number


@pytest.mark.parametrize(
    ("cell", "separator"), [("1,5", ","), ("1.000,5", ";"), ("1,0,5", ";"), ("1_0", ","), ("x", ",")]
)
def test_any_other_text_is_not_a_number(cell: str, separator: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        number_in(cell, separator)


def test_bytes_that_are_not_utf_8_are_latin_1() -> None:
    assert "Zürich, Genève".encode("latin-1").decode(errors=LATIN_1) == "Zürich, Genève"
    assert "Zürich".encode().decode(errors=LATIN_1) == "Zürich"


def test_a_column_without_a_name_has_the_name_of_its_place() -> None:
    assert column_names([" a", "", "b "]) == ["a", "column 2", "b"]
