# SPDX-License-Identifier: Apache-2.0
"""Where things lie in the repository, and a folder in memory."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
DATA = ROOT / "tests" / "data"  # small models that other libraries wrote, which need not be installed
MEMORY = "/dev/shm"  # on Linux


def in_memory() -> TemporaryDirectory[str]:
    """A folder in memory, where there is one: a disk would spend the time on states that nobody keeps."""
    return TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None)
