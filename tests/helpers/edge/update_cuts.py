# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of an update: its metadata, the file of its chunks, and its move into the store.

Each state is gone on with as a device does: the offer comes again, the chunks that are missing are fetched, and the new
bundle starts. What comes of it depends on the partial file only by the chunks of it that are right, so it is tried once
for each set of these.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.ed25519 import is_signed
from hardcase_edge.errors import HardcaseError
from hardcase_edge.fleet.store import metadata
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.update.incoming import GROUP, Incoming
from tests.helpers.edge.cut_runs import Act, Run, State, Step
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.power_cuts import Recorder, read_tree, without_leftovers
from tests.helpers.edge.repository import Repository
from tests.helpers.edge.update_rig import OLD, SIZE, Rig


@dataclass(frozen=True)
class Plan:
    """One update: how long the bundle is, in which order its chunks come, and what has come before."""

    n_chunks: int
    order: int = 0  # seed; 0: as they are asked for
    is_after_another: bool = False  # whether the partial file of an older offer is there
    restart_after: int = 0  # chunks; 0: never


@dataclass(frozen=True)
class View:
    """What a device has after a cut."""

    runs: str  # SHA-256 of what runs, and of what is ready for its trial
    trust: bytes
    n_here: int  # chunks of the partial file
    ends: str  # SHA-256 of what runs when the update has gone on to its end


verdict_of = cache(is_signed)  # the same few signatures, for each state again


@cache
def bundle_of(n_chunks: int) -> bytes:
    """A bundle that takes so many chunks."""
    return make_bundle_bytes(name=f"new {n_chunks}", trained={"notes": "n" * (SIZE * (n_chunks - 1))})


class UpdateRun(Run):
    """One update, from a store with a good bundle to one whose next start tries the new one."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._data, self._repository = plan, bundle_of(plan.n_chunks), Repository()
        self._ends: dict[object, str] = {}

    def steps(self, root: Path) -> Iterator[tuple[str, Act]]:
        """All as one step, which promises how many chunks are on the disk."""
        plan, data = self._plan, self._data
        with patch.object(os, "posix_fallocate", lambda *args: None), patch.object(metadata, "is_signed", verdict_of):
            rig = Rig(root, self._repository)
            if plan.is_after_another:
                other = bundle_of(plan.n_chunks + 1)
                rig.offer(rig.offer_of(other))
                rig.feed(other, 3)
                rig.restart()
                rig.fetched.clear()
            offer = self._offer = rig.offer_of(data)

            def act(recorder: Recorder) -> None:
                rig.offer(offer)
                recorder.mark(0)
                rng, since = random.Random(plan.order), 0
                for n_written in range(1, plan.n_chunks + 1):
                    if plan.order:
                        rng.shuffle(rig.fetched)
                    rig.feed(data, 1)
                    if n_written == plan.restart_after:
                        rig.incoming.close()
                        rig.restart()
                        rig.fetched.clear()
                        rig.offer(offer)
                        since = n_written
                    if n_written == plan.restart_after or (n_written - since) % GROUP == 0:
                        recorder.mark(n_written)
                assert rig.updater.is_ready

            yield "update", act

    def wrong(self, step: Step, started: object = None) -> Callable[[State], str]:
        """Older metadata than were promised, fewer chunks, another bundle than the new one in the end."""
        new, trust = self._offer.sha256.hex(), step.new.trust
        has_it = f"{sha256(OLD).hex()} {new}"

        def what(state: State) -> str:
            seen, promised = state.seen, [n for at, n in step.marks if at <= state.at]
            if seen.trust not in ({trust} if promised else {trust, step.old.trust}):
                return "older metadata"
            if seen.runs != has_it and (state.is_last or seen.n_here < max(promised, default=0)):
                return "lost the bundle" if state.is_last else "lost chunks"
            return "" if seen.ends == new else "does not go on"

        return what

    def look(self, root: Path) -> View:
        try:
            store = Store(root / "store")
            slots, trust = store.slots(), store.trust() or b""
            runs = f"{slots[slots.current].sha256} {slots[slots.ready].sha256 if slots.ready else 'nothing'}"
            partial = Incoming(store)
            here = partial.begin(self._offer)
            partial.close()
            tree = {path: data for path, data in read_tree(root).items() if "incoming/" not in path}
            key = without_leftovers(tree), here
            if key not in self._ends:
                self._ends[key] = self._end(root)
            return View(runs, trust, len(here), self._ends[key])
        except HardcaseError as error:
            return View(f"damaged: {error}", b"", 0, "")

    def _end(self, root: Path) -> str:
        rig = Rig(root, self._repository)
        rig.offer(self._offer)
        rig.feed(self._data)
        return rig.store.start().slot.sha256 if rig.updater.is_ready else "not ready"


def update_runs(rng: random.Random) -> Iterator[Run]:
    n = rng.randint(4, 2 * GROUP + 4)
    yield UpdateRun(Plan(n, rng.randrange(3), rng.random() < 0.3, rng.choice([0, rng.randrange(n)])))
