# SPDX-License-Identifier: Apache-2.0
"""The harness: a method runs in a process of its own, and test rows, truth and the count of purchases stay in this one.

The other process has the training rows. It asks for readings through a pipe, and ends with its answers; what it says
about its own spending is not asked for. A method that reads the public data again can still know the truth.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import resource
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np

from benchmarks.budgeted.problem import Meter, Method, OverspentError, Problem, Session, Wish, digest

FITTED, READ, ANSWER, FAILED = "fitted", "read", "answer", "failed"
SOLD, REFUSED = "sold", "refused"


METHODS = {  # the module and class of each; modules are imported where their methods run
    "hardcase": "ours.Ours",
    "AACO": "acquiring.Aaco",
    "GDFS order": "acquiring.Greedy",
    "LightGBM CEGB": "acquiring.Cegb",
    "agreement": "peers.Agreement",
    "router by hand": "peers.RouterByHand",
    "cascade by hand": "peers.CascadeByHand",
    "static": "peers.StaticSet",
    "all sensors": "peers.AllSensors",
    "EBM": "peers.Ebm",
    "EBM, staged": "peers.StagedEbm",
    "CALIMERA": "streams.stopping.Calimera",
    "ECONOMY-gamma": "streams.stopping.Economy",
    "confidence cut": "streams.stopping.ConfidenceCut",
    "fixed prefix": "streams.stopping.FixedPrefix",
    "posterior by hand": "streams.stopping.PosteriorByHand",
    "FrugalML": "frugal.Frugal",
    "agreeing APIs": "frugal.AgreeingApis",
    "best API": "frugal.BestApi",
}


class FileError(Exception):
    """A file holds no method."""


class MethodError(Exception):
    """A method failed, or its answer is none."""


@dataclass(frozen=True)
class Drawn:
    """A problem with the test rows that meters sell, and a digest that names all rows."""

    problem: Problem
    X_test: np.ndarray
    y_test: np.ndarray
    rows: str


def run(drawn: Drawn, method: str, effort: str = "quick") -> dict[str, Any]:
    """Accuracy, mean and largest cost of a method for each wish, and the CPU seconds of its training.

    Parameters
    ----------
    method : a name of ``METHODS``, or the path of a Python file with one class that has fit and decide
    effort : of hardcase

    Raises
    ------
    MethodError
        It raised an error, ended early, or answered with something else than a class for each row.
    """
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, method, effort, drawn.problem))
    process.start()
    there.close()
    try:
        seconds, notes = _next(here, FITTED)
        wishes = {str(wish): _measured(here, drawn, wish) for wish in drawn.problem.wishes}
    except (EOFError, ConnectionError) as e:
        process.join(10)
        raise MethodError(f"{method}: its process ended without an answer{_status(process)}") from e
    except MethodError as e:
        raise MethodError(f"{method}: {e}") from e
    finally:
        here.close()
        process.join(10)
        _end(process)
    for wish, note in notes.items():
        wishes[wish]["note"] = note
    return {"seconds": round(seconds, 2), "rows": drawn.rows, "wishes": wishes}


def _status(process: SpawnProcess) -> str:
    """Of a process that has ended."""
    code = process.exitcode
    return "" if code is None else f", by signal {-code}" if code < 0 else f", with exit status {code}"


def _end(process: SpawnProcess) -> None:
    """The process and all that it started, such as a training."""
    _kill(process)
    process.join()


def _kill(process: BaseProcess) -> None:
    if process.pid is not None:
        with suppress(ProcessLookupError):  # it has ended, or has not begun
            os.killpg(process.pid, SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()


def end_all() -> None:
    """Every method's process that runs, and all that these started; who waits for one is told that it ended."""
    for process in active_children():
        _kill(process)


def _next(pipe: Connection, kind: str) -> Any:
    """What the method's process says next, of this kind."""
    said, value = pipe.recv()
    if said == FAILED:
        raise MethodError(value)
    if said != kind:
        raise MethodError(f"its process said {said} where {kind} is expected")
    return value


def _measured(pipe: Connection, drawn: Drawn, wish: Wish) -> dict[str, Any]:
    """Sell readings until the answer comes; then what the meter and the truth say."""
    began, meter, n_refused = time.monotonic(), Meter(drawn.problem, wish, drawn.X_test), 0
    pipe.send((wish, len(drawn.X_test)))
    while True:
        said, value = pipe.recv()
        if said != READ:
            break
        try:
            pipe.send((SOLD, meter.sell(*value)))
        except (OverspentError, IndexError) as e:
            n_refused += 1
            pipe.send((REFUSED, e))
    if said == FAILED:
        raise MethodError(f"{wish}: {value}")
    answer = checked(value, drawn, wish)
    found = {
        "accuracy": float((answer == drawn.y_test).mean()),
        "cost": float(meter.spent.mean()),
        "cost_se": float(meter.spent.std() / np.sqrt(len(answer))),
        "most": float(meter.spent.max()),
        "n": len(answer),
        "decide_s": round(time.monotonic() - began, 2),
        "answers": digest(answer),
    }
    return found | ({"refused": n_refused} if n_refused else {})


def checked(found: np.ndarray, drawn: Drawn, wish: Wish) -> np.ndarray:
    """Whole numbers of classes, one for each test row.

    Raises
    ------
    MethodError
        They are not.
    """
    n, most = len(drawn.y_test), max(drawn.problem.n_classes, int(drawn.y_test.max()) + 1)
    if found.shape != (n,):
        what = "None" if found.dtype == object and found.ndim == 0 else f"the shape {found.shape}"
        raise MethodError(f"{wish}: decide gave {what}; return the class of each row, of shape ({n},)")
    is_class = np.zeros(n, dtype=bool)
    if found.dtype.kind in "iufb":
        is_class = (found >= 0) & (found < most) & (found == np.rint(found))
    if not is_class.all():
        row = int(is_class.argmin())
        raise MethodError(f"{wish}: decide gave {found[row]} for row {row}; classes are whole numbers, 0 to {most - 1}")
    return found.astype(np.int64)


# ---------------------------------------------------------------- in the method's process


def made(name: str, effort: str) -> Method:
    """A method of the table, or of a Python file with one class that has ``fit`` and ``decide``.

    Raises
    ------
    FileError
        There is no such file, or it has no such class, or several.
    """
    if name in METHODS:
        module, _, which = METHODS[name].rpartition(".")
        cls = getattr(importlib.import_module(f"benchmarks.budgeted.{module}"), which)
        return cls(effort) if name == "hardcase" else cls()
    sys.path.append(str(Path(name).resolve().parent))  # for what stands beside the file
    return class_of(Path(name))()


def class_of(path: Path) -> type[Method]:
    """The one class of the file that has ``fit`` and ``decide``."""
    if not path.is_file():
        raise FileError(f"no such file, and no method; methods are {', '.join(METHODS)}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileError("its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    has: dict[str, list[str]] = {
        name: [f for f in ("fit", "decide") if hasattr(c, f)]
        for name, c in vars(module).items()
        if isinstance(c, type) and c.__module__ == path.stem
    }
    own = [name for name, functions in has.items() if len(functions) == 2]
    if not own:
        halves = [f"; {name} has {functions[0]} alone" for name, functions in has.items() if functions]
        raise FileError("it has no class with fit and decide" + "".join(halves))
    if len(own) > 1:
        raise FileError(f"{' and '.join(own)} have fit and decide; leave one, and import others from a file beside it")
    return vars(module)[own[0]]  # type: ignore[no-any-return]


def _cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def told(e: Exception, name: str) -> str:
    """An error in one line, with the last line of the method's file that led to it."""
    said = " ".join(str(e).split())
    if isinstance(e, FileError):
        return said
    frames, path = traceback.extract_tb(e.__traceback__), Path(name).resolve()
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path]
    at = f" (line {lines[-1]})" if lines else ""
    todo = f"; install it in {sys.prefix}, or put it beside the file" if isinstance(e, ModuleNotFoundError) else ""
    return f"{type(e).__name__}: {said}{at}{todo}"


def _work(pipe: Connection, name: str, effort: str, problem: Problem) -> None:
    """Fit, then decide for each wish."""

    def sell(sensor: int, rows: np.ndarray) -> np.ndarray:
        pipe.send((READ, (sensor, rows)))
        said, value = pipe.recv()
        if said == REFUSED:
            raise value
        return np.asarray(value)

    os.setsid()  # so that what it starts ends with it
    method: Any = None
    try:
        method = made(name, effort)
        began = _cpu()
        method.fit(problem)
        pipe.send((FITTED, (_cpu() - began, getattr(method, "notes", {}))))
        for _ in problem.wishes:
            wish, n = pipe.recv()
            pipe.send((ANSWER, np.asarray(method.decide(Session(problem, wish, n, sell)))))
    except Exception as e:  # whatever a method does wrong is said in one line
        with suppress(ConnectionError):  # the harness may have refused an answer, and ended
            pipe.send((FAILED, told(e, name)))
    finally:
        getattr(method, "close", lambda: None)()
        pipe.close()
