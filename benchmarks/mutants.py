# SPDX-License-Identifier: Apache-2.0
"""Random mutants of the learners or the core: one small change at a time, and whether the tests of its room notice.

A change is made in a copy of the sources in a temporary folder, which is gone when this ends. The tests of a module are
those that import it, those of its room, and its examples. They pass unchanged before the first mutant, which also says
how long they take: a mutant may take three times as long, and a minute.

Compiled code is cached by the file that it was made from, and not by what that calls, so a mutant of a module with
compiled functions has an empty cache. ``docs/decisions/mutants.md`` says why no library does this.

A list that is not finished in its minutes goes on where it was: a verdict that is kept is not asked for again, as long
as the sources, and so the list that its seed draws, are the same; ``--again`` asks for those that were not killed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from xml.etree import ElementTree

from benchmarks.pages import ROOT, markdown

VERDICTS = ("killed", "lived", "timed out", "not run")
LEFT_OUT = (".git", ".venv", "build", ".hypothesis", "*_cache", "*.egg-info")
DISTRIBUTIONS = ("train", "edge_runtime", "export", "cloud_stub", ".")
SLOWER, GRACE_S, COMPILING_S = 3, 60, 300

FLIPPED: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
}  # fmt: skip
SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
OTHER = {name: other for pair in (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"))
         for name, other in (pair, pair[::-1])}  # fmt: skip
NOT_ENTERED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)
NOT_BODY = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Target:
    """What is changed: rooms of a package.

    known : where tests are that may import a module
    general : tests in ``tests`` for each module of ``whole``, and for one that has no others
    """

    package: Path
    rooms: tuple[str, ...]
    tests: Path
    known: tuple[Path, ...]
    general: tuple[str, ...]
    whole: tuple[str, ...]


TESTS = Path("tests")
LEARNERS = Target(
    Path("train/hardcase_train"), ("methods", "policy", "stages", "trees", "linear", "structured"), TESTS / "train",
    (TESTS,), ("methods/test_methods.py",), ("methods",),
)  # fmt: skip
CORE_ROOMS = ("program", "verifier", "session", "exchange", "bundle")
CORE = Target(
    Path("edge_runtime/hardcase_edge"), CORE_ROOMS, TESTS / "edge",
    tuple(TESTS / "edge" / room for room in (*CORE_ROOMS, "kernel", "joint", "batch", "drift", "servo", "stream")),
    ("session/test_from_spec.py", "kernel/test_bounds.py"), CORE_ROOMS,
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change of a module: ``text`` in place of bytes ``start`` to ``end``."""

    module: Path
    line: int
    column: int
    start: int
    end: int
    before: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}:{self.column}: {' '.join(self.before.split())} -> {self.text}"

    def applied(self, source: bytes) -> bytes:
        """The module with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def changes(node: Any) -> Iterator[tuple[Any, str]]:
    """What may stand in place of the node or of one below it."""

    def with_(**fields: Any) -> str:
        other = copy(node)
        vars(other).update(fields)
        return f"({ast.unparse(other)})" if isinstance(node, ast.expr) else ast.unparse(other)

    match node:
        case ast.Compare(ops=[op]) if type(op) in FLIPPED:
            yield from ((node, with_(ops=[other()])) for other in FLIPPED[type(op)])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPPED:
            yield node, with_(op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() | int() | float() as value):
            yield node, repr(not value if isinstance(value, bool) else value + 1)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in OTHER:
            yield node.func, ast.unparse(node.func).removesuffix(name) + OTHER[name]
        case ast.Return(value=ast.expr()):
            yield node, "return None"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.If(test=test) | ast.IfExp(test=test):
            yield from ((test, "True"), (test, "False"))
        case ast.While(test=test):
            yield test, "False"
        case ast.comprehension(ifs=[test, *_]):
            yield test, "True"


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function's body, but for errors, texts that are put together, and annotations."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, NOT_ENTERED) and field not in NOT_BODY:
                yield child
                yield from inside(child)


def mutants_of(module: Path) -> list[Mutant]:
    """All mutants of a module's functions that are Python."""
    source, found = (ROOT / module).read_bytes(), dict[Mutant, None]()
    ends = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for at, text in (change for function in functions for node in inside(function) for change in changes(node)):
        start, end = ends[at.lineno - 1] + at.col_offset, ends[at.end_lineno - 1] + at.end_col_offset
        mutant = Mutant(module, at.lineno, at.col_offset + 1, start, end, source[start:end].decode(), text)
        with suppress(SyntaxError):
            compile(mutant.applied(source), str(module), "exec")
            found[mutant] = None
    return list(found)


def drawn(count: int, seed: int, only: str, target: Target = LEARNERS) -> list[Mutant]:
    """Some of all mutants, each as likely as any other."""
    folders = [ROOT / target.package / room for room in target.rooms]
    modules = sorted(p.relative_to(ROOT) for folder in folders for p in folder.rglob("[!_]*.py"))
    every = [mutant for module in modules if re.search(only, str(module)) for mutant in mutants_of(module)]
    count = min(count, len(every))
    print(f"{len(every)} mutants, {count} of them, seed {seed}", flush=True)
    return random.Random(seed).sample(every, count)


def imports(test: Path) -> set[str]:
    """The dotted names that a test file imports, and what it imports from them."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / test).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def tests_of(module: Path, imported: dict[Path, set[str]], target: Target) -> tuple[list[Path], list[Path]]:
    """The test files that import a module, and those of its room with the module's examples; general ones of methods.

    What has neither is tested by the general ones, too.
    """
    room = target.tests / module.relative_to(target.package).parent
    name = ".".join(module.relative_to(target.package.parent).with_suffix("").parts)
    known = [test for test in imported if name in imported[test]]
    own = [test for test in imported if room in test.parents or test == room.with_name(f"test_{room.name}.py")]
    is_general = not own + known or set(target.whole) & set(module.parts)
    general = [target.tests / name for name in target.general if is_general]
    own += [module] if b">>>" in (ROOT / module).read_bytes() else []
    return known, [test for test in dict.fromkeys(own + general) if test not in known]


class Place:
    """A copy of the sources, in which one run of tests is made at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.sources = folder, folder / "sources"
        self._run: subprocess.Popen[bytes] | None = None
        shutil.copytree(ROOT, self.sources, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)

    def run(self, tests: Sequence[Path], limit_s: float | None, *options: str, is_cold: bool = False) -> int | None:
        """How pytest ends, None if it was stopped after so long."""
        path = os.pathsep.join(str(self.sources / d) for d in DISTRIBUTIONS)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *map(str, tests)]
        with tempfile.TemporaryDirectory(dir=self._folder) as own:
            env = {**os.environ, "PYTHONPATH": path, "TMPDIR": own} | ({"NUMBA_CACHE_DIR": own} if is_cold else {})
            run = self._run = subprocess.Popen(
                command, cwd=self.sources, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                self.said = run.communicate(timeout=limit_s)[0].decode(errors="replace")
                return run.returncode
            except subprocess.TimeoutExpired:
                return None
            finally:
                self.stop()

    def stop(self) -> None:
        """End what runs, and all that it has started."""
        if self._run is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._run.pid, signal.SIGKILL)
            self._run.wait()

    def seconds(self, tests: Sequence[Path]) -> Counter[Path]:
        """How long each of these files takes without a change."""
        report, spent = self.sources / "report.xml", Counter[Path]()
        if self.run(tests, None, f"--junitxml={report}"):
            raise SystemExit(f"tests fail without a mutant:\n{self.said[-2000:]}")
        for case in ElementTree.parse(report).iter("testcase"):
            spent[Path(case.get("classname", "").replace(".", "/") + ".py")] += float(case.get("time", 0))
        return spent

    def verdict(self, mutant: Mutant, tests: Sequence[Path], seconds: float) -> str:
        """Killed, lived or timed out."""
        file = self.sources / mutant.module
        source, stat = file.read_bytes(), file.stat()
        is_cold = b"njit" in source
        file.write_bytes(mutant.applied(source))
        try:
            status = self.run(tests, SLOWER * seconds + GRACE_S + COMPILING_S * is_cold, is_cold=is_cold)
        finally:
            file.write_bytes(source)
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # what was compiled from it is valid again
        return "timed out" if status is None else "lived" if status == 0 else "killed"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of its own."""
    parser.add_argument("--only", default="", help="modules whose path this regular expression finds")
    parser.add_argument("--minutes", type=float, default=30, help="mutants that have not begun by then are not run")
    parser.add_argument("--core", action="store_true", help="of the device's core in place of the learners")
    parser.add_argument("--again", action="store_true", help="ask those again that were not killed")
    for name, default in (("count", 100), ("seed", 0), ("jobs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)


def run(args: Any) -> dict[str, dict[str, str]]:
    """Draw, run, and say what lived; by list, the verdict of each of its mutants."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    target, kept = CORE if args.core else LEARNERS, args.known()
    began, mutants = time.monotonic(), drawn(args.count, args.seed, args.only, target)
    name = f"{'core' if args.core else 'learners'}{f' {args.only}' if args.only else ''}, seed {args.seed}"
    before = kept.get(name, {})
    found = kept[name] = {str(mutant): before.get(str(mutant), VERDICTS[-1]) for mutant in mutants}
    asked = VERDICTS[1:] if args.again else VERDICTS[-1:]
    mutants = [mutant for mutant in mutants if found[str(mutant)] in asked]

    def note(mutant: Mutant, verdict: str) -> None:
        found[str(mutant)] = verdict
        args.save(kept)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(args.jobs) as pool:
        places = [Place(Path(folder) / str(k)) for k in range(args.jobs)]
        try:
            judged(mutants, places, pool, began + 60 * args.minutes, target, note)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for place in places:
                place.stop()
    return kept


def page(results: dict[str, dict[str, str]]) -> str:
    """A row for each list."""
    counts = {name: Counter(found.values()) for name, found in results.items()}
    rows = [(name, str(c.total()), *(str(c[v]) for v in VERDICTS)) for name, c in counts.items()]
    return (
        "\n" + markdown(("list", "mutants", *VERDICTS), rows) + "\n\n`--all` names every mutant that was not killed.\n"
    )


def whole(results: dict[str, dict[str, str]]) -> str:
    """The page, and every mutant that was not killed."""
    text = page(results)
    for name, found in results.items():
        lines = [f"- {v}: `{short(mutant)}`" for mutant, v in found.items() if v in VERDICTS[1:3]]
        text += f"\nNot killed, of {name}:\n\n" + "\n".join(lines or ["- none"]) + "\n"
    return text


def short(mutant: str) -> str:
    """Without the folders of a distribution."""
    return re.sub(r"^(train|edge_runtime)/hardcase_\w+/", "", mutant)


def judged(
    mutants: list[Mutant], places: list[Place], pool: ThreadPoolExecutor, until: float, target: Target,
    note: Callable[[Mutant, str], None],
) -> None:  # fmt: skip
    """Note the verdict of each mutant whose turn comes by then; those that lived or timed out are printed."""
    found = sorted(test for folder in target.known for test in (ROOT / folder).rglob("test_*.py"))
    imported = {test.relative_to(ROOT): imports(test) for test in found}
    tests = {mutant.module: tests_of(mutant.module, imported, target) for mutant in mutants}
    files = list(dict.fromkeys(test for pair in tests.values() for some in pair for test in some))
    shares = [files[k :: len(places)] for k in range(len(places))]
    spent, free = Counter[Path](), SimpleQueue[Place]()
    for place, some in zip(places, pool.map(Place.seconds, places, shares), strict=True):
        spent.update(some)
        free.put(place)

    def verdict(mutant: Mutant) -> str:
        place, order = free.get(), [t for some in tests[mutant.module] for t in sorted(some, key=spent.__getitem__)]
        try:
            if time.monotonic() > until:
                return VERDICTS[-1]
            return place.verdict(mutant, order, sum(spent[test] for test in order))
        finally:
            free.put(place)

    for mutant, found in zip(mutants, pool.map(verdict, mutants), strict=True):
        note(mutant, found)
        if found in VERDICTS[1:3]:
            print(f"{found}: {mutant}", flush=True)
