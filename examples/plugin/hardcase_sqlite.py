# SPDX-License-Identifier: Apache-2.0
"""A sink of a package of one's own: ``hardcase-edge run ... --sink sqlite=FILE`` keeps decisions in a table."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from hardcase_edge.more.sinks.companion import Sink


class Table:
    """One row for each decision: its time, its route, and the whole line as JSON."""

    def __init__(self, path: str) -> None:
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("CREATE TABLE IF NOT EXISTS decisions (t REAL, route TEXT, line TEXT)")

    def write(self, decision: Mapping[str, Any]) -> None:
        """Add a row."""
        row = decision["t"], decision["route"], json.dumps(decision)
        self._file.execute("INSERT INTO decisions VALUES (?, ?, ?)", row)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


SQLITE = Sink(open=Table)
