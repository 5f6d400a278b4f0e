# SPDX-License-Identifier: Apache-2.0
"""Columns that hold no reading: empty or constant ones, names and numbers of rows, names of groups of rows.

Or they hold readings that are not written as numbers, and are then taken for text.

Only their look gives such columns away, so these are suspicions, for people to confirm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .kinds import texts_in, why_no_category

MIN_ROWS = 10  # fewer rows are all distinct by chance
ID = re.compile(r"(?:^|[\W_])(?:id|ids|uid|uuid|guid|index|idx|row|key|nr|no)(?:$|[\W_])|^column 1$", re.I)
GROUP = re.compile(
    r"(?:^|[\W_])(?:id|user|subject|patient|person|participant|machine|device|unit|session|run|batch|cycle|trial|group|"
    r"household|customer|query|qid)(?:$|[\W_])",
    re.I,
)
STAND_INS = (99, 127, 999, 9_999, 32_767, 32_768, 65_535, 99_999, 999_999)  # with either sign: often no readings
MIN_NUMBERS = 5  # fewer texts that look like numbers may as well be names, such as 1, 2 and 3a
UNIT = re.compile(r"\D{0,4}\Z")  # behind a number, the same in every text, such as " kWh"
NUMBER = re.compile(
    r"[^\w.,+-]{0,2}[+-]?(?:(?:0|[1-9]\d*)(?:[.,]\d*)?|[.,]\d+|"
    r"[1-9]\d{0,2}(?P<apart>[., '\u00a0\u202f])\d{3}(?:(?P=apart)\d{3})*(?:[.,]\d+)?)(?:[eE][+-]?\d+)?"
)  # also behind a sign such as that of euros, and with thousands apart; no code such as 007


def why_no_number(name: str, values: np.ndarray) -> str:
    """Why a column of numbers, (n,) with NaN for missing, holds no reading; empty if it may hold one.

    >>> why_no_number("n", np.arange(20.0)), why_no_number("price", np.arange(20.0) ** 2 % 7)
    ('counts the rows', '')
    """
    present = values[~np.isnan(values)]
    distinct = np.unique(present)
    if len(distinct) < 2:
        return _constant(len(distinct))
    if len(distinct) < len(values) or len(values) < MIN_ROWS:
        return ""
    steps = np.diff(values)
    if np.allclose(steps, steps[0], rtol=1e-6, atol=0):
        return "counts the rows"
    is_whole = bool((values == np.floor(values)).all())
    if is_whole and ((steps > 0).all() or (steps < 0).all()):
        return "rises from row to row" if steps[0] > 0 else "falls from row to row"
    if is_whole and (ID.search(name) or distinct[-1] - distinct[0] == len(values) - 1):
        return "names rows: every number is different"
    return ""


def why_no_text(values: Sequence[Any]) -> str:
    """Why a column of texts, None for missing, holds no category; empty if it may hold one."""
    texts = texts_in(values)
    if len(texts) < 2:
        return _constant(len(texts))
    n_present = sum(isinstance(v, str) and bool(v.strip()) for v in values)
    reason = why_no_category(texts)
    if len(texts) == n_present and n_present >= MIN_ROWS:
        reason = "names rows: every text is different"
    numbers = why_numbers(texts) if reason else ""
    return f"{reason}; {numbers}" if numbers else reason


def why_numbers(texts: Sequence[str]) -> str:
    """How different texts seem to be numbers that are not written as such; empty if most of them do not.

    >>> why_numbers(["1", "2", "3", "4.5", "5", "-"])
    "most are numbers, and '-' is not: if it stands for a missing value, leave such cells empty"
    >>> why_numbers(["1,5 %", "2,5 %", "20 %", "3,25 %", "8 %"])
    "they look like numbers, and '1,5 %' is not written as one"
    """
    written = [text for text in texts if any(map(str.isdigit, text))]
    if len(written) < MIN_NUMBERS:
        return ""
    unit = UNIT.findall(written[0])[0]
    end = len(unit) if all(text.endswith(unit) for text in written) else 0
    others = [text for text in texts if not NUMBER.fullmatch(text[: len(text) - end].strip())]
    if len(others) >= len(texts) / 2:
        return ""
    if others:
        return (
            f"most are numbers, and {others[0][:40]!r} is not: if it stands for a missing value, leave such cells empty"
        )
    odd = next((text for text in texts if not _is_number(text)), None)
    if odd is None:
        return "they are numbers, stored as text"
    return f"they look like numbers, and {odd[:40]!r} is not written as one"


def why_missing(values: np.ndarray) -> str:
    """Which number in a column, (n,) with NaN for missing, seems to stand for a missing value; empty if none does.

    One of ``STAND_INS`` in three rows or more, beyond all other numbers by more than these span.

    >>> why_missing(np.array([20.5, -999, 21, -999, 19.5, -999, 20, 22]))
    'has -999 in 3 rows, far from all other numbers: if it stands for a missing value, leave such cells empty'
    """
    distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(distinct) < MIN_NUMBERS:
        return ""
    for end, others in ((0, distinct[1:]), (-1, distinct[:-1])):
        gap = np.abs(others - distinct[end]).min()
        if counts[end] >= 3 and abs(distinct[end]) in STAND_INS and gap > np.ptp(others):
            return (
                f"has {distinct[end]:g} in {counts[end]} rows, far from all other numbers: if it stands for a missing "
                "value, leave such cells empty"
            )
    return ""


def why_alike(classes: Sequence[Any]) -> str:
    """Which two classes seem to be one, written in two ways; empty if none do.

    >>> why_alike(["fault", "OK", "ok"])
    "has the classes 'OK' and 'ok', which differ in upper and lower case alone: write one of them in all rows"
    """
    first: dict[str, str] = {}
    for label in classes:
        other = first.setdefault(str(label).casefold(), str(label))
        if other != str(label):
            alike = f"{other[:40]!r} and {str(label)[:40]!r}"
            return f"has the classes {alike}, which differ in upper and lower case alone: write one of them in all rows"
    return ""


def gives_away(values: Iterable[Any], labels: Sequence[Any]) -> bool:
    """Whether a column, None for missing, has one value for each class; where cells are missing, perhaps of the others.

    >>> gives_away([1, 2, 1, None], "abab"), gives_away([None, 2, None, 2], "abab"), gives_away([1, 2, 1, 1], "abab")
    (True, True, False)
    """
    n_classes, every, n_pairs = len(set(labels)), set[tuple[Any, Any]](), 0
    for pair in zip(values, labels, strict=False):
        if pair not in every:
            every.add(pair)
            n_pairs += pair[0] is not None
            if n_pairs > n_classes:  # soon, in most columns
                return False
    for pairs in (every, {pair for pair in every if pair[0] is not None}):
        if 0 < n_classes == len(pairs) == len({value for value, _ in pairs}) == len({label for _, label in pairs}):
            return True
    return False


def why_group(name: str, values: Sequence[Any]) -> str:
    """Why a column of texts or whole numbers seems to say which rows belong together; empty if it does not.

    >>> why_group("rig", [k // 5 for k in range(40)])
    'it has 8 values, each in consecutive rows'
    """
    distinct = set(values)
    n, k = len(values), len(distinct)
    if n < MIN_ROWS or not 3 <= k <= n / 3 or not all(isinstance(v, str) or v is None or v == int(v) for v in distinct):
        return ""
    if 1 + sum(a != b for a, b in pairwise(values)) == k:
        return f"it has {k} values, each in consecutive rows"
    return f"its name suggests it, and it has {k} values" if is_named_group(name) else ""


def is_named_group(name: str) -> bool:
    """Whether a column's name suggests that it says which rows belong together.

    >>> is_named_group("machine"), is_named_group("heat")
    (True, False)
    """
    return GROUP.search(name) is not None


def _constant(n_distinct: int) -> str:
    return "is the same in every row" if n_distinct else "is empty"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
