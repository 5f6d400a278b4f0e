# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of a store's steps: what runs, what is trusted, and whether it can go on after them.

Steps come in any order. A cut within a step must leave what the store had before it or has behind it, or what runs
while a bundle that nobody has started is replaced; behind a step, only what it acknowledged.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.errors import HardcaseError
from hardcase_edge.fleet.release.content import Content
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.slots import Slots, failed, passed, saw_cloud, slots_from, stopped, worked
from tests.helpers.edge import cut_runs
from tests.helpers.edge.cut_runs import Act, Run, State
from tests.helpers.edge.power_cuts import Recorder, Tree

Step = Callable[[Store], object]
View = tuple[str, bytes, bool]
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


@dataclass
class StoreRun(Run):
    """Steps on a store of their own; ``is_deep``: the start after each cut is cut, too."""

    named: Iterable[tuple[str, Step]]
    is_deep: bool = False

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:
        for name, step in self.named:
            yield name, _on_store(root, step)

    def again(self, root: Path) -> Act:
        """The start, which counts, so what a trial's last start leads to is right, too."""
        return _on_store(root, Store.start)

    def look(self, root: Path) -> View:
        return view_of(root / "store")

    def wrong(self, step: cut_runs.Step, started: View | None = None) -> Callable[[State], str]:
        """All but what ran, what the step brings and what runs meanwhile; behind the step, all but what it brings."""
        runs = {view[0] for view in (step.old, step.new, started) if view} | _behind(step.before)

        def what(state: State) -> str:
            is_right = state.seen[0] in runs and state.seen[1] in (step.old[1], step.new[1]) and state.seen[2]
            return "" if is_right and not (state.is_last and state.seen != step.new) else str(state.seen)

        return what


def store_runs(rng: random.Random) -> Iterator[Run]:
    yield StoreRun(random_steps(STEPS, rng), is_deep=True)


def _on_store(root: Path, step: Step) -> Act:
    def act(_: Recorder) -> None:
        with suppress(HardcaseError):
            step(Store(root / "store"))

    return act


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


def random_steps(n: int, rng: random.Random) -> list[tuple[str, Step]]:
    """So many steps in an order that may be: mostly bundles and starts, some verdicts, the cloud, and rotations."""
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
