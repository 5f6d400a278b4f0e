# SPDX-License-Identifier: Apache-2.0
"""Power cuts at every call of an update: its metadata, the file of its chunks, and its move into the store.

Each state is gone on with as a device does: the offer comes again, the chunks that are missing are fetched, and the new
bundle starts. What comes of it depends on the partial file only by the chunks of it that are right, so it is tried once
for each set of these.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.bundle.ed25519 import is_signed
from hardcase_edge.errors import HardcaseError
from hardcase_edge.store import metadata
from hardcase_edge.store.folder import Store
from hardcase_edge.update.incoming import GROUP, Incoming
from hardcase_edge.update.messages import Offer
from tests.helpers.edge.cut_runs import CutRuns
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.power_cuts import Tree, cuts_behind, read_tree, without_leftovers
from tests.helpers.edge.repository import Repository
from tests.helpers.edge.update_rig import OLD, SIZE, Rig

__all__ = ["Cuts", "Plan"]


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


class Cuts(CutRuns[View]):
    """Cuts the power at every call of one update after another; ``wrong`` has what was wrong of a state."""

    def __init__(self, *args, **named) -> None:
        super().__init__(*args, **named)
        self.repository = Repository()
        self._offer: Offer | None = None
        self._data = b""
        self._ends: dict[object, str] = {}

    def sample(self, seed: int) -> None:
        """One update."""
        rng = random.Random(seed)
        n = rng.randint(4, 2 * GROUP + 4)
        self.run(Plan(n, rng.randrange(3), rng.random() < 0.3, rng.choice([0, rng.randrange(n)])))

    def forget(self) -> None:
        """Drop what was remembered of states."""
        super().forget()
        self._ends.clear()

    def run(self, plan: Plan) -> None:
        """One update, from a store with a good bundle to one whose next start tries the new one."""
        with (
            patch.object(os, "posix_fallocate", lambda *args: None),
            patch.object(metadata, "is_signed", verdict_of),
        ):
            self._run(plan)

    def _run(self, plan: Plan) -> None:
        root, data = self.new_folder(), bundle_of(plan.n_chunks)
        rig = Rig(root, self.repository)
        if plan.is_after_another:
            other = bundle_of(plan.n_chunks + 1)
            rig.offer(rig.offer_of(other))
            rig.feed(other, 3)
            rig.restart()
            rig.fetched.clear()
        self._offer, self._data = rig.offer_of(data), data
        offer = self._offer
        marks: list[tuple[int, int]] = []  # how many calls there were when so many chunks were on the disk
        before, recorder = self.recorder(root)
        with recorder.recording():
            rig.offer(offer)
            marks.append((len(recorder.log), 0))
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
                    marks.append((len(recorder.log), n_written))
        assert rig.updater.is_ready
        self._check(before, recorder.log, marks, rig.store.trust() or b"")
        shutil.rmtree(root)

    def _check(self, before: Tree, log: list, marks: list[tuple[int, int]], trust: bytes) -> None:
        new, old_trust = self._sha256, self.view(before).trust
        for k in range(len(log) + 1):
            promised = [n for at, n in marks if at <= k]
            for tree in cuts_behind(before, log[:k]):
                self.n_states += 1
                seen = self.view(tree)
                if seen.trust not in ({trust} if promised else {trust, old_trust}):
                    self.wrong.add("older metadata")
                if seen.runs != f"{sha256(OLD).hex()} {new}" and seen.n_here < max(promised, default=0):
                    self.wrong.add("lost chunks")
                if seen.ends != new:
                    self.wrong.add("does not go on")
                if k == len(log) and seen.runs != f"{sha256(OLD).hex()} {new}":
                    self.wrong.add("lost the bundle")
            if self.wrong:
                break

    @property
    def _sha256(self) -> str:
        assert self._offer is not None
        return self._offer.sha256.hex()

    def look(self, root: Path) -> View:
        """What a device has, and what comes of the same offer in the end."""
        assert self._offer is not None
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
        assert self._offer is not None
        rig = Rig(root, self.repository)
        rig.offer(self._offer)
        rig.feed(self._data)
        return rig.store.start().slot.sha256 if rig.updater.is_ready else "not ready"
