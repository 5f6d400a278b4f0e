# SPDX-License-Identifier: Apache-2.0
"""The problems: synthetic cubes, letters, answers of rented models, and tables of others. Rows are drawn by the seed.

CUBE and CUBE-NM are those of the benchmark AFABench (2508.14734), written anew from its description: a class y from 0
to 7 has three bits, lowest first; of ten cube features those at y, y + 1 and y + 2 (modulo ten) are normal around the
bits, and all others around 0.5. In CUBE-NM a sensor of five features says in which of five blocks the cube is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.budgeted.arena import Drawn
from benchmarks.budgeted.problem import HARD, Problem, Sensor, Wish, digest
from benchmarks.budgeted.streams.windows import drift, rig

N_TEST = 5_000
N_SHORT = 1_000  # test rows of a hard budget
INFORMATIVE, OTHER = 0.1, 0.3  # standard deviations of cube features and of all others
N_CONTEXTS, N_BLOCK, N_DUMMIES = 5, 10, 10
SHARES = (0.03, 0.06, 0.1, 0.15, 0.22, 0.3, 0.4, 0.55)  # of the cost of all sensors: budgets of the tables of others


@dataclass(frozen=True)
class Case:
    """A problem for each seed.

    methods : names in the table of methods that run on it
    effort : of hardcase
    """

    title: str
    draw: Callable[[int], Drawn]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    effort: str = "quick"


def data() -> Path:
    """The folder of data sets."""
    if "HARDCASE_DATA" not in os.environ:
        sys.exit("HARDCASE_DATA is not set; it names the folder of the data sets")
    return Path(os.environ["HARDCASE_DATA"])


def means(*budgets: float) -> tuple[Wish, ...]:
    """Wishes of mean costs."""
    return tuple(Wish(b) for b in budgets)


def hards(*budgets: float) -> tuple[Wish, ...]:
    """Wishes that no row may exceed."""
    return tuple(Wish(b, HARD) for b in budgets)


# ---------------------------------------------------------------- synthetic


def cube_block(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ten features of each row, of which three say its class."""
    block = rng.normal(0.5, OTHER, size=(len(y), N_BLOCK))
    for bit in range(3):
        at = (y + bit) % N_BLOCK
        block[np.arange(len(y)), at] = rng.normal((y >> bit) & 1, INFORMATIVE)
    return block


def cube(rows: int, seed: int, wishes: tuple[Wish, ...] = means(3, 5)) -> Drawn:
    """CUBE: ten cube features, ten dummies, unit costs."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 8, rows + N_TEST)
    X = np.hstack([cube_block(y, rng), rng.normal(0.5, OTHER, size=(len(y), N_DUMMIES))])
    sensors = tuple(Sensor(f"x{k}", (k,)) for k in range(X.shape[1]))
    return _first(f"cube {rows}", X, y, rows, sensors, wishes, seed)


def cube_costs(rows: int, seed: int, wishes: tuple[Wish, ...]) -> Drawn:
    """CUBE with unequal costs: two blocks of ten cube features say the same, and those of the second cost twice."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 8, rows + N_TEST)
    X = np.hstack([cube_block(y, rng), cube_block(y, rng)])
    sensors = tuple(Sensor(f"x{k}", (k,), 1.0 + (k >= N_BLOCK)) for k in range(X.shape[1]))
    return _first(f"cube-costs {rows}", X, y, rows, sensors, wishes, seed)


def cube_nm(rows: int, noise: float, seed: int, wishes: tuple[Wish, ...] = means(7, 11)) -> Drawn:
    """CUBE-NM: the sensor ``context``, a one-hot code with noise, and five blocks, of which one tells."""
    rng = np.random.default_rng(seed)
    y, context = rng.integers(0, 8, rows + N_TEST), rng.integers(0, N_CONTEXTS, rows + N_TEST)
    code = np.eye(N_CONTEXTS)[context] + rng.normal(0, noise, size=(len(y), N_CONTEXTS))
    blocks = rng.normal(0.5, OTHER, size=(len(y), N_CONTEXTS, N_BLOCK))
    blocks[np.arange(len(y)), context] = cube_block(y, rng)
    X = np.hstack([code, blocks.reshape(len(y), -1)])
    single = [Sensor(f"x{k}", (N_CONTEXTS + k,)) for k in range(N_CONTEXTS * N_BLOCK)]
    sensors = (Sensor("context", tuple(range(N_CONTEXTS))), *single)
    return _first(f"cube-nm {rows} {noise}", X, y, rows, sensors, wishes, seed)


def _first(
    name: str, X: np.ndarray, y: np.ndarray, n: int, sensors: tuple[Sensor, ...], wishes: tuple[Wish, ...], seed: int
) -> Drawn:
    """The first n rows are for training, the others for the test."""
    problem = Problem(name, X[:n], y[:n], sensors, wishes, seed)
    return Drawn(problem, X[n:], y[n:], digest(X, y))


# ---------------------------------------------------------------- answers of rented models


def api_case(name: str, budgets: tuple[float, ...], which: tuple[int, ...] = ()) -> Callable[[int], Drawn]:
    """Answers and confidences of the APIs of ``apis/api_NAME.npz`` as sensors, at prices for 10,000 calls; halves.

    ``which`` are the numbers of the APIs that there are; empty: all.
    """

    def draw(seed: int) -> Drawn:
        with np.load(data() / "apis" / f"api_{name}.npz") as z:
            labels, confidence, truth, meta = z["labels"], z["confidence"], z["truth"], str(z["meta"])
        lines = [line.split(",") for line in meta.splitlines()[1:] if line.strip()]
        if len(lines) != labels.shape[1]:
            raise ValueError(f"{name}: {len(lines)} prices for {labels.shape[1]} APIs")
        if which:
            labels, confidence, lines = labels[:, which], confidence[:, which], [lines[j] for j in which]
        k = labels.shape[1]
        X = np.empty((len(truth), 2 * k))
        X[:, 0::2], X[:, 1::2] = labels, confidence
        sensors = tuple(Sensor(line[1], (2 * j, 2 * j + 1), float(line[2])) for j, line in enumerate(lines))
        order = np.random.RandomState(seed).permutation(len(truth))
        return _split(name, X, truth, order, len(truth) // 2, sensors, means(*budgets), seed, range(0, 2 * k, 2))

    return draw


def _split(
    name: str,
    X: np.ndarray,
    y: np.ndarray,
    order: np.ndarray,
    n: int,
    sensors: tuple[Sensor, ...],
    wishes: tuple[Wish, ...],
    seed: int,
    texts: range | tuple[int, ...] = (),
) -> Drawn:
    """The first n numbers of ``order`` are the rows for training, the others those of the test."""
    train, test = order[:n], order[n:]
    problem = Problem(name, X[train], y[train].astype(np.int64), sensors, wishes, seed, frozenset(texts))
    return Drawn(problem, X[test], y[test].astype(np.int64), digest(train, test))


# ---------------------------------------------------------------- tables


def table(name: str, n: int = 0, wishes: tuple[Wish, ...] | None = None, share: float = 0.8) -> Callable[[int], Drawn]:
    """A table of HARDCASE_DATA, or the digits of scikit-learn, of n random rows or all; a share is for training."""

    def draw(seed: int) -> Drawn:
        X, y = _digits() if name == "digits" else _stored(name)
        order = np.random.default_rng(seed).permutation(len(y))[: n or len(y)]
        sensors = tuple(Sensor(f"x{k}", (k,)) for k in range(X.shape[1]))
        asked = wishes or means(*(max(1.0, round(share * len(sensors), 1)) for share in SHARES))
        return _split(name, X, y, order, round(share * len(order)), sensors, tuple(dict.fromkeys(asked)), seed)

    return draw


def _stored(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Letters are N to Z against A to M, as in the papers; MNIST has the means of 49 patches of 4 by 4 pixels."""
    with np.load(data() / f"{name}.npz") as z:
        if name == "mnist":
            return z["X"].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49).round(), z["y"].astype(np.int64)
        return z["X"].astype(np.float64), z["y_binary" if name == "letter" else "y"].astype(np.int64)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.data, found.target


FIVE = tuple(range(5))
ROUTED = ("hardcase", "router by hand", "cascade by hand", "static")
RENTED = ("hardcase", "FrugalML", "agreeing APIs", "best API")
ROUTES = ("hardcase", "FrugalML", "cascade by hand", "agreement", "best API")
PLAIN = ("hardcase", "cascade by hand", "all sensors")
TWO = (3, 2)  # of RAFDB's APIs: a free network, and the one that is right most often
FRUGAL_SEEDS = (100, 10, 1, 50, 5)  # FrugalML's own
FIVE_TABLES = {
    "covertype": ("covertype_sample", 12_000),
    "satimage": ("satimage", 0),
    "phones": ("wisdm_transformed", 0),
    "rooms": ("room_occupancy", 0),
    "digits": ("digits", 0),
}
ACQUIRING = ("hardcase", "AACO", "GDFS order", "LightGBM CEGB", "static")
BUDGETS = {
    "hard-cube": hards(3, 5, 10),
    "hard-cube-costs": hards(3, 5, 10),
    "hard-cube-nm": hards(5, 7, 10),
    "hard-cube-nm-noisy": hards(5, 7, 10),
    "hard-mnist": hards(3, 5, 10),
    "hard-letters": hards(3, 5, 7),
}
TITLES = {
    "hard-cube": "CUBE",
    "hard-cube-costs": "CUBE, costs 1 and 2",
    "hard-cube-nm": "CUBE-NM, context noise .1",
    "hard-cube-nm-noisy": "CUBE-NM, context noise .3",
    "hard-mnist": "MNIST, 49 patches",
    "hard-letters": "Letters, N-Z against A-M",
}


def drawn_hard(name: str) -> Callable[[int], Drawn]:
    """The problem of a case of hard budgets, with the first ``N_SHORT`` test rows."""
    wishes = BUDGETS[name]
    draws: dict[str, Callable[[int], Drawn]] = {
        "hard-cube": lambda seed: cube(800, seed, wishes),
        "hard-cube-costs": lambda seed: cube_costs(800, seed, wishes),
        "hard-cube-nm": lambda seed: cube_nm(800, 0.1, seed, wishes),
        "hard-cube-nm-noisy": lambda seed: cube_nm(800, 0.3, seed, wishes),
        "hard-mnist": table("mnist", 2_000, wishes, 0.5),
        "hard-letters": table("letter", 2_000, wishes, 0.5),
    }

    def draw(seed: int) -> Drawn:
        whole = draws[name](seed)
        return replace(whole, X_test=whole.X_test[:N_SHORT], y_test=whole.y_test[:N_SHORT])

    return draw


def cycles(sensor: str, target: str, *budgets: float) -> Callable[[int], Drawn]:
    """One sensor of the rig, ten segments of six seconds."""

    def load() -> dict[str, np.ndarray]:
        with np.load(data() / "hydraulic_1hz.npz") as z:
            return {key: z[key] for key in z.files}

    return lambda seed: rig(sensor, target, load, seed, means(*budgets))


STOPPING = ("hardcase", "CALIMERA", "ECONOMY-gamma", "confidence cut", "fixed prefix")
STREAMS = {
    "stream-flow": Case(
        "Rig, accumulator pressure by the flow", cycles("FS1", "accumulator_bar", 2, 3, 4, 6), STOPPING, FIVE
    ),
    "stream-pressure": Case(
        "Rig, leakage of the pump by a pressure", cycles("PS2", "pump_leakage", 2, 3, 4, 6), STOPPING, FIVE
    ),
    "stream-drift": Case("Drift", lambda seed: drift(seed, means(2, 4, 7, 11)), (*STOPPING, "posterior by hand"), FIVE),
}
HARD_CASES = {
    name: Case(TITLES[name], drawn_hard(name), (*ACQUIRING, *["router by hand"] * ("nm" in name)), FIVE)
    for name in BUDGETS
}
CASES: dict[str, Case] = {
    **HARD_CASES,
    "rafdb": Case("RAFDB: faces", api_case("rafdb", (3, 5, 10, 15)), (*RENTED, "all sensors"), FRUGAL_SEEDS),
    "ferplus": Case("FERPLUS: faces", api_case("ferplus", (1, 3, 5, 10, 15)), RENTED, FRUGAL_SEEDS),
    "yelp": Case("YELP: texts", api_case("yelp", (0.5, 0.75, 1.5, 2.5, 3.5)), RENTED, FRUGAL_SEEDS),
    "digit": Case("DIGIT: speech", api_case("digit", (5, 12, 25, 41, 60)), RENTED, FRUGAL_SEEDS),
    "two-rafdb": Case(
        "RAFDB, two models: a free one and the best one", api_case("rafdb", (2.5, 5, 7.5), TWO), ROUTES, FRUGAL_SEEDS
    ),
    "cube-nm": Case("CUBE-NM, 800 rows", lambda seed: cube_nm(800, 0.1, seed), ROUTED, FIVE, "normal"),
    "cube-nm-8000": Case("CUBE-NM, 8,000 rows", lambda seed: cube_nm(8_000, 0.1, seed), ROUTED, (0,), "normal"),
    "cube-nm-noisy": Case("CUBE-NM, 800 rows, context noise .3", lambda seed: cube_nm(800, 0.3, seed), ROUTED, FIVE),
    "cube": Case("CUBE, 800 rows", lambda seed: cube(800, seed), (*PLAIN, "agreement"), (0,)),
    "letters": Case(
        "Letters, N-Z against A-M", table("letter", 0, (*means(4), Wish(5, HARD))), PLAIN[:2], (0, 1, 2), "normal"
    ),
    **STREAMS,
    **{
        k: Case(k.capitalize(), table(*v), (*PLAIN, "EBM", "EBM, staged"), FIVE if k == "digits" else (0, 1))
        for k, v in FIVE_TABLES.items()
    },  # of the digits, few test rows
}
