# SPDX-License-Identifier: Apache-2.0
"""Wherever the power is cut, the store starts, runs what it ran or what it acknowledged, and takes the next bundle."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hardcase_edge.base import files
from hardcase_edge.bundle.sha256 import sha256
from hardcase_edge.errors import HardcaseError
from hardcase_edge.store import folder
from hardcase_edge.store.folder import Store
from hardcase_edge.store.slots import failed, passed, saw_cloud, stopped
from tests.helpers.edge.power_cuts import (
    Operation,
    Recorder,
    Tree,
    cuts,
    cuts_behind,
    materialise,
    read_tree,
    without_leftovers,
)

B = [bytes([k]) * (300 + k) for k in range(8)]
SHA = [sha256(b).hex() for b in B]
Step = Callable[[Store], object]
STEPS: dict[str, Step] = {
    "the first bundle": lambda s: s.put(B[0]),
    "its trial begins": lambda s: s.start(),
    "it passes": lambda s: s.apply(lambda slots: passed(slots, SHA[0])),
    "a bundle and the first trust": lambda s: s.put(B[1], b"s" * 64, (1, 1), b"trust 1"),
    "it is tried": lambda s: s.start(),
    "it stops": lambda s: s.apply(lambda slots: stopped(slots, SHA[1])),
    "it fails": lambda s: s.apply(lambda slots: failed(slots, SHA[1], "memory")),
    "a bundle that comes to stay": lambda s: s.put(B[2], b"", (1, 2), b"trust 2"),
    "it starts": lambda s: s.start(),
    "it stays": lambda s: s.apply(lambda slots: passed(slots, SHA[2])),
    "the cloud": lambda s: s.apply(saw_cloud),
    "a bundle that nobody starts": lambda s: s.put(B[3], b"s" * 64, (1, 2)),
    "a bundle in its place": lambda s: s.put(B[4], b"t" * 64, (2, 1), b"trust 3"),
    "first start": lambda s: s.start(),
    "second start": lambda s: s.start(),
    "third start": lambda s: s.start(),
    "start of the old one": lambda s: s.start(),
    "rotation": lambda s: s.write_trust(b"trust 4"),
    "an hour": lambda s: s.note_time(1_800_000_000),
    "another hour": lambda s: s.note_time(1_800_003_600),
}

# while a bundle replaces another that nobody has started, the good one runs
BETWEEN = {"a bundle in its place": [f"good {SHA[2][:8]}"]}

numbers = itertools.count()


@pytest.fixture(autouse=True)
def _no_real_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's files need not outlive its machine."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


View = tuple[str, bytes, bool]


class Cuts:
    """Cuts the power at every call of every step."""

    def __init__(self, tmp: Path, is_left_out: Callable[[Operation], bool] = lambda _: False) -> None:
        self.tmp, self.is_left_out = tmp, is_left_out
        self.n_states, self.wrong = 0, set[str]()
        self._views: dict[frozenset[tuple[str, bytes | None]], View] = {}

    def folder_of(self, tree: Tree) -> Path:
        root = self.tmp / str(next(numbers))
        materialise(tree, root)
        return root

    def view(self, tree: Tree) -> View:
        """What runs after a start with its state, what is trusted, and whether the next bundle can be put and runs."""
        key = without_leftovers(tree)
        if key not in self._views:
            self._views[key] = view(Store(self.folder_of(tree) / "store"))
        return self._views[key]

    def step(self, root: Path, step: Step) -> tuple[Tree, Recorder]:
        before, recorder = read_tree(root), Recorder(root, self.is_left_out)
        with recorder.recording(), contextlib.suppress(HardcaseError):
            step(Store(root / "store"))
        return before, recorder

    def run(self, *, until_wrong: bool = False, is_deep: bool = False) -> Cuts:
        """All steps; ``is_deep``: the start after each cut is cut, too."""
        root = self.tmp / "run"
        root.mkdir()
        for name, step in STEPS.items():
            before, recorder = self.step(root, step)
            old, new = self.view(before), self.view(read_tree(root))
            behind = list(cuts_behind(before, recorder.log))
            if any(self.view(tree) != new for tree in behind):  # what has been acknowledged stays
                self.wrong.add(name)
            runs = {old[0], new[0], *BETWEEN.get(name, ())}
            self._check(name, before, recorder, runs, {old[1], new[1]}, is_deep=is_deep)
            if until_wrong and self.wrong:
                break
        return self

    def _check(
        self, name: str, before: Tree, recorder: Recorder, runs: set[str], trust: set[bytes], *, is_deep: bool
    ) -> None:
        """That each state is one of these; a start counts, so what a trial's last start leads to is right, too."""
        trees = list(cuts(before, recorder.log))
        self.n_states += len(trees)
        for tree in {without_leftovers(tree): tree for tree in trees}.values():
            seen = self.view(tree)
            if seen[0] not in runs or seen[1] not in trust or not seen[2]:
                self.wrong.add(name)
            elif is_deep:
                again, second = self.step(self.folder_of(tree), Store.start)
                started = self.view(read_tree(second.root))[0]
                self._check(name, again, second, runs | {started}, trust, is_deep=False)


def view(store: Store) -> View:
    try:
        started = store.start()
        runs = f"{started.slot.state} {sha256(started.path.read_bytes()).hex()[:8]}"
    except HardcaseError:
        runs = "nothing"
    try:
        trust = (store.trust() or b"") + b" at %d" % store.noted_time()
        store.put(B[7], b"", (9, 9))
        return runs, trust, store.start().slot.sha256 == SHA[7]
    except HardcaseError:
        return runs, b"damaged", False


def test_a_cut_anywhere_leaves_a_store_that_runs_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    done = Cuts(tmp_path).run(is_deep=True)
    assert done.wrong == set()
    assert done.n_states > 2_000


def file_is(name: str) -> Callable[[Operation], bool]:
    return lambda operation: operation[0] == "sync" and Path(operation[1]).name.startswith(name)


@pytest.mark.parametrize(
    "is_left_out",
    [
        pytest.param(file_is(".state"), id="flush of the state"),
        pytest.param(file_is(".trust"), id="flush of the trust"),
        pytest.param(file_is(".time"), id="flush of the time"),
        pytest.param(file_is(".bundle.hcb."), id="flush of the bundle"),
        pytest.param(lambda o: o == ("sync", "."), id="flush of the folder that holds the store"),
        pytest.param(lambda o: o == ("sync", "store"), id="flush of the store's folder"),
        pytest.param(lambda o: o[0] == "sync" and o[1] in ("store/a", "store/b"), id="flush of a slot's folder"),
    ],
)
def test_without_one_kind_of_flush_a_cut_is_found(tmp_path: Path, is_left_out: Callable[[Operation], bool]) -> None:
    assert Cuts(tmp_path, is_left_out).run(until_wrong=True).wrong


@pytest.mark.parametrize("name", ["state", "trust", "time"])  # a bundle is not looked at before its slot is ready
def test_without_the_rename_a_cut_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(path: Path, data: bytes) -> None:
        if path.name != name:
            return write(path, data)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, data)
        os.fsync(descriptor)
        os.close(descriptor)
        files.sync_folder(path.parent)

    write = folder.write_whole
    monkeypatch.setattr(folder, "write_whole", in_place)
    assert Cuts(tmp_path).run(until_wrong=True).wrong
