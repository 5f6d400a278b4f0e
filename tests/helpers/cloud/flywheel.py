# SPDX-License-Identifier: Apache-2.0
"""The whole loop on this machine, by the commands that people type: a broker with certificates, a worker, a store,
devices that replay rows of a table, a person who knows the truth, and a retraining whose bundle is rolled out.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardcase.cli import main as hardcase
from hardcase_cloud.keep.records.database import Database
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.cli import main as edge

from .brokers import until
from .mutual_tls import Tls, mutual_tls
from .requests import command

DEVICES = ("line-0", "line-1", "line-2")
EDGE = "hardcase_edge.cli"
GROUP = "lines"
AUDITED = "50%"
WAITING = "SELECT device, boot, sequence, kind, record FROM records WHERE kind IN ('audit', 'case')"
BY_SOURCE = "SELECT source, COUNT(*) FROM labels GROUP BY source"
SETTLE_S = 1.0
UNLIKE = -1e9  # stands for a missing reading where rows are compared
STAND_IN_S = 0.002  # of a recording, between two looks for more


@dataclass(frozen=True)
class Rows:
    """Rows that a device reads, one after the other, and what is true of each.

    lines : (n,) their cells, as a replay has them
    features : by name (n,), what the device makes of them; it is by these that a person knows a row again
    truth : (n,) the right answers
    """

    header: str
    lines: Sequence[str]
    features: dict[str, NDArray[np.float64]]
    truth: Sequence[str]

    def __len__(self) -> int:
        return len(self.lines)

    def some(self, which: Sequence[int] | NDArray[np.int64]) -> Rows:
        """These rows, in this order."""
        features = {name: values[np.asarray(which)] for name, values in self.features.items()}
        return Rows(self.header, [self.lines[k] for k in which], features, [self.truth[k] for k in which])

    def write(self, path: Path, times: int = 1) -> None:
        """As a file to replay, so many times one after the other."""
        path.write_text("\n".join([self.header, *list(self.lines) * times]) + "\n")


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    status: int
    objects: list[dict[str, Any]]  # its lines of JSON
    err: str
    seconds: float


def ask(
    *words: object, module: str = "hardcase.cli", may_end_with: Sequence[int] = (0,), seconds: float = 900.0
) -> Ran:
    """Run a command with these words until it ends, in a process of its own; it has so many seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", module, *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{words[:2]} did not end within {seconds} s: {late.stdout!r} {late.stderr!r}") from None
    return _ran(words, may_end_with, done.returncode, done.stdout, done.stderr, began)


def ask_here(*words: object, main: Callable[[list[str]], int] = hardcase, may_end_with: Sequence[int] = (0,)) -> Ran:
    """Run a command with these words within this process, which need not start."""
    began, out, err = time.monotonic(), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(word) for word in words])
    return _ran(words, may_end_with, status, out.getvalue(), err.getvalue(), began)


def _ran(words: Sequence[object], may: Sequence[int], status: int, out: str, err: str, began: float) -> Ran:
    assert status in may, f"{' '.join(map(str, words))}: {status}: {err}"
    objects = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return Ran(status, objects, err, time.monotonic() - began)


@dataclass
class Device:
    """A folder of a device, and the process that runs there."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    source: subprocess.Popen[bytes] | None = None  # a recording that goes on

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The lines of its last run."""
        return [json.loads(line) for line in (self.folder / "decisions").read_text().splitlines()]

    @property
    def n_decisions(self) -> int:
        """How many lines these are so far."""
        return (self.folder / "decisions").read_bytes().count(b"\n")

    @property
    def said(self) -> str:
        """Its last run's standard error."""
        return (self.folder / "said").read_text()

    def slots(self) -> dict[str, Any]:
        """What ``store show`` says."""
        return ask("store", "show", self.folder / "store", "--json", module=EDGE).objects[0]

    def stop(self) -> int | None:
        """End the run in order; its exit status."""
        status = None
        for process in (self.process, self.source):
            if process is not None:
                process.terminate()
                status = process.wait(120) if status is None else status
                if process is self.source:
                    process.wait(120)
        self.process = self.source = None
        return status


@dataclass
class Flywheel:
    """A running cloud with devices; see ``flywheel``."""

    folder: Path
    broker: Tls
    bundle: Path
    hpc: Path
    devices: list[Device] = field(default_factory=list)

    @property
    def store(self) -> str:
        """The store's URL."""
        return f"sqlite:{self.folder / 'fleet.sqlite'}"

    def start(self, device: Device, rows: Rows, *, interval_s: float, times: int = 1, goes_on: bool = False) -> None:
        """Have a device decide over these rows; ``goes_on``: at their end it waits for more."""
        replay = device.folder / "rows.csv"
        rows.write(replay, times)
        words = ["run", "--store", device.folder / "store", "--broker", self.broker.url, "--ca", self.broker.ca,
                 "--identity", device.folder / "identity", "--sensors", f"replay:{'-' if goes_on else replay}",
                 "--audit", AUDITED, "--outbox", "64M", "--drift", "watch", "--interval", interval_s]  # fmt: skip
        if goes_on:
            tail = ["tail", "-n", "+1", "-s", str(STAND_IN_S), "-f", str(replay)]
            device.source = subprocess.Popen(tail, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with (device.folder / "decisions").open("wb") as out, (device.folder / "said").open("wb") as err:
            device.process = subprocess.Popen(
                [sys.executable, "-m", EDGE, *map(str, words)],
                stdin=None if device.source is None else device.source.stdout, stdout=out, stderr=err,
            )  # fmt: skip
        if device.source is not None and device.source.stdout is not None:
            device.source.stdout.close()  # the device has it

    def meet(self, rows: Rows, places: NDArray[np.int64], *, interval_s: float) -> list[dict[str, Any]]:
        """Devices decide over these rows.

        Parameters
        ----------
        places : (n,) the number of the device that each row comes to

        Returns
        -------
        the decisions in the order of the rows; the store has all records
        """
        before = self.in_store()["decision"]
        parts = [np.flatnonzero(places == k) for k in range(len(self.devices))]
        for device, part in zip(self.devices, parts, strict=True):
            self.start(device, rows.some(part), interval_s=interval_s, goes_on=True)
        until(lambda: all(d.n_decisions >= len(p) for d, p in zip(self.devices, parts, strict=True)), 300)
        until(lambda: self.in_store()["decision"] - before >= len(rows))
        time.sleep(SETTLE_S)  # for the audits of the last decisions
        decisions: list[dict[str, Any]] = [{}] * len(rows)
        for device, part in zip(self.devices, parts, strict=True):
            assert device.stop() == 0, device.said
            for k, decision in zip(part.tolist(), device.decisions, strict=True):
                decisions[k] = decision
        self._settle()
        return decisions

    def _settle(self) -> None:
        """Until two looks at the store, a while apart, find the same records."""
        last: Counter[str] = Counter()
        while (now := self.in_store()) != last:
            last = now
            time.sleep(SETTLE_S)

    def in_store(self) -> Counter[str]:
        """How many records of each kind the store has."""
        return Counter(kind for (kind,) in self._read("SELECT kind FROM records"))

    def labels(self) -> dict[str, int]:
        """How many labels each source has given."""
        return dict(self._read(BY_SOURCE))

    def _read(self, query: str) -> list[Any]:
        if not (self.folder / "fleet.sqlite").exists():
            return []
        database = Database(self.store, makes=False)
        try:
            return list(database.read(query))
        finally:
            database.close()

    def people_label(self, rows: Rows, most: int | None = None, seed: int = 0) -> list[int]:
        """A person says what is true of audits and cases, ``most`` of them at most; the row of each."""
        names = self._carried()
        table = np.column_stack([rows.features[name] for name in names])
        spread, table = np.nanstd(table, axis=0) + 1e-9, np.nan_to_num(table, nan=UNLIKE)
        file, found = io.StringIO(newline=""), list[int]()
        writer = csv.writer(file)
        writer.writerow(["device", "boot", "sequence", "label"])
        waiting = sorted(self._read(WAITING))
        if most is not None and most < len(waiting):
            waiting = [waiting[k] for k in np.random.default_rng(seed).permutation(len(waiting))[:most]]
        for device, boot, sequence, _, text in waiting:
            readings = np.array([UNLIKE if x is None else x for x in json.loads(text)["readings"]], dtype=np.float64)
            away = np.abs((table - readings) / spread).mean(axis=1)
            nearest = int(away.argmin())
            assert away[nearest] < 1e-3, "no row has these readings"
            found.append(nearest)
            writer.writerow([device, boot, sequence, rows.truth[nearest]])
        path = self.folder / "labels.csv"
        path.write_text(file.getvalue())
        ask_here("cloud", "label", "--store", self.store, "--bundle", self.bundle, "--labels", path)
        return found

    def _carried(self) -> list[str]:
        loaded = load_bundle(self.bundle)
        return [loaded.manifest.features[f] for f in loaded.machine.program.uplink.features]

    def retrain(self, config: Path, out: Path, *more: object, rolls_out: bool = True, here: bool = False) -> Ran:
        """``hardcase cloud retrain``, whose bundle goes to a canary and then to all; or which makes it alone."""
        words: list[object] = ["cloud", "retrain", config, "--store", self.store, "--bundle", self.bundle, "--hpc",
                               self.hpc, "--audited", AUDITED, "--out", out, "--json", *more]  # fmt: skip
        if rolls_out:
            words += ["--metadata", self.folder / "fleet", "--group", GROUP, "--canary", "1", "--ca", self.broker.ca,
                      "--broker", self.broker.url_of("updater")]  # fmt: skip
        return (ask_here if here else ask)(*words, may_end_with=(0, 1, 2))

    def close(self) -> None:
        """End the devices."""
        for device in self.devices:
            device.stop()


@contextmanager
def flywheel(folder: Path, bundle: Path, hpc: Path) -> Iterator[Flywheel]:
    """A cloud, and three devices that have this bundle in their stores and do not run yet."""
    with ExitStack() as stack:
        broker = stack.enter_context(mutual_tls(folder, store="store", updater="updater"))
        loop = Flywheel(folder, broker, bundle, hpc)
        stack.callback(loop.close)
        ask_here("keys", "init", folder / "fleet")
        ask_here("keys", "sign", folder / "fleet", bundle)
        for name in DEVICES:
            device = Device(name, folder / name)
            ask_here("ca", "device", broker.authority.folder, name, "--out", device.folder / "identity")
            ask_here("store", "trust", device.folder / "store", folder / "fleet" / "1.root.json", main=edge)
            ask_here("store", "put", device.folder / "store", bundle, "--metadata", folder / "fleet", main=edge)
            loop.devices.append(device)
        (folder / "devices.txt").write_text("".join(f"{name}\n" for name in DEVICES))
        words = ["--devices", folder / "devices.txt", "--store", loop.store]
        ask_here("cloud", "rollout", "group", GROUP, *words)
        tls = ["--ca", str(broker.ca), "--json"]
        served = (
            ["cloud", "worker", "--hpc", str(hpc), "--broker", broker.url_of("worker"), "--cases", loop.store, *tls],
            ["cloud", "store", "--store", loop.store, "--broker", broker.url_of("store"), *tls],
            ["cloud", "label", "--store", loop.store, "--hpc", str(hpc), "--bundle", str(bundle), "--json"],
        )
        for each in served:
            stack.enter_context(command(*each)).wait_for("ready")
        yield loop
