# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of a store's steps: what runs, what is trusted, and whether it can go on after them.

``Cuts`` takes steps in any order. A cut within a step must leave what the store had before it or has behind it, or what
runs while a bundle that nobody has started is replaced; behind a step, only what it acknowledged.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from hardcase_edge.base.files import sync_folder, write_whole
from hardcase_edge.bundle.sha256 import sha256
from hardcase_edge.errors import HardcaseError
from hardcase_edge.store import folder
from hardcase_edge.store.folder import Store
from hardcase_edge.store.slots import Slots, failed, passed, saw_cloud, slots_from, stopped
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

__all__ = ["MEMORY", "Cuts", "Step", "bundle", "in_place", "kind_of", "random_steps", "view_of"]

Step = Callable[[Store], object]
View = tuple[str, bytes, bool]
MEMORY = "/dev/shm"  # a folder in memory on Linux
NEXT = 999  # the bundle that must go in and run after any cut
RELEASES = 20  # versions that random steps use


def bundle(k: int) -> bytes:
    """The bytes of a bundle of its own length."""
    return k.to_bytes(2, "big") * (150 + k)


def kind_of(operation: Operation) -> str:
    """A call without the random part of a temporary file's name, and with one name for both slots."""
    what, *paths = operation
    names = []
    for path in paths:
        place = Path(path)
        name = place.name[:-9] if place.name.startswith(".") and len(place.name) > 9 else place.name
        parent = place.parent.name
        names.append("slot" if place.name in ("a", "b") else f"slot/{name}" if parent in ("a", "b") else name or "top")
    return " ".join([what, *names])


class Cuts:
    """Cuts the power at every call of every step.

    Parameters
    ----------
    tmp : a folder for the states; in memory it is fastest
    is_left_out : which calls are made and not recorded, as if the code did not have them

    Attributes
    ----------
    n_states : how many states were looked at
    wrong : names of the steps in which one was wrong
    kinds : every kind of call that the steps made
    """

    def __init__(self, tmp: Path, is_left_out: Callable[[Operation], bool] = lambda _: False) -> None:
        self.tmp, self.is_left_out = tmp, is_left_out
        self.n_states, self.wrong, self.kinds = 0, set[str](), set[str]()
        self._numbers = itertools.count()
        self._views: dict[frozenset[tuple[str, bytes | None]], View] = {}

    def run(self, steps: Iterable[tuple[str, Step]], *, until_wrong: bool = False, is_deep: bool = False) -> Cuts:
        """All steps, on a store of their own; ``is_deep``: the start after each cut is cut, too."""
        root = self.tmp / f"run{next(self._numbers)}"
        root.mkdir()
        for name, step in steps:
            before, recorder = self._step(root, step)
            old, new = self._view(before), self._view(read_tree(root))
            if any(self._view(tree) != new for tree in cuts_behind(before, recorder.log)):
                self.wrong.add(name)  # what has been acknowledged stays
            runs = {old[0], new[0], *_behind(before)}
            self._check(name, before, recorder, runs, {old[1], new[1]}, is_deep=is_deep)
            if until_wrong and self.wrong:
                break
        shutil.rmtree(root)
        return self

    def forget(self) -> None:
        """Drop what was remembered of states, before another store."""
        self._views.clear()

    def _check(
        self, name: str, before: Tree, recorder: Recorder, runs: set[str], trust: set[bytes], *, is_deep: bool
    ) -> None:
        """That each state is one of these; a start counts, so what a trial's last start leads to is right, too."""
        trees = list(cuts(before, recorder.log))
        self.n_states += len(trees)
        for tree in {without_leftovers(tree): tree for tree in trees}.values():
            seen = self._view(tree)
            if seen[0] not in runs or seen[1] not in trust or not seen[2]:
                self.wrong.add(name)
            elif is_deep:
                root = self._folder_of(tree)
                again, second = self._step(root, Store.start)
                started = self._view(read_tree(root))[0]
                shutil.rmtree(root)
                self._check(name, again, second, runs | {started}, trust, is_deep=False)

    def _folder_of(self, tree: Tree) -> Path:
        root = self.tmp / str(next(self._numbers))
        materialise(tree, root)
        return root

    def _view(self, tree: Tree) -> View:
        """What runs after a start with its state, what is trusted, and whether the next bundle can be put and runs."""
        key = without_leftovers(tree)
        if key not in self._views:
            root = self._folder_of(tree)
            self._views[key] = view_of(root / "store")
            shutil.rmtree(root)
        return self._views[key]

    def _step(self, root: Path, step: Step) -> tuple[Tree, Recorder]:
        before, recorder = read_tree(root), Recorder(root, self._is_left_out)
        with recorder.recording(), contextlib.suppress(HardcaseError):
            step(Store(root / "store"))
        return before, recorder

    def _is_left_out(self, operation: Operation) -> bool:
        self.kinds.add(kind_of(operation))
        return self.is_left_out(operation)


@contextlib.contextmanager
def in_place(name: str) -> Iterator[None]:
    """The store writes files of this name in place, flushed but without a temporary file and its rename."""

    def write_in_place(path: Path, data: bytes) -> None:
        if path.name != name:
            return write_whole(path, data)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, data)
        os.fsync(descriptor)
        os.close(descriptor)
        sync_folder(path.parent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "write_whole", write_in_place)
        yield


def _behind(tree: Tree) -> set[str]:
    """What runs while a bundle that nobody has started is replaced: the good one, or the one on trial."""
    state = tree.get("store/state")
    if state is None:
        return set()
    slots = slots_from(json.loads(state[65 : len(state) // 2 - 1]))
    return {
        f"{slots[name].state} {slots[name].sha256[:8]} {(tree.get(f'store/{name}/bundle.hcb.sig') or b'')[:8].hex()}"
        for name in {slots.runs, slots.current} - {""}
    }


def view_of(folder: str | Path) -> View:
    """What a store runs, what it trusts and the time it knows, and whether the next bundle can be put; changes it."""
    store = Store(folder)
    try:
        started = store.start()
        signature = started.path.with_name("bundle.hcb.sig")
        sealed = signature.read_bytes() if signature.exists() else b""
        runs = f"{started.slot.state} {sha256(started.path.read_bytes()).hex()[:8]} {sealed[:8].hex()}"
    except HardcaseError:
        runs = "nothing"
    try:
        trust = (store.trust() or b"") + b" at %d" % store.noted_time()
        store.put(bundle(NEXT), b"", (RELEASES + 1, 0))
        return runs, trust, store.start().slot.sha256 == sha256(bundle(NEXT)).hex()
    except HardcaseError:
        return runs, b"damaged", False


def random_steps(n: int, seed: int) -> list[tuple[str, Step]]:
    """So many steps in an order that may be: mostly bundles and starts, some verdicts, the cloud, and rotations."""
    rng = random.Random(seed)
    steps: list[tuple[str, Step]] = [("put 0", lambda s: s.put(bundle(0)))]
    for k in range(1, n):
        what = rng.choice(["put", "put", "start", "start", "start", "passed", "passed", "failed", "stopped", "more"])
        signature, release = rng.choice([b"", bytes([k]) * 64]), (rng.randrange(k + 1), rng.randrange(RELEASES))
        trust = rng.choice([b"", b"", b"trust %d" % k])
        if what == "put":
            step: Step = lambda s, k=k, a=(signature, release, trust): s.put(bundle(k), *a)  # type: ignore[misc] # noqa: E731
        elif what == "start":
            step = Store.start
        elif what == "more":
            step = rng.choice([lambda s: s.apply(saw_cloud), lambda s, k=k: s.write_trust(b"root %d" % k)])
        else:
            verdict = {"passed": passed, "stopped": stopped, "failed": lambda slots, sha: failed(slots, sha, "x")}[what]
            step = lambda s, verdict=verdict: s.apply(lambda slots: _judged(slots, verdict))  # type: ignore[misc] # noqa: E731
        steps.append((f"{what} {k}", step))
    return steps


def _judged(slots: Slots, verdict: Callable[[Slots, str], Slots]) -> Slots:
    return verdict(slots, slots[slots.runs].sha256) if slots.runs else slots
