# SPDX-License-Identifier: Apache-2.0
"""Where what foreign code prints goes: to standard error, and nowhere if that cannot be written."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _StandardError(io.RawIOBase):
    """Standard error for those who print: what cannot be written is lost, and is nobody's error."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, data: Any) -> int:
        view = memoryview(data)
        try:
            os.write(2, view)
        except OSError:
            return view.nbytes
        return view.nbytes


def print_to_stderr() -> None:
    """Let ``print`` and all who write to ``sys.stdout`` or ``sys.stderr`` write to standard error, without buffers."""
    sys.stdout = sys.stderr = io.TextIOWrapper(
        _StandardError(), encoding="utf-8", errors="backslashreplace", write_through=True
    )
