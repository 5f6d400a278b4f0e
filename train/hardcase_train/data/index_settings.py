# SPDX-License-Identifier: Apache-2.0
"""Settings of the methods that index sensor sets by item size and budget: ``[index]`` of hardcase.toml."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardcase_edge.errors import InputError

__all__ = ["IndexSettings"]

RANGES = {"alpha": (1, 10), "tolerance": (0, 1), "max_trained": (1, 1 << 16), "max_minutes": (0, 1e6),
          "max_models": (1, 1 << 16), "max_bytes": (1, 1 << 30)}  # fmt: skip
WHOLE = ("max_trained", "max_models", "max_bytes")


@dataclass(frozen=True)
class IndexSettings:
    """Settings of ``poly-dom`` and the methods beside it.

    alpha : factor that the best trained set may be worse than the best of all, for any size and budget
    tolerance : e, how much worse a superset of sensors may be; below the standard error of an accuracy it means nothing
    expands_all : train every set (Naive-Expand-All)
    estimated : train only sets whose estimated accuracy promises something, which keeps no promise and trains fewest
    max_trained, max_minutes : with one of them the search is progressive: it begins with a large factor, and lowers it
        to ``alpha`` as far as that many models, or minutes, allow
    max_models, max_bytes : of the models that a program may have; None: every set on a skyline

    Raises
    ------
    InputError
        A value is out of range.
    """

    alpha: float = 1.0
    tolerance: float = 0.01
    expands_all: bool = False
    estimated: bool = False
    max_trained: int | None = None
    max_minutes: float | None = None
    max_models: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for key, (low, high) in RANGES.items():
            value = getattr(self, key)
            if value is None:
                continue
            kinds = int | np.integer if key in WHOLE else int | float | np.number
            if not isinstance(value, kinds) or not low <= value <= high:
                kind = "whole numbers from " if key in WHOLE else ""
                raise InputError(f"[index] {key} is {value!r:.40}; {kind}{low:g} to {high:g} are expected")
