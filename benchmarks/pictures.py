# SPDX-License-Identifier: Apache-2.0
"""Pictures of the benchmarks: SVG whose bytes depend on the figures alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["pyplot", "save"]


def pyplot() -> Any:
    """matplotlib, drawing SVG whose bytes depend on the figures alone."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "hardcase", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """Write one picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, dpi=100)
