# SPDX-License-Identifier: Apache-2.0
"""hardcase as its users have it: a table and a TOML, ``hardcase train``, an export for each wish, a device's session.

Training rows become a file with a column that says which rows train, which are judged, and which the front reports on;
the benchmark's own test rows are not in it. Mean budgets are exports of one build; each hard budget is trained for.
A device's session reads from the benchmark's session; f0 answers what it forwards, at the price of every sensor.

hardcase has no word for sensors that come in order. Of a window, its sensors are therefore prefixes, at the price of
all their segments. A policy that reads two of them counts the first one twice, so that it believes to spend more than
it does; what each export really spends is measured on the judged rows, and the dearest within the wish is taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.budgeted.problem import HARD, Meter, Problem, Sensor, Session, Wish
from hardcase import Policy
from hardcase_cloud.answer.onnx_model import Hpc
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.readings import normalise
from hardcase_edge.sensors.values import code_of, codes_of
from hardcase_edge.session.drive import drive
from hardcase_edge.stream.coin import Toss, coin_of
from hardcase_train.data.split import stratified

PATTERN = (0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)  # train, valid, test: 90/5/5
Taken = dict[int, list[Any] | None]  # readings by sensor
PARTS = np.array(["train", "valid", "test"])
BELIEVED = (2.0, 1.75, 1.5, 1.3, 1.15, 1.0)  # times the wish, what is believed to be spent


class TrainingError(Exception):
    """A command failed."""


def table_of(problem: Problem) -> pa.Table:
    """Columns c0, c1, ..., whole numbers as such and codes of texts as texts; and ``y``."""
    columns: dict[str, Any] = {}
    for k, values in enumerate(problem.X.T):
        if k in problem.texts:
            columns[f"c{k}"] = [_text(v) for v in values.tolist()]
        elif np.isfinite(values).all() and (values == np.rint(values)).all():
            columns[f"c{k}"] = values.astype(np.int64)
        else:
            columns[f"c{k}"] = pa.array(values, from_pandas=True)
    columns["y"] = problem.y
    return pa.table(columns)


def _text(code: float) -> str | None:
    return None if code != code else f"is {int(code)}"


def _parts(problem: Problem) -> np.ndarray:
    return np.asarray(PARTS[stratified(problem.y, np.random.default_rng(problem.seed), PATTERN)])


def prefixes(problem: Problem) -> Problem:
    """The rows, with the prefixes of a window as sensors, each with columns of its own."""
    own, sensors, cost = list[int](), list[Sensor](), 0.0
    for k, segment in enumerate(problem.sensors):
        columns, cost = problem.columns(range(k + 1)), cost + segment.cost
        sensors.append(Sensor(segment.name, tuple(range(len(own), len(own) + len(columns))), cost))
        own += columns
    return replace(problem, X=problem.X[:, own], sensors=tuple(sensors))


def task(folder: Path, problem: Problem, effort: str, *, method: str = "auto", is_split: bool = True) -> Path:
    """Write training rows as a table, and the hardcase.toml whose path is returned.

    A request costs nothing but the sensors that f0 reads.

    Parameters
    ----------
    is_split : whether a column of the table says which rows train, are judged and reported on; else hardcase splits
    """
    table = table_of(problem)
    if is_split:
        table = table.append_column("part", pa.array(_parts(problem)))
    parquet.write_table(table, folder / "rows.parquet")
    split = "part" if is_split else "random"
    lines = ["[data]", 'file = "rows.parquet"', 'target = "y"', f'split = "{split}"', f"seed = {problem.seed}", ""]
    lines += ["[cost.uplink]", "per_request = 0.0", "", "[policy]", f'methods = ["{method}"]', f'effort = "{effort}"']
    for s, sensor in enumerate(problem.sensors):
        features = ", ".join(f'"c{c}"' for c in sensor.columns)
        lines += ["", "[[sensor]]", f'name = "s{s}"', f"features = [{features}]", f"cost = {sensor.cost!r}"]
    path = folder / "hardcase.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Ours:
    """hardcase, at one effort.

    Attributes
    ----------
    notes : for each wish the method of the policy, and whether nothing was within it
    """

    def __init__(self, effort: str) -> None:
        self.effort = effort
        self.notes: dict[str, str] = {}

    def fit(self, problem: Problem) -> None:
        """A build for all mean budgets and one for each hard one; a bundle for each wish."""
        self.folder = Path(tempfile.mkdtemp(prefix="budgeted-"))
        self.told = prefixes(problem) if problem.is_ordered else problem
        self.toml = task(self.folder, self.told, self.effort)
        self.bundles: dict[Wish, Path] = {}
        self.hpc: dict[Wish, Path] = {}
        builds: dict[float | None, Path] = {}
        for k, wish in enumerate(problem.wishes):
            hard = wish.budget if wish.kind == HARD else None
            if hard not in builds:
                builds[hard] = self._train(self.folder / f"build-{k}", hard)
            self.hpc[wish] = builds[hard] / "hpc.onnx"
            self.bundles[wish] = self._export(builds[hard], wish, wish, self.folder / f"{k}.hcb")
            if problem.is_ordered:
                self._spend(builds[hard], problem, wish, self.folder / f"{k}.hcb")

    def _spend(self, build: Path, problem: Problem, wish: Wish, path: Path) -> None:
        """Export for as much more as the judged rows, with what they really cost, keep within the wish."""
        X = problem.X[_parts(problem) != PARTS[0]]
        for times in BELIEVED:
            self._export(build, wish, replace(wish, budget=times * wish.budget), path)
            meter = Meter(problem, wish, X)
            self.decide(Session(problem, wish, len(X), meter.sell))
            if meter.spent.mean() <= wish.budget:
                return

    def _train(self, build: Path, hard: float | None) -> Path:
        words = ["train", str(self.toml), "--out", str(build), "--jobs", "1", "--quiet"]
        words += [] if hard is None else ["--hard-budget", str(hard)]
        command(words)
        return build

    def _export(self, build: Path, wish: Wish, asked: Wish, path: Path) -> Path:
        terms = {"hard_budget": asked.budget} if asked.kind == HARD else {"budget": asked.budget}
        policy = Policy(build, max_loss=1.0)
        try:
            made = policy.export(path, force=True, **terms)
            self.notes[str(wish)] = made.point.method
        except InputError:  # nothing is within the wish
            made = policy.export(path, force=True)
            self.notes[str(wish)] = f"{made.point.method}, the cheapest: nothing is within the budget"
        return path

    def decide(self, session: Session) -> np.ndarray:
        """A device's session for each row."""
        wish, problem = session.wish, session.problem
        loaded = load_bundle(self.bundles[wish])
        manifest, program = loaded.manifest, loaded.bundle.program
        coin, toss = coin_of(program, manifest.features, manifest.sensors), Toss(problem.seed)
        codes = dict(enumerate(codes_of(manifest, range(len(manifest.features)))))  # empty without texts
        hpc, answer, spent = Hpc(self.hpc[wish]), np.zeros(session.n, dtype=np.int64), 0.0
        budget = round(wish.budget * 1e6) if wish.kind == HARD else None

        for row in range(session.n):
            known: dict[int, list[float]] = {}

            def read(asked: tuple[int, ...], row: int = row, known: dict[int, list[float]] = known) -> Taken:
                out: Taken = {}
                for s in asked:
                    if coin is not None and s == coin.sensor:
                        out[s] = [toss()]
                        continue
                    number, own = int(manifest.sensors[s][1:]), program.sensors[s].features
                    columns = self.told.sensors[number].columns
                    parts = range(number + 1) if problem.is_ordered else (number,)
                    known |= {part: session.read(part, [row])[0].tolist() for part in parts if part not in known}
                    values = dict(zip(columns, (v for part in parts for v in known[part]), strict=True))
                    given = [values[int(manifest.features[f][1:])] for f in own]
                    texts = [codes.get(f) for f in own]
                    coded = [code_of(t, _text(v)) if t else v for t, v in zip(texts, given, strict=True)]
                    out[s] = list(normalise(coded, [program.features[f].dtype for f in own]))
                return out

            end = drive(
                loaded.machine.session(cloud=True, budget=budget), read, lambda need: hpc.answer([need.readings])[0]
            )
            answer[row] = int(manifest.classes[int(end.result)])
            spent += to_unit(end.cost)
        beyond = session.spent.sum() - spent
        if (beyond if problem.is_ordered else abs(beyond)) > 1e-6 * session.n:
            raise TrainingError(f"the device says that it spent {spent:g}, the session {session.spent.sum():g}")
        return answer

    def close(self) -> None:
        """Remove builds and bundles."""
        shutil.rmtree(self.folder, ignore_errors=True)


def command(words: list[str]) -> float:
    """Run ``hardcase`` and give its CPU seconds, those of its children included."""
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "hardcase.cli", *words], stdout=subprocess.DEVNULL, stderr=err,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        status, usage = os.wait4(process.pid, 0)[1:]
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        told = err.read().strip().splitlines()
    if process.returncode:
        raise TrainingError(f"hardcase {words[0]} ended with {process.returncode}: {told[-1:]}")
    return usage.ru_utime + usage.ru_stime
