# SPDX-License-Identifier: Apache-2.0
"""The one property of power cuts: whatever a cut leaves of a run, the next start shows what is allowed.

A ``Run`` says what is written, what a folder shows, and what is allowed; ``Cuts`` replays each prefix of its calls in a
model of what a disk keeps.
"""

from __future__ import annotations

import itertools
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.edge.power_cuts import (
    Disk,
    Operation,
    Recorder,
    Tree,
    kind_of,
    materialise,
    read_tree,
    without_leftovers,
)  # fmt: skip

Act = Callable[[Recorder], object]  # makes the calls of a step, and marks what it promises


@dataclass(frozen=True)
class Step:
    """What a run has written until it acknowledged it; ``marks``: promises, each from so many calls on."""

    name: str
    before: Tree
    after: Tree
    log: list[tuple[Operation, bytes]]
    marks: list[tuple[int, Any]]
    old: Any  # views of ``before`` and ``after``
    new: Any


@dataclass(frozen=True)
class State:
    """What a cut behind ``at`` calls has left, and what it shows; ``is_last``: the step has been acknowledged."""

    at: int
    tree: Tree
    seen: Any
    is_last: bool


def every(step: Step) -> Iterator[tuple[int, Tree]]:
    """Every folder that a cut may leave before, between and behind the calls."""
    disk = Disk(step.before)
    for at in range(len(step.log) + 1):
        if at:
            disk.do(*step.log[at - 1])
        yield from ((at, tree) for tree in disk.cuts())


def some(step: Step, places: Iterable[int], rng: random.Random, sector: int = 1) -> Iterator[tuple[int, Tree]]:
    """A folder behind so many calls each, which rise: what was not flushed is there or not by a coin."""
    disk, done = Disk(step.before), 0
    for at in places:
        for call in step.log[done:at]:
            disk.do(*call)
        done = at
        yield at, disk.random_cut(rng, sector)


class Run(ABC):
    """One run, and what is allowed of the states of it."""

    is_deep = False

    @abstractmethod
    def steps(self, root: Path) -> Iterable[tuple[str, Act]]:
        """Puts into an empty folder what is there before, and yields the name of each step and what it does."""

    @abstractmethod
    def look(self, root: Path) -> Any:
        """What a folder shows after a cut; may change it."""

    @abstractmethod
    def wrong(self, step: Step, started: Any = None) -> Callable[[State], str]:
        """Says what is wrong of a state of this step; "": it is allowed.

        started : what ``again`` has led to, which is allowed in what is left of it
        """

    def states(self, step: Step) -> Iterator[tuple[int, Tree]]:
        """The model of what a disk keeps: folders that a cut behind so many calls may leave."""
        return every(step)

    def kind(self, call: Operation) -> str:
        """The name under which a call may be left out."""
        return kind_of(call)

    def again(self, root: Path) -> Act:
        """The start behind a state, which is cut, too, if the run ``is_deep``."""
        raise NotImplementedError


class Cuts:
    """Replays runs until a state is wrong.

    Parameters
    ----------
    tmp : a folder for the states; in memory it is fastest
    is_left_out : kinds of calls that are made and not recorded, as if the code did not have them; a file whose rename
        is left out is written in place
    routine : draws runs

    Attributes
    ----------
    n_states : how many states were looked at
    wrong : names of what was under way where one was wrong, and what was
    kinds : every kind of call that the runs made
    """

    def __init__(
        self,
        tmp: Path,
        is_left_out: Callable[[str], bool] = lambda kind: False,
        routine: Callable[[random.Random], Iterable[Run]] = lambda rng: (),
    ) -> None:
        self.n_states, self.wrong, self.kinds = 0, set[str](), set[str]()
        self._tmp, self._is_kind_left_out, self._routine = tmp, is_left_out, routine
        self._numbers = itertools.count()
        self._views: dict[frozenset[tuple[str, bytes | None]], Any] = {}

    def sample(self, seed: int) -> None:
        for run in self._routine(random.Random(seed)):
            self.replay(run)

    def replay(self, run: Run) -> Cuts:
        self._views.clear()
        root = self._folder({})
        for name, act in run.steps(root):
            if self.wrong:
                break
            before, recorder = self._record(run, root, act)
            after = read_tree(root)
            if not any(map(self._is_kind_left_out, self.kinds)):
                disk = Disk(before)
                for call in recorder.log:
                    disk.do(*call)
                assert disk.now() == after, "a call that changes the folder has not been noted"
            views = self._view(run, before), self._view(run, after)
            step = Step(name, before, after, recorder.log, recorder.marks, *views)
            self._check(run, step, run.wrong(step), is_first=True)
        shutil.rmtree(root)
        return self

    def _check(self, run: Run, step: Step, wrong: Callable[[State], str], *, is_first: bool) -> None:
        behind: dict[frozenset[tuple[str, bytes | None]], Tree] = {}
        for at, tree in run.states(step):
            self.n_states += 1
            if what := wrong(State(at, tree, self._view(run, tree), is_first and at == len(step.log))):
                self.wrong.add(f"{step.name}: {what}")
                return
            behind[without_leftovers(tree)] = tree
        for tree in behind.values() if run.is_deep and is_first else ():
            root = self._folder(tree)
            before, recorder = self._record(run, root, run.again(root))
            after = read_tree(root)
            shutil.rmtree(root)
            second = Step(step.name, before, after, recorder.log, recorder.marks, step.old, step.new)
            self._check(run, second, run.wrong(step, self._view(run, after)), is_first=False)

    def _view(self, run: Run, tree: Tree) -> Any:
        """What a folder of these files shows, temporary ones apart."""
        key = without_leftovers(tree)
        if key not in self._views:
            root = self._folder(dict(key))
            self._views[key] = run.look(root)
            shutil.rmtree(root)
        return self._views[key]

    def _folder(self, tree: Tree) -> Path:
        root = self._tmp / str(next(self._numbers))
        materialise(tree, root)
        return root

    def _record(self, run: Run, root: Path, act: Act) -> tuple[Tree, Recorder]:
        """What was there, and the calls that an act made."""
        before, recorder = read_tree(root), Recorder(root, lambda call: self._is_left_out(run.kind(call)))
        with recorder.recording():
            act(recorder)
        return before, recorder

    def _is_left_out(self, kind: str) -> bool:
        self.kinds.add(kind)
        return self._is_kind_left_out(kind)
