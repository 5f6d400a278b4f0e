# SPDX-License-Identifier: Apache-2.0
"""The promise of a manifest's claims in words, and of each of its parts; claims may come from anyone."""

from __future__ import annotations

import json
import math
import re
from typing import Any

BY_CLASS, BY_TRUTH = "class", "truth"  # parts by the class that is answered, and by the true class
MAX_PARTS = 64  # of which a promise holds at once


def say_promise(claim: object) -> str | None:
    """The promise of a manifest's claims in one line; None if the claim, which may come from anyone, is malformed."""
    try:
        return _say(claim)
    except (TypeError, KeyError, ValueError):
        return None


def say_parts(claim: object) -> list[str]:
    """What the promise of a manifest's claims says of each part, a line each; empty without parts, or if malformed."""
    try:
        _say(claim)
        return _say_parts(claim)
    except (TypeError, KeyError, ValueError):
        return []


def _say(claim: Any) -> str:
    risk, delta, max_forward = (_share(claim[key]) for key in ("risk", "delta", "max_forward"))
    rows, counts = claim["rows"], claim["counts"]
    n, counted = _whole(rows["n"], 10**12), say_counts(counts, rows["n"], claim["of"])
    wrong = f"off by more than {_positive(claim['tolerance']):.4g}" if "tolerance" in claim else "wrong"
    bounded = {"error": "", "excess": " beyond those that f0 gets wrong"}[claim["of"]]
    file, sha256 = rows["file"], rows["sha256"]
    over = f"{n} rows" if "groups" not in rows else f"{_whole(rows['groups'], n)} groups ({n} rows, each group alike)"
    if not isinstance(file, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError("file or sha256 of the rows is malformed")
    parts = _say_parts(claim)
    also = f", of each of {len(claim['per']['parts'])} parts too," if parts else ""
    what = f"of local answers {wrong}{bounded}{also}"
    return (
        f"with probability {1 - delta:.4g} over the draw of {over}: at most {risk:.4g} {what} and at most "
        f"{max_forward:.4g} forwarded; of {counts['local']} answered, {counted} (rows {json.dumps(file)[:80]}, sha256 "
        f"{sha256[:16]})"
    )


def say_counts(counts: Any, n: int, of: str) -> str:
    """The errors among local answers on n rows, as a promise ``of`` "error" or "excess" counts them."""
    local, errors = counts["local"], counts["errors"]
    worse, better = (_whole(counts[key], _whole(local, n)) for key in ("worse", "better"))
    words = {"error": f"{_whole(errors, local)} wrong", "excess": f"{worse} worse and {better} better than f0"}
    return words[of]


def _say_parts(claim: Any) -> list[str]:
    """One line for each part that is promised, and one for all that are too small."""
    per = claim.get("per")
    if per is None:
        return []
    by, n, of = per["by"], claim["rows"]["n"], claim["of"]
    if not isinstance(by, str) or len(per["parts"]) > MAX_PARTS or len(per["small"]) > MAX_PARTS:
        raise ValueError("parts are malformed")
    what = {BY_CLASS: "answered as", BY_TRUTH: "truly"}.get(by, f"{json.dumps(by)[:40]} is")
    lines = [
        f"{what} {say_name(part['name'])}: at most {_share(claim['risk']):.4g}; of {part['local']} answered, "
        f"{say_counts(part, n, of)}"
        for part in per["parts"]
    ]
    draws = "groups" if "groups" in claim["rows"] else "answers"
    small = [f"{say_name(part['name'])} ({_whole(part['local'], n)} answers)" for part in per["small"]]
    if small:
        lines.append(f"not promised, as each needs {_whole(per['needs'], 10**12)} {draws}: {what} {', '.join(small)}")
    return lines


def say_name(value: Any) -> str:
    """The name of a part, short and quoted."""
    if not isinstance(value, str):
        raise ValueError("the name of a part is malformed")
    return json.dumps(value)[:40]


def _positive(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError("not an amount above 0")
    return float(value)


def _share(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:  # type: ignore[operator]
        raise ValueError("not a share from 0 to 1")
    return float(value)  # type: ignore[arg-type]


def _whole(value: object, highest: int) -> int:
    if type(value) is not int or not 0 <= value <= highest:
        raise ValueError(f"not a whole number from 0 to {highest}")
    return value
