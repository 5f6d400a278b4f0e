# SPDX-License-Identifier: Apache-2.0
"""Cells of CSV files: separator, names of columns, missing values, numbers and encoding, alike in training and replay.

The separator is a comma, a semicolon or a tab: the most frequent one in the header outside of quotes. Text that is not
UTF-8 is read as Latin-1, byte by byte. Where the separator is not a comma, a number may have a decimal comma. A cell
that begins with a quote may hold separators and line breaks, up to the quote that closes it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

LATIN_1 = "hardcase.latin-1"  # error handler of codecs: a byte that is not UTF-8 is the character of Latin-1
MISSING_WORDS = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null")
TRUE_WORDS = ("true", "True", "TRUE")
FALSE_WORDS = ("false", "False", "FALSE")
_SEPARATORS = "\t;,"  # a tie goes to the first: a comma is likelier inside a name than the others are
_OPENING = re.compile(f'(?:\\A|[{_SEPARATORS}\\r\\n])"')
_WORDS: dict[str, float | None] = {
    **dict.fromkeys(MISSING_WORDS),
    **dict.fromkeys(TRUE_WORDS, 1.0),
    **dict.fromkeys(FALSE_WORDS, 0.0),
}


def _as_latin_1(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeDecodeError)  # the handler is for decoding only
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(LATIN_1, _as_latin_1)


def separator_of(header: str) -> str:
    """The separator of a file with this header: a tab, a semicolon or a comma; a comma if the line has none of them.

    >>> separator_of('"a,b";c'), separator_of("a,b"), separator_of("a")
    (';', ',', ',')
    """
    unquoted = "".join(header.split('"')[::2])
    counts = [unquoted.count(c) for c in _SEPARATORS]
    return _SEPARATORS[counts.index(max(counts))] if any(counts) else ","


def is_open(text: str, was_open: bool = False) -> bool:
    """Whether a text ends within quotes; ``was_open``: whether the one before it did.

    >>> is_open('a,"b'), is_open('c""d"', was_open=True), is_open('5",b'), is_open('"a""')
    (True, False, False, True)
    """
    at = 0
    while True:
        if not was_open:
            opening = _OPENING.search(text, at)
            if opening is None:
                return False
            at = opening.end()
        was_open = False
        while (at := text.find('"', at) + 1) and text.startswith('"', at):
            at += 1
        if at == 0:
            return True


def column_names(header: Sequence[str]) -> list[str]:
    """The names in the cells of a header, without spaces around them; a cell without one is ``column K``, from 1.

    >>> column_names(["", " a "])
    ['column 1', 'a']
    """
    return [name.strip() or f"column {k}" for k, name in enumerate(header, 1)]


def number_in(cell: str, separator: str = ",") -> float | None:
    """The number in a cell, 1 or 0 for true and false, or None for a missing value.

    >>> number_in(" 2.5"), number_in("2,5", ";"), number_in("TRUE"), number_in("NA")
    (2.5, 2.5, 1.0, None)

    Raises
    ------
    ValueError
        The cell holds other text.
    """
    text = cell.strip()
    if text in _WORDS:
        return _WORDS[text]
    if separator != "," and "." not in text:
        text = text.replace(",", ".", 1)
    return float(text if "_" not in text else "not a number")
