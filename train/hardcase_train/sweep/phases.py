# SPDX-License-Identifier: Apache-2.0
"""The numbered phases of a training run, each with a bar that stays on the terminal as one line."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

__all__ = ["CHOICE", "N_PHASES", "SETS", "SETTINGS", "phase_bar"]

SETS, CHOICE, SETTINGS, N_PHASES = 2, 3, 4, 5  # 1 is f0 and 5 is the report: other rooms show them


def phase_bar(phase: int, what: str, total: int | None, quiet: bool, initial: int = 0) -> Any:
    """A bar with the number of the phase, what is counted, and tqdm's time left; on stderr, only on a terminal.

    quiet : whether there is no bar anyway
    """
    return tqdm(total=total, initial=initial, desc=f"{phase}/{N_PHASES} {what}", disable=quiet or None)
