# SPDX-License-Identifier: Apache-2.0
"""Rig of ``air.py``: a device with a store in one network namespace, a broker and an offer in the other."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages import ROOT
from slow_link import CLOUD, CLOUD_IP, DEVICE

sys.path.insert(0, str(ROOT))

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.bundle.signature import make_keys, sign
from hardcase_edge.fleet.store.folder import Store
from hardcase_edge.program.definition import (
    MICRO,
    Acquire,
    Answer,
    Column,
    Feature,
    Program,
    Rank,
    Sensor,
    Slice,
    Tree,
    Trees,
    Uplink,
)

__all__ = ["PORT", "Rig", "process"]

N_TREES, DEPTH = 227, 10  # 1.4 MB
PORT = 18_830


def big_bundle(seed: int) -> bytes:
    """A bundle of 1.4 MB: trees of random splits."""
    rng, n_features, n_inner = random.Random(seed), 8, 2**DEPTH - 1
    trees = tuple(
        Tree(
            0, 1,
            tuple(rng.randrange(n_features) for _ in range(n_inner)),
            tuple(rng.randrange(1, 200) for _ in range(n_inner)),
            (True,) * n_inner, (), tuple(rng.randrange(-500, 500) for _ in range(n_inner + 1)),
        )
        for _ in range(N_TREES)
    )  # fmt: skip
    program = Program(
        features=(Feature("f32"),) * n_features,
        sensors=tuple(Sensor((f,), (MICRO,)) for f in range(n_features)),
        uplink=Uplink(),
        columns=tuple(Column(f, Rank(tuple(map(float, range(200))))) for f in range(n_features)),
        scorers=(Trees(tuple(range(n_features)), (0,), trees),),
        nodes=(Acquire(tuple(range(n_features)), 1, 1), Answer(Slice(0, 0, 1))),
        n_classes=2,
    )
    names = [tuple(f"{what}{k}" for k in range(n_features)) for what in "fs"]
    manifest = Manifest(f"big {seed}", "mJ", names[0], names[1], ("no", "yes"))
    return pack_bundle(Bundle(manifest.to_json(), program, golden=()))


@contextlib.contextmanager
def process(*words: object, space: str = "", **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process, in a namespace if one is named."""
    prefix = ["ip", "netns", "exec", space] if space else []
    running = subprocess.Popen([*prefix, *map(str, words)], **more)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


class Lines:
    """What a process writes to standard error, as it comes."""

    def __init__(self, running: subprocess.Popen[bytes]) -> None:
        self.lines: list[str] = []
        assert running.stderr is not None
        self._file = running.stderr
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._file:
            self.lines.append(line.decode().rstrip())

    def wait_for(self, words: str, seconds: float = 240.0) -> str:
        """The first line with these words."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.lines:
                if words in line:
                    return line
            time.sleep(0.005)
        raise SystemExit(f"{words!r} did not come; there was {self.lines}")


class Rig:
    """A device with a store in one namespace, a broker in the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        private, public = make_keys()
        self.private = private
        (folder / "key.pub").write_bytes(public)
        (folder / "rows.csv").write_text(",".join(f"f{k}" for k in range(8)) + "\n" + "1,2,3,4,5,6,7,8\n" * 100_000)
        (folder / "mosquitto.conf").write_text(
            f"listener {PORT} 0.0.0.0\nallow_anonymous true\nset_tcp_nodelay true\nuser root\n"
        )
        self.seed = 0
        self.bundle = self.write_bundle()

    def write_bundle(self) -> Path:
        """The next bundle, signed."""
        self.seed += 1
        path = self.folder / f"{self.seed}.hcb"
        path.write_bytes(big_bundle(self.seed))
        Path(f"{path}.sig").write_bytes(sign(path.read_bytes(), self.private))
        return path

    @contextlib.contextmanager
    def device(self, port: int = PORT, host: str = CLOUD_IP) -> Iterator[tuple[subprocess.Popen[bytes], Lines]]:
        """``hardcase-edge run``, connected and decided once."""
        store = Store(self.folder / f"store-{self.seed}")
        store.put(self.bundle.read_bytes(), Path(f"{self.bundle}.sig").read_bytes())
        words = ["run", "--store", store.folder, "--trust", self.folder / "key.pub", "--device-id", "dev"]
        words += ["--broker", f"mqtt://{host}:{port}", "--sensors", f"replay:{self.folder / 'rows.csv'}"]
        command = [sys.executable, "-m", "hardcase_edge.cli", *words, "--interval", "0.5", "--trial-decisions", "2"]
        with (
            (self.folder / "out").open("wb") as out,
            process(*command, space=DEVICE, stdout=out, stderr=subprocess.PIPE) as running,
        ):
            lines = Lines(running)
            lines.wait_for("connected to")
            lines.wait_for("passed its trial")
            yield running, lines

    @contextlib.contextmanager
    def offering(self, bundle: Path) -> Iterator[subprocess.Popen[bytes]]:
        """``hardcase cloud offer`` beside the broker."""
        words = [sys.executable, "-m", "hardcase.cli", "cloud", "offer", bundle, "--device", "dev", "--json"]
        words += ["--broker", f"mqtt://127.0.0.1:{PORT}"]
        with process(*words, space=CLOUD, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            running.stdout.readline()  # "offering"
            yield running
