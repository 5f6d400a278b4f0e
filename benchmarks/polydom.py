# SPDX-License-Identifier: Apache-2.0
"""Poly-Dom: sets trained, sizes and speed of the index, and accuracy in time on scenes; writes its page.

    python -m benchmarks run polydom synthetic [--features 4 5 6 7 8 9 10 11 12]
    python -m benchmarks run polydom figures
    python -m benchmarks run polydom speed
    HARDCASE_DATA=FOLDER python -m benchmarks run scene_extractors RECORD.npz
    python -m benchmarks run polydom scenes RECORD.npz [--seeds 5] [--first 0] [--step searches]

Each part adds its figures to the results, and writes the page from all of them.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from benchmarks import polydom_figures, scene_bank, scene_budgets, scene_searches
from benchmarks.polydom_page import page
from hardcase_train.methods.polydom.index import Index, Set, candidates, index_all, make_index, naive_lookup
from hardcase_train.methods.polydom.search import COST, SANDWICH, search_sets
from hardcase_train.methods.polydom.sets import members

__all__ = ["SEEDS", "arguments", "draw", "page", "run"]

LARGEST = 500  # item size of the synthetic problems
DRAWS = 5
STEPS = ("searches", "cpu", "wall")  # of scenes
LATTICES = (("f0", 1.2), ("f2", 1.0), ("all", 1.0))

Costs = list[tuple[int, int, int]]


def synthetic(n: int, kind: str, seed: int) -> tuple[Costs, Callable[[int], float]]:
    """Costs a0 + a1 s + a2 s^2 and accuracies above chance, one half, of the paper's synthetic problem as we read it.

    f0: a set is as accurate as its best feature. f2: a noisy-or of its best three, above chance; all: of all.
    """
    rng = random.Random(seed)
    costs = [tuple(round(1e6 * rng.uniform(0, top)) for top in (100, 1, 0.001)) for _ in range(n)]
    single = [rng.uniform(0.8, 1) if rng.random() < 0.5 else rng.uniform(0.5, 0.6) for _ in range(n)]
    count = {"f0": 1, "f2": 3, "all": n}[kind]

    def accuracy(mask: int) -> float:
        best = sorted((single[k] for k in members(mask)), reverse=True)[:count]
        return best[0] if count == 1 else 1 - float(np.prod([2 - 2 * a for a in best])) / 2

    return costs, accuracy  # type: ignore[return-value]


def trained_sets(counts_of_features: Sequence[int] = range(4, 13)) -> list[dict[str, Any]]:
    """Sets trained by both prunings for some numbers of features, sizes of indexes, and whether promises are kept."""
    rows = []
    for kind, alpha in LATTICES:
        for n in counts_of_features:
            row: dict[str, Any] = {"kind": kind, "alpha": alpha, "n": n, "all": 2**n - 1}
            for name, prune in (("paper", SANDWICH), ("ours", COST)):
                counts, worst, shipped, entries, every = [], 1.0, [], [], []
                for seed in range(DRAWS):
                    costs, accuracy = synthetic(n, kind, seed)
                    found = search_sets(costs, LARGEST, accuracy, 0.5, alpha=alpha, prune=prune)
                    index = make_index(candidates(found), LARGEST)
                    counts.append(found.n_trained)
                    shipped.append(len(index.sets))
                    entries.append(index.n_entries)
                    if n == 10:
                        worst = max(worst, worst_factor(costs, accuracy, n, index))
                        if name == "ours" and seed == 0:
                            every.append(index_all(candidates(found), LARGEST).n_entries)
                row[name] = {
                    "trained": float(np.mean(counts)), "each": counts, "shipped": float(np.mean(shipped)),
                    "entries": float(np.mean(entries)), "entries of index-all": every, "worst": worst,
                }  # fmt: skip
            rows.append(row)
            print(kind, n, row["paper"]["trained"], row["ours"]["trained"], row["ours"]["worst"], flush=True)
    return rows


def worst_factor(costs: Costs, accuracy: Callable[[int], float], n: int, index: Index) -> float:
    """By how much the best of all sets beats the index, at most, over a grid of sizes and all budgets."""
    is_in = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    quality = np.array([0.5, *(accuracy(mask) for mask in range(1, 1 << n))])
    worst = 1.0
    for size in (1, 2, 5, 20, 60, 150, 300, 500):
        amounts = is_in @ np.array([a + b * size + c * size**2 for a, b, c in costs])
        order = np.argsort(amounts, kind="stable")
        best = np.maximum.accumulate(quality[order])
        line = index.of_size(size)
        paid, reached = (np.array(v) for v in zip(*((c, s.accuracy) for c, s in line), strict=True))
        ours = reached[np.searchsorted(paid, amounts[order], side="right") - 1]
        last = np.append(amounts[order][1:] != amounts[order][:-1], True)  # of equal costs, the last has seen all
        worst = max(worst, float((best / ours)[last].max()))
    return worst


# ---------------------------------------------------------------- speed


def some_sets(count: int, n: int = 12) -> list[Set]:
    """As many candidates as asked for, of a synthetic lattice in which every feature counts."""
    for seed in range(100):
        costs, accuracy = synthetic(n, "all", seed)
        sets = candidates(search_sets(costs, LARGEST, accuracy, 0.5))
        if len(sets) >= count:
            return sets[:count]
    raise ValueError(f"no lattice has {count} candidates")


def speed() -> dict[str, Any]:
    """Seconds of CPU: lookups in C and Python, the sweep, and searches whose models cost nothing."""
    sets = some_sets(80)
    index = make_index(sets, LARGEST)
    rng = random.Random(0)
    queries = []
    for _ in range(2000):
        size = rng.randint(1, LARGEST)
        queries.append((size, int(rng.uniform(0, 1.1) * sets[0].at(size))))
    figures: dict[str, Any] = {"candidates": len(sets), "ranges": len(index.starts), "entries": index.n_entries}
    figures |= lookups_in_c(sets, index, queries)
    for name, pick in (("bisect", index.pick), ("linear", lambda s, b: naive_lookup(sets, s, b))):
        figures[f"python {name} us"] = 1e6 * best_of(lambda pick=pick: [pick(s, b) for s, b in queries]) / len(queries)
    few = sets[:44]
    figures["python linear us, 44"] = (
        1e6 * best_of(lambda: [naive_lookup(few, s, b) for s, b in queries]) / len(queries)
    )
    many = some_sets(100)
    figures["sweep of 100 ms"] = 1e3 * best_of(lambda: make_index(many, LARGEST), 3)
    for n, draws in ((13, 3), (16, 1)):
        costs, accuracy = synthetic(n, "all", 1)
        known = {mask: accuracy(mask) for mask in range(1, 1 << n)}
        began = time.process_time()
        found = search_sets(costs, LARGEST, known.__getitem__, 0.5)
        figures[f"search {n} s"], figures[f"search {n} trained"] = time.process_time() - began, found.n_trained
        del draws
    return figures


def best_of(run: Callable[[], object], times: int = 5) -> float:
    """The least CPU seconds of a few runs."""
    least = float("inf")
    for _ in range(times):
        began = time.process_time()
        run()
        least = min(least, time.process_time() - began)
    return least


CODE = """
#include <time.h>
#include <stdint.h>
static inline int64_t price(const int64_t *c, int64_t s) { return (c[2] * s + c[1]) * s + c[0]; }
static int linear(const int64_t *cost, int n, int64_t s, int64_t budget)
{
    for (int k = 0; k < n; k++) if (price(cost + 3 * k, s) <= budget) return k;
    return -1;
}
static int bisect(const int64_t *cost, const int *starts, const int *first, const int *entries, int n, int64_t s,
                  int64_t budget)
{
    int low = 0, high = n - 1;
    while (low < high) { int mid = (low + high + 1) / 2; if (starts[mid] <= s) low = mid; else high = mid - 1; }
    int a = first[low], b = first[low + 1];
    while (a < b) { int mid = (a + b) / 2; if (price(cost + 3 * entries[mid], s) <= budget) a = mid + 1; else b = mid; }
    return a > first[low] ? entries[a - 1] : -1;
}
double measure(const int64_t *cost, int n_sets, const int *starts, const int *first, const int *entries, int n,
               const int64_t *sizes, const int64_t *budgets, int n_queries, int repeats, int kind, int *out)
{
    struct timespec t, u;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    for (int r = 0; r < repeats; r++)
        for (int q = 0; q < n_queries; q++)
            out[q] = kind ? bisect(cost, starts, first, entries, n, sizes[q], budgets[q])
                          : linear(cost, n_sets, sizes[q], budgets[q]);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &u);
    return (1e9 * (u.tv_sec - t.tv_sec) + (u.tv_nsec - t.tv_nsec)) / ((double)repeats * n_queries);
}
"""


def lookups_in_c(sets: Sequence[Set], index: Index, queries: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Nanoseconds of a lookup by a scan of all candidates, and by the index's two searches; both answer alike."""
    ffi = cffi.FFI()
    ffi.cdef(CODE[CODE.index("double measure") :].split(")")[0] + ");")
    ffi.set_source("_polydom_lookup", CODE, extra_compile_args=["-O2"])
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = ffi.compile(tmpdir=folder)
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("_polydom_lookup", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        place = {s.mask: k for k, s in enumerate(sets)}
        flat = [c for s in sets for c in [*s.cost, 0, 0][:3]]
        first = np.cumsum([0, *map(len, index.skylines)]).tolist()
        entries = [place[s.mask] for line in index.skylines for s in line]
        sizes, budgets = zip(*queries, strict=True)
        arguments = [
            ffi.new("int64_t[]", flat), len(sets), ffi.new("int[]", list(index.starts)), ffi.new("int[]", first),
            ffi.new("int[]", entries), len(index.starts), ffi.new("int64_t[]", list(sizes)),
            ffi.new("int64_t[]", list(budgets)), len(queries),
        ]  # fmt: skip
        outs = [ffi.new("int[]", len(queries)) for _ in range(2)]
        ns = [min(module.lib.measure(*arguments, 100, kind, outs[kind]) for _ in range(5)) for kind in (0, 1)]
        accuracy = [[sets[k].accuracy if k >= 0 else -1 for k in out] for out in outs]
        if accuracy[0] != accuracy[1]:
            raise AssertionError("the two lookups answer differently")
    return {"c linear ns": ns[0], "c bisect ns": ns[1]}


# ---------------------------------------------------------------- scenes


def scenes(path: Path, seed: int, steps: Sequence[str], exhaustive: bool) -> dict[str, Any]:
    """Figures of one split: the steps that are asked for, of ``STEPS``."""
    split = scene_bank.Scenes.read(path, seed)
    bank = split.bank()
    if exhaustive:
        bank.fill()
    figures: dict[str, Any] = {"images": sum(len(y) for y in split.y.values()) // len(scene_bank.SIDES)}
    if "searches" in steps:
        figures["searches"] = scene_searches.searches(split, bank, exhaustive)
    costs = split.costs("cpu", 0.5)
    polynomials = [costs.of(1 << k) for k in range(costs.n)]
    masks = list(search_sets(polynomials, costs.largest, bank.accuracy, bank.accuracy(0), tolerance=0.01).accuracy)
    timed = {
        clock: scene_budgets.methods_in_time(split, bank, clock, masks) for clock in ("cpu", "wall") if clock in steps
    }
    if timed:
        figures["in time"] = timed
    return figures


SEEDS = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("part", choices=("synthetic", "figures", "speed", "scenes"))
    parser.add_argument("record", type=Path, nargs="?")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", action="append", choices=STEPS, help="of scenes (default all)")
    parser.add_argument("--features", type=int, nargs="+", default=[*range(4, 13)], help="of synthetic lattices")
    parser.add_argument("--no-exhaustive", action="store_true", help="do not train all 8,191 sets")


def run(args: Any) -> dict[str, Any]:
    """Run a part beside what is there."""
    results = args.known()
    if args.part == "synthetic":
        results["synthetic"] = with_rows(results.get("synthetic"), trained_sets(args.features))
    elif args.part == "figures":
        results["figures"] = polydom_figures.figures(synthetic, args.features)
    elif args.part == "speed":
        results["speed"] = speed()
        print("\n".join(f"{what:24}{value:10.4g}" for what, value in results["speed"].items()))
    else:
        for seed in range(args.first, args.first + args.seeds):
            made = scenes(args.record, seed, args.step or STEPS, not args.no_exhaustive)
            results["scenes"] = with_splits(results.get("scenes"), {str(seed): made})
            args.save(results)
            print(seed, json.dumps(made.get("searches")), flush=True)
    return results


def draw(results: dict[str, Any]) -> None:
    """The pictures of the page."""
    polydom_figures.draw(results)


def with_rows(old: list[dict[str, Any]] | None, new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of lattices, each once."""
    rows = {(r["kind"], r["n"]): r for r in [*(old or ()), *new]}
    kinds = [kind for kind, _ in LATTICES]
    return [rows[key] for key in sorted(rows, key=lambda key: (kinds.index(key[0]), key[1]))]


def with_splits(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Splits with further steps of some; figures of another number of images go."""
    joined = dict(old or {})
    for seed, made in new.items():
        before = joined.get(seed, {})
        both = before if before.get("images") == made["images"] else {}
        clocks = {**both.get("in time", {}), **made.get("in time", {})}
        joined[seed] = {**both, **made, **({"in time": clocks} if clocks else {})}
    return joined
