# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of a store's steps: what runs, what is trusted, and whether it can go on after them.

``Cuts`` takes steps in any order. A cut within a step must leave what the store had before it or has behind it, or what
runs while a bundle that nobody has started is replaced; behind a step, only what it acknowledged.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import HardcaseError
from hardcase_edge.release.content import Content
from hardcase_edge.store.folder import Store
from hardcase_edge.store.slots import Slots, failed, passed, saw_cloud, slots_from, stopped, worked
from tests.helpers.edge.cut_runs import CutRuns
from tests.helpers.edge.power_cuts import Recorder, Tree, cuts, cuts_behind, read_tree, without_leftovers

__all__ = ["MEMORY", "Cuts", "Step", "bundle", "random_steps", "release", "view_of"]

Step = Callable[[Store], object]
View = tuple[str, bytes, bool]
MEMORY = "/dev/shm"  # a folder in memory on Linux
NEXT = 999  # the bundle that must go in and run after any cut
RELEASES = 20  # versions that random steps use
STEPS = 12  # of a random run


def bundle(k: int) -> bytes:
    """The bytes of a bundle of its own length."""
    return k.to_bytes(2, "big") * (150 + k)


def release(k: int, signature: bytes) -> Content:
    """What a release with this bundle and other files puts into a slot."""
    return Content(sha256(b"release %d" % k).hex(), bundle(k), signature, b"PK" * (170 + k))


def _whole(content: Content) -> tuple[Content, Content]:
    """What a slot with this bundle may have."""
    k = int.from_bytes(content.bundle[:2], "big")
    return Content(sha256(bundle(k)).hex(), bundle(k), content.signature), release(k, content.signature)


class Cuts(CutRuns[View]):
    """Cuts the power at every call of every step; ``wrong`` has the names of the steps in which a state was wrong."""

    def sample(self, seed: int) -> None:
        """Random steps on a store of their own; the start after each cut is cut, too."""
        self.run(random_steps(STEPS, seed), until_wrong=True, is_deep=True)

    def run(self, steps: Iterable[tuple[str, Step]], *, until_wrong: bool = False, is_deep: bool = False) -> Cuts:
        """All steps, on a store of their own; ``is_deep``: the start after each cut is cut, too."""
        root = self.new_folder()
        for name, step in steps:
            before, recorder = self._step(root, step)
            old, new = self.view(before), self.view(read_tree(root))
            if any(self.view(tree) != new for tree in cuts_behind(before, recorder.log)):
                self.wrong.add(name)  # what has been acknowledged stays
            runs = {old[0], new[0], *_behind(before)}
            self._check(name, before, recorder, runs, {old[1], new[1]}, is_deep=is_deep)
            if until_wrong and self.wrong:
                break
        shutil.rmtree(root)
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
                root = self.folder_of(tree)
                again, second = self._step(root, Store.start)
                started = self.view(read_tree(root))[0]
                shutil.rmtree(root)
                self._check(name, again, second, runs | {started}, trust, is_deep=False)

    def look(self, root: Path) -> View:
        """What runs after a start, what is trusted, and whether the next bundle can be put and runs."""
        return view_of(root / "store")

    def _step(self, root: Path, step: Step) -> tuple[Tree, Recorder]:
        return self.record(root, lambda: step(Store(root / "store")))


def _behind(tree: Tree) -> set[str]:
    """What runs while a bundle that nobody has started is replaced: the good one, the one on trial or behind it."""
    state = tree.get("store/state")
    if state is None:
        return set()
    slots, seen = slots_from(json.loads(state[65 : len(state) // 2 - 1])), set()
    for name in {slots.runs, slots.current, slots.behind} - {""}:
        word = "good" if slots[name].state == "good" else "trial"
        signature = tree.get(f"store/{name}/bundle.hcb.sig") or b""
        seen.add(f"{word} {slots[name].sha256[:8]} {signature[:8].hex()}")
    return seen


def view_of(folder: str | Path) -> View:
    """What a store runs, what it trusts and the time it knows, and whether the next bundle can be put; changes it."""
    store = Store(folder)
    try:
        started = store.start()
        content = store.content_of(started.name)
        runs = f"{started.slot.state} {started.slot.sha256[:8]} {content.signature[:8].hex()}"
        if content not in _whole(content):
            runs += " mixed"
    except HardcaseError:
        runs = "nothing"
    try:
        trust = (store.trust() or b"") + b" at %d" % store.noted_time()
        trust += repr(sorted(store.noted_broken(store.slots()[store.slots().current or "a"].sha256))).encode()
        store.put(bundle(NEXT), b"", (RELEASES + 1, 0))
        return runs, trust, store.start().slot.sha256 == sha256(bundle(NEXT)).hex()
    except HardcaseError:
        return runs, b"damaged", False


def random_steps(n: int, seed: int) -> list[tuple[str, Step]]:
    """So many steps in an order that may be: mostly bundles and starts, some verdicts, the cloud, and rotations."""
    rng = random.Random(seed)
    steps: list[tuple[str, Step]] = [("put 0", lambda s: s.put(bundle(0)))]
    for k in range(1, n):
        what = rng.choice([*["put"] * 2, *["start"] * 3, *["passed"] * 2, *["worked"] * 2, "failed", "stopped", "more"])
        signature, version = rng.choice([b"", bytes([k]) * 64]), (rng.randrange(k + 1), rng.randrange(RELEASES))
        trust = rng.choice([b"", b"", b"trust %d" % k])
        if what == "put":
            content = (
                release(k, signature) if rng.random() < 0.5 else Content(sha256(bundle(k)).hex(), bundle(k), signature)
            )
            step: Step = lambda s, c=content, a=(version, trust): s.put(c, b"", *a)  # type: ignore[misc] # noqa: E731
        elif what == "start":
            step = Store.start
        elif what == "more":
            step = rng.choice([lambda s: s.apply(saw_cloud), lambda s, k=k: s.write_trust(b"root %d" % k)])
        else:
            verdicts = {"passed": passed, "worked": worked, "stopped": stopped}
            verdict = verdicts.get(what, lambda slots, sha: failed(slots, sha, "x"))
            step = lambda s, verdict=verdict: s.apply(lambda slots: _judged(slots, verdict))  # type: ignore[misc] # noqa: E731
        steps.append((f"{what} {k}", step))
    return steps


def _judged(slots: Slots, verdict: Callable[[Slots, str], Slots]) -> Slots:
    return verdict(slots, slots[slots.runs].sha256) if slots.runs else slots
