# SPDX-License-Identifier: Apache-2.0
"""hardcase as its users have it: a table and a TOML, ``hardcase train``, an export for each wish, a device's session.

Training rows become a file with a column that says which rows train, which are judged, and which the front reports on;
the benchmark's own test rows are not in it. Mean budgets are exports of one build; each hard budget is trained for.
A device's session reads from the benchmark's session; f0 answers what it forwards, at the price of every sensor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.budgeted.problem import HARD, Problem, Session, Wish
from hardcase import Policy
from hardcase_cloud.answering.onnx_model import Hpc
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.program.cost import to_unit
from hardcase_edge.program.readings import normalise
from hardcase_edge.sensors.values import code_of, codes_of
from hardcase_edge.session.drive import drive
from hardcase_edge.stream.coin import Toss, coin_of
from hardcase_train.data.split import stratified

__all__ = ["Ours", "TrainingError", "command", "table_of", "task"]

PATTERN = (0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)  # train, valid, test: 90/5/5
PARTS = np.array(["train", "valid", "test"])


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


def task(folder: Path, problem: Problem, effort: str, *, method: str = "auto", is_split: bool = True) -> Path:
    """Write training rows as a table, and the hardcase.toml whose path is returned.

    A request costs nothing but the sensors that f0 reads.

    Parameters
    ----------
    is_split : whether a column of the table says which rows train, are judged and reported on; else hardcase splits
    """
    table = table_of(problem)
    if is_split:
        parts = PARTS[stratified(problem.y, np.random.default_rng(problem.seed), PATTERN)]
        table = table.append_column("part", pa.array(parts))
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
        self.toml = task(self.folder, problem, self.effort)
        self.bundles: dict[Wish, Path] = {}
        builds: dict[float | None, Path] = {}
        for k, wish in enumerate(problem.wishes):
            hard = wish.budget if wish.kind == HARD else None
            if hard not in builds:
                builds[hard] = self._train(self.folder / f"build-{k}", hard)
            self.bundles[wish] = self._export(builds[hard], wish, self.folder / f"{k}.hcb")
        self.hpc = {wish: builds[wish.budget if wish.kind == HARD else None] / "hpc.onnx" for wish in problem.wishes}

    def _train(self, build: Path, hard: float | None) -> Path:
        words = ["train", str(self.toml), "--out", str(build), "--jobs", "1", "--quiet"]
        words += [] if hard is None else ["--hard-budget", str(hard)]
        command(words)
        return build

    def _export(self, build: Path, wish: Wish, path: Path) -> Path:
        terms = {"hard_budget": wish.budget} if wish.kind == HARD else {"budget": wish.budget}
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

            def read(asked: tuple[int, ...], row: int = row) -> dict[int, list[Any] | None]:
                out: dict[int, list[Any] | None] = {}
                for s in asked:
                    if coin is not None and s == coin.sensor:
                        out[s] = [toss()]
                        continue
                    number, own = int(manifest.sensors[s][1:]), program.sensors[s].features
                    columns = problem.sensors[number].columns
                    values = dict(zip(columns, session.read(number, [row])[0].tolist(), strict=True))
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
        if abs(spent - session.spent.sum()) > 1e-6 * session.n:
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
