# SPDX-License-Identifier: Apache-2.0
"""Where things lie in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
DATA = ROOT / "tests" / "data"  # small models that other libraries wrote, which need not be installed
