# SPDX-License-Identifier: Apache-2.0
"""A device's test of its promise beside MAPIE's RiskMonitoring, on the same streams of audits.

``recertify.py --monitoring`` runs this and writes the section of its page; it takes about 15 minutes. An audit is wrong
with the same probability from the first one on. MAPIE's bound for the first n audits does not depend on later ones and
never falls, so a stream is given to it in few pieces, and the audit that takes its bound above the threshold is the one
after which ``harmful_shift_detected`` becomes True.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.pages import markdown, provenance
from hardcase_edge.more.drift.promise import ALPHA, BROKEN, Promise

if TYPE_CHECKING:
    from collections.abc import Iterable

PROMISED = 0.0191  # of the answers that a device gives alone, wrong at most
ERRORS = (0.07, 0.12, 0.22)  # what it becomes
MOST = 10_000  # audits of a stream
SOUND = (1_000, 10_000)  # audits of a stream whose error is exactly the promised one
PIECES = (500, 2_000, MOST)  # a stream is taken to its end only if nothing was noticed before
REFERENCE = 2_000  # rows whose labels are known before the device begins
MORE = 1_000  # more such streams, which our test alone sees: MAPIE takes 3 seconds for each
OURS = "hardcase"


class Setting(NamedTuple):
    """How RiskMonitoring is asked."""

    said: str
    level: float
    reference: int = 0  # rows it takes its threshold from; 0: the promised error is its threshold


SETTINGS = (
    Setting("MAPIE, threshold .0191, test_level .01", ALPHA),
    Setting("MAPIE, threshold .0191, test_level .04", 4 * ALPHA),
    Setting(f"MAPIE, {REFERENCE:,} reference rows, tolerance 0, test_level .01", ALPHA, REFERENCE),
)


def beside_mapie(streams: int) -> dict[str, Any]:
    """Audits until a worse error is noticed, and false alarms, of both tests on as many streams of each error."""
    worse = {f"{error:g}": noticed(error, range(streams)) for error in ERRORS}
    sound = noticed(PROMISED, range(streams))
    more = sum(_by_promise(_stream(PROMISED, streams + k)) is not None for k in range(MORE))
    made = provenance() | {"mapie": version("mapie")}
    return {"promised": PROMISED, "delta": ALPHA, "worse": worse, "sound": sound, "more": more, "made": made}


def noticed(error: float, seeds: Iterable[int]) -> list[dict[str, int | None]]:
    """Of the stream of each seed, by test the audit after which it notices; None: not within the stream."""
    return [{OURS: _by_promise(wrong)} | _by_mapie(wrong) for wrong in (_stream(error, seed) for seed in seeds)]


def _stream(error: float, seed: int) -> np.ndarray:
    """Audits of shape (MOST,), 1 where the device was wrong."""
    return (np.random.default_rng([seed, round(1e4 * error)]).random(MOST) < error).astype(int)


def _by_promise(wrong: np.ndarray) -> int | None:
    promise = Promise(1 - PROMISED, None)
    for n, is_wrong in enumerate(wrong.tolist(), 1):
        promise.decisions = n
        promise.audited(not is_wrong)
        if promise.state == BROKEN:
            return n
    return None


def _by_mapie(wrong: np.ndarray) -> dict[str, int | None]:
    """One monitor of each level sees the stream, for all settings with this level, until all have noticed."""
    from mapie.exchangeability_testing import RiskMonitoring

    found: dict[str, int | None] = {s.said: None for s in SETTINGS}
    for level in {s.level for s in SETTINGS}:
        asked = [(s.said, _threshold(s)) for s in SETTINGS if s.level == level]
        for n in PIECES:
            monitor = RiskMonitoring("accuracy", test_level=level, threshold=PROMISED, warn=False)
            bounds = monitor.update(np.zeros(n, dtype=int), wrong[:n]).online_risk_lower_bound_sequence_history
            found |= {said: int(np.argmax(bounds > most)) + 1 for said, most in asked if bounds[-1] > most}
            if all(found[said] for said, _ in asked):
                break
    return found


def _threshold(setting: Setting) -> float:
    """The promised error, or what the class makes of reference rows of which as many are wrong as is promised."""
    from mapie.exchangeability_testing import RiskMonitoring

    n = setting.reference
    if not n:
        return PROMISED
    known = (np.arange(n) < round(PROMISED * n)).astype(int)
    monitor = RiskMonitoring("accuracy", test_level=setting.level, tolerance=0.0)
    return float(monitor.compute_threshold(np.zeros(n, dtype=int), known).threshold)


def monitoring_section(found: dict[str, Any]) -> str:
    """The section of the page."""
    made, n = found["made"], len(found["sound"])
    rows = []
    for name in found["sound"][0]:
        cells = [_delays([stream[name] for stream in streams]) for streams in found["worse"].values()]
        alarms = [sum(s[name] is not None and s[name] <= most for s in found["sound"]) for most in SOUND]
        rows.append([name, *cells, *(f"{a} of {n}" for a in alarms)])
    head = ["test", *(f"error {e}" for e in found["worse"]), *(f"false alarms, {most:,} audits" for most in SOUND)]
    return (
        "\n## Beside MAPIE's RiskMonitoring\n\n"
        f"At most {found['promised']:g} of the local answers are promised to be wrong, and a test may alarm with a "
        f"probability of {found['delta']:g} where that holds; {n} streams of at most {MOST:,} audits for each error.\n"
        "A cell is the mean number of audits until the test notices with its 95 % interval, and the median; false "
        f"alarms are of {n} streams with exactly the promised error.\n\n"
        + markdown(head, rows)
        + f"\n\nOn {MORE:,} more streams of {MOST:,} audits with exactly the promised error ours alarms in "
        f"{found['more']}; MAPIE did not see these.\n"
        "MAPIE documents the second row; the third asks for four times the level, because MAPIE shares it; the last "
        "has its threshold from reference rows, without MAPIE's tolerance of .05.\n"
        f"MAPIE {made['mapie']}, {made['date']}; `python -m benchmarks run recertify --monitoring`.\n"
    )


def _delays(after: list[int | None]) -> str:
    """Mean with its interval, and median, of the streams in which it was noticed; how many were not."""
    seen = np.array([x for x in after if x is not None], dtype=float)
    if not len(seen):
        return f"never in {MOST:,}"
    half = 1.96 * seen.std(ddof=1) / np.sqrt(len(seen))
    late = len(after) - len(seen)
    return f"{seen.mean():,.0f} ± {half:,.0f}, {np.median(seen):,.0f}" + (f"; {late} not noticed" if late else "")
