# SPDX-License-Identifier: Apache-2.0
"""What all runs with power cuts have in common: calls that are recorded, or left out, and states that are looked at."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from hardcase_edge.errors import HardcaseError
from tests.helpers.edge.power_cuts import Operation, Recorder, Tree, kind_of, materialise, read_tree, without_leftovers

__all__ = ["CutRuns"]

View = TypeVar("View")


class CutRuns(ABC, Generic[View]):
    """Runs some routine and cuts the power at every call of it.

    Parameters
    ----------
    tmp : a folder for the states; in memory it is fastest
    is_left_out : kinds of calls that are made and not recorded, as if the code did not have them; a file whose rename
        is left out is written in place

    Attributes
    ----------
    n_states : how many states were looked at
    wrong : names of what was under way where one was wrong
    kinds : every kind of call that the routine made
    """

    def __init__(self, tmp: Path, is_left_out: Callable[[str], bool] = lambda kind: False) -> None:
        self.tmp = tmp
        self.n_states, self.wrong, self.kinds = 0, set[str](), set[str]()
        self._is_kind_left_out = is_left_out
        self._numbers = itertools.count()
        self._views: dict[frozenset[tuple[str, bytes | None]], View] = {}

    @abstractmethod
    def sample(self, seed: int) -> None:
        """One random run; it may end at the first wrong state."""

    @abstractmethod
    def look(self, root: Path) -> View:
        """What a folder shows after a cut; may change it."""

    def forget(self) -> None:
        """Drop what was remembered of states, before another run."""
        self._views.clear()

    def new_folder(self) -> Path:
        """An empty folder."""
        root = self.tmp / str(next(self._numbers))
        root.mkdir(parents=True)
        return root

    def folder_of(self, tree: Tree) -> Path:
        """A folder with these files."""
        root = self.tmp / str(next(self._numbers))
        materialise(tree, root)
        return root

    def view(self, tree: Tree) -> View:
        """What ``look`` shows of these files, temporary ones apart."""
        key = without_leftovers(tree)
        if key not in self._views:
            root = self.folder_of(dict(key))
            self._views[key] = self.look(root)
            shutil.rmtree(root)
        return self._views[key]

    def recorder(self, root: Path) -> tuple[Tree, Recorder]:
        """What is there, and what notes the calls from now on."""
        return read_tree(root), Recorder(root, self._is_left_out)

    def record(self, root: Path, act: Callable[[], object]) -> tuple[Tree, Recorder]:
        """What was there, and the calls that an act made."""
        before, recorder = self.recorder(root)
        with recorder.recording(), contextlib.suppress(HardcaseError):
            act()
        return before, recorder

    def _is_left_out(self, operation: Operation) -> bool:
        kind = kind_of(operation)
        self.kinds.add(kind)
        return self._is_kind_left_out(kind)
