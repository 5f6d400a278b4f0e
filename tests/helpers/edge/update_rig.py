# SPDX-License-Identifier: Apache-2.0
"""A device's store and updater beside a cloud that offers bundles and answers at once."""

from __future__ import annotations

from pathlib import Path

from hardcase_edge.base.sha256 import sha256
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.fleet.store.receive import begin_trust
from hardcase_edge.fleet.store.slots import passed
from hardcase_edge.fleet.update.incoming import Incoming
from hardcase_edge.fleet.update.messages import Chunk, Offer, digests_of, name_of, pack_chunk, pack_offer, unpack_fetch
from hardcase_edge.fleet.update.updater import OFFER_S, Updater
from tests.helpers.edge.device import make_bundle_bytes
from tests.helpers.edge.repository import NOW, Repository

SIZE = 4_096


def big(name: str) -> bytes:
    """A bundle of some 20 chunks."""
    return make_bundle_bytes(name=name, trained={"notes": name * 12_000})


OLD, NEW, NEWER = big("older"), big("newer"), big("newst")


class Rig:
    """A store with a good bundle, and a cloud that answers at once. A store that is there already is gone on with."""

    def __init__(self, tmp_path: Path, repository: Repository | None = None, **more: object) -> None:
        self.store, self.repository, self.now, self.more = Store(tmp_path / "store"), repository, 0.0, more
        self.fetched: list[int] = []
        self.notes: list[str] = []
        if not self.store.folder.exists():
            self._begin(tmp_path)
        self.restart()

    def _begin(self, tmp_path: Path) -> None:
        if self.repository is not None:
            (tmp_path / "root.json").write_bytes(self.repository.roots[0])
            begin_trust(self.store, tmp_path / "root.json")
        self.store.put(OLD)
        self.store.start()
        self.store.apply(lambda slots: passed(slots, sha256(OLD).hex()))

    def restart(self) -> None:
        """The process is killed and starts again."""
        self.incoming = Incoming(self.store)
        self.updater = Updater(
            self.store, self.incoming, self.send, note=self.notes.append,
            **{"wall": lambda: NOW, **self.more},  # type: ignore[arg-type]
        )  # fmt: skip

    def send(self, payload: bytes) -> bool:
        self.fetched += unpack_fetch(payload).wanted
        return True

    def offer_of(self, data: bytes, files=None, signature: bytes = b"") -> Offer:
        files = files or (self.repository.publish(data) if self.repository else None)
        metadata = dict(zip(("timestamp", "snapshot", "targets"), files[1:], strict=True)) if files else {}
        return Offer(
            size=len(data), sha256=sha256(data), chunk_bytes=SIZE, digests=digests_of(data, SIZE),
            roots=tuple(files.roots) if files else (), signature=signature, **metadata,
        )  # fmt: skip

    def offer(self, offer: Offer) -> None:
        self.now += OFFER_S
        self.updater.handle(self.now, pack_offer(offer))
        self.updater.act(self.now)

    def feed(self, data: bytes, n: int = 10_000) -> None:
        """Answer so many chunks that were asked for."""
        while self.fetched and n:
            index = self.fetched.pop(0)
            payload = pack_chunk(Chunk(name_of(sha256(data)), index, data[index * SIZE : (index + 1) * SIZE]))
            self.updater.handle(self.now, payload)
            self.updater.act(self.now)
            n -= 1

    @property
    def states(self) -> tuple[str, str, str]:
        slots = self.store.slots()
        return slots.a.state, slots.b.state, slots.current
