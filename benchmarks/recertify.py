# SPDX-License-Identifier: Apache-2.0
"""Promises tested again by audits: 200 simulated deployments with drift at a random time, and 200 without.

    python -m benchmarks run recertify [--build build/rig] [--confirm build/rig-1] [--lives 200]

The policy is a cascade of the rig (quick effort; the build is trained if it is not there), and cases are test rows,
drawn with replacement. Drift is a sensor whose readings are off; f0 is asked with the same readings. What program and
f0 answer to each row, sound and drifted, is computed once; a life goes through them in virtual time. Each local
decision is audited with the same probability, and a device's own machine judges f0's answers. The rule "forward" was
designed on other drifts (made readings) and on this build; a build of another seed and method was
run once, when it was finished.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.forwarding import Answers, Drift, followed, section
from benchmarks.monitoring import beside_mapie, monitoring_section
from benchmarks.pages import ROOT, command, markdown, rest
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.base.change import Change, stake_at, stakes
from hardcase_edge.bundle.load import Loaded, load_bundle
from hardcase_edge.kernel.machine import decide, open_machine
from hardcase_edge.more.drift.promise import ALPHA, BROKEN, DELTA, HOLDS, Promise, promise_of
from hardcase_edge.more.drift.reaction import place_of
from hardcase_export.integers.decide import readings_of
from hardcase_export.picking.monitors import failed_readings

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG = ROOT / "examples" / "hydraulic" / "hardcase.toml"
WISH = ("--max-loss", "0", "--method", "cascade")  # which forwards some cases, so that it promises an agreement
CONFIRM = ("--max-loss", "0", "--method", "adapt-gbrt")  # of the build of seed 1, whose cascades forward nothing
DECISIONS = 200_000  # of a life; at one a minute 139 days
SHARE = 0.005
SIZES = (0.5, 1.0, 2.0, 3.0)  # standard deviations of a bias
GOAL = 0.05  # share of lives with a false alarm, at most; a device allows itself ALPHA
CLEAR = 0.02  # a drift whose agreement is less than this below the promise is not counted as one that breaks it
BUCKETS = (0.02, 0.05, 0.1, 0.2, 1.0)  # of how far the agreement falls below the promise
BOUNDS = (0.001, 0.002, 0.005, 0.007, 0.012, 0.02, 0.05, 0.1)  # shares of cases that are forwarded at most
MORE = (2.0, 1.25)  # times as often as promised
EARLIER = 100_000  # decisions before, with half of what is promised
SMALL_LIVES, SOUND_LIVES, SOUND = 40, 200, 200_000  # lives for each bound; those that keep it, and their decisions
BLOCK = 4_096  # decisions that are drawn together


def bundle_of(build: Path, out: Path, *wish: str, seed: int = 0) -> Loaded:
    """The pick of this wish, exported with monitors; the build is trained if it is not there.

    A pick that reads nothing has nothing to watch, so the benchmark then ends and says so.
    """
    if not (build / "front.json").exists():
        build.parent.mkdir(parents=True, exist_ok=True)
        command("train", CONFIG, "--out", build, "--effort", "quick", "--quiet", "--seed", seed)
    command("export", build, *(wish or ("--max-loss", "0.005")), "--monitors", "--out", out)
    return load_bundle(out)


def answers(loaded: Loaded, X: np.ndarray, y: np.ndarray, model: Hpc) -> Answers:
    """What program and f0 answer to each row with the label y, the number of its class."""
    program = loaded.machine.program
    machine, rows = open_machine(program), readings_of(program, X)
    made = [decide(machine, row) for row in rows]
    f0 = np.array([k for k, _ in model.answer([[row[f] for f in program.uplink.features] for row in rows])])
    results, local = np.array([int(d.result) for d in made]), np.array([d.route == "local" for d in made])
    places = np.array([place_of(int(d.result), d.confidence / 10_000, len(d.sensors)) for d in made])
    return Answers(local, results == f0, np.array([d.confidence / 10_000 for d in made]), places, results == y)


def drifts(loaded: Loaded, X: np.ndarray, y: np.ndarray, model: Hpc) -> dict[str, Answers]:
    """By name what the program answers when one sensor that it buys is off."""
    program = loaded.machine.program
    assert loaded.manifest.monitors is not None
    bought = sorted({s for s, sensor in enumerate(program.sensors) for f, _ in loaded.manifest.monitors.features
                     if f in sensor.features})  # fmt: skip
    rng = np.random.default_rng(0)
    return {
        f"{loaded.manifest.sensors[s]}, {kind} of {size:g}": answers(
            loaded, failed_readings(X, program.sensors[s].features, kind, rng, size), y, model
        )
        for s in bought
        for kind in ("bias up", "bias down", "noise")
        for size in SIZES
    }


def live(promise: Promise, before: Answers, after: Answers, at: int, rng: np.random.Generator, n: int = DECISIONS
         ) -> list[int]:  # fmt: skip
    """One life: the decisions at which the promise was found broken, one after the other."""
    rows, drawn = rng.integers(0, len(before[0]), n), rng.random(n) < SHARE
    is_after = np.arange(n) >= at
    local, agrees = (np.where(is_after, after[k][rows], before[k][rows]) for k in (0, 1))
    for k in np.flatnonzero(drawn & local).tolist():
        promise.decisions = k + 1
        promise.audited(bool(agrees[k]))
        if promise.breaks:
            return [k]
    return []


def bound(promised: float, true: float, audits_before: int) -> float:
    """Audits after a change within which it is noticed on average, at most: docs/math.md (128)."""
    m, worse = 1 - promised, 1 - true
    return values_until(m, worse, audits_before)


def values_until(m: float, worse: float, before: int, delta: float = ALPHA) -> float:
    """Values with a mean of ``worse`` until a test of the bound m notices, on average, at most: docs/math.md (129)."""
    shares = stakes(m)
    needed = math.log(1 / delta) + math.log(len(shares)) - math.log(stake_at(before + 1))
    times = []
    for f in shares:
        up, down = math.log1p(f * (1 - m) / m), math.log1p(-f)
        growth = worse * up + (1 - worse) * down
        if growth > 0:
            times.append((needed + up) / growth)
    return min(times, default=math.inf)


def ideal(promised: float, true: float) -> float:
    """Audits that any test with as few false alarms needs when it knows the change beforehand, asymptotically."""
    p, q = 1 - promised, 1 - true
    divergence = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else math.log(1 / p)
    return math.log(1 / ALPHA) / divergence


def drifting(build: Path, wish: Sequence[str], seed: int
             ) -> tuple[Loaded, Answers, dict[str, Answers], dict[str, float], list[str]]:  # fmt: skip
    """The bundle of a build, what is answered without drift and with each, f0's agreement, and drifts that break."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = bundle_of(build, Path(folder) / "rig.hcb", *wish, seed=seed)
    with np.load(build / "test.npz") as rows:
        X, y = rows["X"], rows["y"]
    model = Hpc(build / "hpc.onnx")
    promised, moved = loaded.manifest.claims["audits"]["at_least"], drifts(loaded, X, y, model)
    agreement = {name: float(x.agrees[x.local].mean()) if x.local.any() else 1.0 for name, x in moved.items()}
    broken = sorted(name for name, share in agreement.items() if share <= promised - CLEAR)
    return loaded, answers(loaded, X, y, model), moved, agreement, broken


def forwarded(build: Path, confirm: Path) -> list[dict[str, Any]]:
    """The rule "forward" under each drift that breaks a promise: of the design's build, and of another."""
    found = []
    for seed, (folder, wish) in enumerate(((build, WISH), (confirm, CONFIRM))):
        loaded, _, moved, _, _ = drifting(folder, wish, seed)
        found += _followed(f"rig, {wish[-1]}, seed {seed}", loaded, moved, 100 * seed)
    return found


def _followed(policy: str, loaded: Loaded, moved: dict[str, Answers], seed: int) -> list[dict[str, Any]]:
    promised = loaded.manifest.claims["audits"]["at_least"]
    share = {name: float(x.agrees[x.local].mean()) if x.local.any() else 1.0 for name, x in moved.items()}
    broken = sorted(name for name in moved if share[name] <= promised - CLEAR)
    return [followed(Drift(policy, x, promised, moved[x]), seed + k) for k, x in enumerate(broken)]


def measure(build: Path, confirm: Path, lives: int) -> dict[str, Any]:
    """Everything."""
    loaded, sound, moved, agreement, broken = drifting(build, WISH, 0)
    promised = loaded.manifest.claims["audits"]["at_least"]
    truth = float(sound[1][sound[0]].mean())
    with_drift, without = [], []
    for k in range(lives):
        rng = np.random.default_rng(k)
        name = broken[int(rng.integers(len(broken)))]
        at = int(rng.integers(DECISIONS // 10, 7 * DECISIONS // 10))
        promise = _promise(loaded)
        found = live(promise, sound, moved[name], at, rng)
        local = float(moved[name][0].mean())
        audits_before = round(at * float(sound[0].mean()) * SHARE)
        with_drift.append({
            "drift": name, "at": at, "true": agreement[name], "local": local, "found": found[0] if found else None,
            "said": promise.broken_since, "bound": bound(promised, agreement[name], audits_before),
            "ideal": ideal(promised, agreement[name]), "state": promise.state,
        })  # fmt: skip
    for k in range(lives):
        promise = _promise(loaded)
        found = live(promise, sound, sound, DECISIONS, np.random.default_rng(10_000 + k))
        without.append({"broken": bool(found), "state": promise.state, "audits": promise.n})
    return {
        "promised": promised, "truth": truth, "local": float(sound[0].mean()), "drifts": len(moved),
        "breaking": len(broken), "with": with_drift, "without": without, "exact": _exact(promised, lives),
        "forward": forwarded(build, confirm), "small": [_small(m) for m in BOUNDS],
        "monitoring": beside_mapie(lives),
    }  # fmt: skip


def _small(m: float) -> dict[str, Any]:
    """How soon one notices that more is forwarded than m, and how often although it is not."""
    found = dict[str, Any]()
    for times in MORE:
        delays = [_noticed(Change(m, ALPHA), times * m, EARLIER, k) for k in range(SMALL_LIVES)]
        late = values_until(m, times * m, EARLIER)
        found[f"{times:g}"] = {"after": float(np.mean(delays)), "most": max(delays), "bound": late}
    exact = [_noticed(Change(m, ALPHA), m, 0, k, SOUND) < math.inf for k in range(SOUND_LIVES)]
    return {"bound": m, "more": found, "alarms": sum(exact)}


def _noticed(change: Change, rate: float, before: int, seed: int, most: float = math.inf) -> float:
    """Decisions with this rate after which a change is noticed, after others with half of the bound."""
    rng, n, at = np.random.default_rng([seed, round(1e6 * change.bound)]), 0, 0.0
    change.see_all((rng.random(before) < change.bound / 2).astype(float).tolist(), range_list(0, before))
    while n < most and not change.is_noticed:
        at = change.see_all((rng.random(BLOCK) < rate).astype(float).tolist(), range_list(n, BLOCK))
        n += BLOCK
    return at if change.is_noticed else math.inf


def range_list(start: int, n: int) -> list[int]:
    """The next n marks."""
    return list(range(start + 1, start + n + 1))


def _promise(loaded: Loaded, rule: str = "alarm") -> Promise:
    promise = promise_of(loaded.manifest.claims, rule)
    assert promise is not None
    return promise


def _exact(promised: float, lives: int) -> int:
    """Of as many lives whose agreement is exactly the promised one, the hardest case: false alarms in 1000 audits."""
    alarms = 0
    for k in range(lives):
        promise = Promise(promised, None)
        for agrees in np.random.default_rng(20_000 + k).random(1_000) < promised:
            promise.audited(bool(agrees))
        alarms += promise.state == BROKEN
    return alarms


def page(measured: dict[str, Any], is_whole: bool = False) -> str:
    """The Markdown page; ``is_whole``: with each drift of the rule by itself."""
    with_drift, without = measured["with"], measured["without"]
    n = len(with_drift)
    false = sum(life["found"] is not None and life["found"] < life["at"] for life in with_drift)
    false += sum(life["broken"] for life in without)
    text = (
        "# Promises tested again\n\n"
        f"`python -m benchmarks run recertify` lives {n} lives with drift and {len(without)} without: a bundle of the "
        f"rig promises that f0 agrees with at least {measured['promised']:.4f} of its local answers (on test rows it "
        f"agrees with {measured['truth']:.4f}, and {measured['local']:.0%} of the cases are answered alone).\n"
        f"A life has {DECISIONS:,} decisions, of which {SHARE:.1%} of the local ones are audited; a drift is a sensor "
        f"that is off in one of {measured['breaking']} ways (of {measured['drifts']} tried) that take the agreement at "
        f"least {CLEAR:.2f} below the promise.\n"
        "The largest stake was lowered after a run of these lives had one false alarm at 5 %.\n\n"
    )
    rows = []
    for low, high in pairwise(BUCKETS):
        some = [x for x in with_drift if low <= measured["promised"] - x["true"] < high]
        seen = [x for x in some if x["found"] is not None and x["found"] >= x["at"]]
        if some:
            delays = [(x["found"] - x["at"]) for x in seen]
            audits = [d * SHARE * x["local"] for d, x in zip(delays, seen, strict=True)]
            rows.append([f"{low:.2f} to {high:.2f}", str(len(some)), str(len(seen)), _mean(delays), _mean(audits),
                         _mean([x["bound"] for x in some]), _mean([x["ideal"] for x in some])])  # fmt: skip
    head = ("agreement below the promise by", "lives", "noticed", "after decisions", "after audits", "bound", "ideal")
    text += markdown(head, rows)
    held = sum(not life["broken"] for life in without)
    shown = sum(life["state"] == HOLDS for life in without)
    verdict = "kept" if false <= GOAL * 2 * n and held == n else "missed"
    text += (
        "\n\nDelays are means over the lives that noticed; *bound* is the most audits that the test needs on average "
        "([math](../math.md)), *ideal* what any test with as few false alarms needs that knows the change.\n\n"
        f"Without drift {held} of {len(without)} lives hold to their end, and {shown} of them are shown to hold (with "
        f"{1 - DELTA:.0%} confidence).\nFalse alarms, before the drift or without one: {false} of {2 * n} lives; the "
        f"goal, at most {GOAL:.0%} over a whole life and all lives without drift held, is {verdict}.\nWhere the "
        f"agreement is exactly the promised share, {measured['exact']} of {n} lives of "
        "1,000 audits have a false alarm.\n"
    )
    text += section(measured["forward"], is_whole) + _small_page(measured["small"])
    return text + monitoring_section(measured["monitoring"])


def whole(measured: dict[str, Any]) -> str:
    """The page with every drift of the rule."""
    return page(measured, is_whole=True)


def _small_page(small: list[dict[str, Any]]) -> str:
    """The section on promised shares of forwarded cases."""
    rows = [
        [f"{x['bound']:g}", *(f"{it[key]:,.0f}" for it in x["more"].values() for key in ("after", "most", "bound")),
         str(x["alarms"])]
        for x in small
    ]  # fmt: skip
    names = [(f"after, {times:g} times", "most", "bound") for times in MORE]
    heads = ("promised", *(n for some in names for n in some), "false")
    about = "*most* is the largest number of decisions, *bound* the most on average:"
    few = [[row[0], row[1], row[4], row[-1]] for row in rows]
    return (
        "\n## Small promised shares\n\n"
        f"A bundle promises that at most a share of the cases is forwarded, and half of it is for {EARLIER:,} "
        f"decisions; then it is {MORE[0]:g} or {MORE[1]:g} times the promised share.\n"
        f"*after* is the mean number of decisions until the device notices in {SMALL_LIVES} lives; *false* counts, of "
        f"{SOUND_LIVES} lives of {SOUND:,} decisions with exactly the promised share, those that call it broken.\n\n"
        + markdown(("promised", *(some[0] for some in names), "false"), few)
        + "\n"
        + rest("the most and the bound of small shares", f"{about}\n\n{markdown(heads, rows)}")
    )


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):,.0f}" if values else ""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "rig")
    parser.add_argument("--confirm", type=Path, default=ROOT / "build" / "rig-1", help="of seed 1")
    parser.add_argument("--lives", type=int, default=200)
    parser.add_argument("--small", action="store_true", help="measure small shares alone, beside what was measured")
    parser.add_argument("--forward", action="store_true", help="measure the rule alone, beside what was measured")
    parser.add_argument("--monitoring", action="store_true", help="measure beside MAPIE alone, likewise")


def run(args: Any) -> Any:
    """Measure all, or some beside what was measured before."""
    if not (args.small or args.forward or args.monitoring):
        return measure(args.build, args.confirm, args.lives)
    before = args.known()
    before |= {"small": [_small(m) for m in BOUNDS]} if args.small else {}
    before |= {"forward": forwarded(args.build, args.confirm)} if args.forward else {}
    before |= {"monitoring": beside_mapie(args.lives)} if args.monitoring else {}
    return before
