# SPDX-License-Identifier: Apache-2.0
"""What the first boot of a flashed card did: ``first-boot.json`` in the store's folder, read for the device's status.

Whoever flashes or installs writes it (``fleet/card/first_boot.py``); a device without it has not been flashed. A report
that is not readable changes nothing: it is left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

REPORT = "first-boot.json"
MAX_REPORT_BYTES = 4_096
MAX_TEXT = 200
KEYS = ("how", "runtime", "python", "processor", "evaluator", "reason", "store", "identity", "t")


def read_report(folder: Path) -> dict[str, str | int]:
    """The report in a store's folder, with the keys and the lengths that it may have; empty if there is none.

    >>> from pathlib import Path
    >>> read_report(Path("no-such-folder"))
    {}
    """
    try:
        with open(folder / REPORT, "rb") as file:
            report = json.loads(file.read(MAX_REPORT_BYTES))
        values = {key: report[key] for key in KEYS if key in report}
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    return {key: v[:MAX_TEXT] if isinstance(v, str) else v for key, v in values.items() if type(v) in (str, int)}
