# SPDX-License-Identifier: Apache-2.0
"""The shortest trip from a table to a bundle, four walks through device and cloud, and what a job takes.

python -m benchmarks run trip      prints files and functions that run, what is loaded, CPU and rate of busy workers,
                                   and each distribution's lines
python -m benchmarks run trip --old COMMIT --turns 4      busy workers alone, of that commit and of these sources,
                                   by turns in one run, and the medians (the broker and the devices are these sources')

A walk is what runs between two readings of a device in steady state, on all threads: a reading to its line; a hard case
to the worker and back, with a mosquitto on loopback; an audit to the store, and from there to the rows of a retraining;
and an update, from its bundle to the device that says it is good, with the disk and network of the tests' lives.
That is more than the files that somebody opens to follow one: errors, records and whatever a connection does meanwhile
run as well. It is less, too: a refusal that does not come is not there, nor what only the start does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, suppress
from hashlib import sha256
from inspect import CO_OPTIMIZED
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np
import psutil
from sklearn.datasets import load_wine

from benchmarks.pages import ROOT

DISTRIBUTIONS = {
    "train": "train/hardcase_train", "export": "export/hardcase_export", "hardcase": "hardcase",
    "edge": "edge_runtime/hardcase_edge", "cloud": "cloud_stub/hardcase_cloud", "benchmarks": "benchmarks",
}  # fmt: skip


ASKING, BUSY_S = 64, 6.0  # devices that ask busy workers, and for how long
FIRST, LAST = 6, 8  # items of a walk between whose readings functions count
STEPS = {  # of a training, by the function with which the next step begins
    "make_task": "settings", "save_hpc": "table and f0", "learn": "f0 as ONNX", "write_build": "front",
    "told_of_cases": "build",
}  # fmt: skip
READS = """
import benchmarks.trip
items = 0
def read(sensor):
    global items
    items += sensor == "a"
    benchmarks.trip.Walk.now.is_open = {begin} <= items < {end}
    return [{value}]
"""
CHILD = """
import sys
words = sys.argv[1:]
if words[:1] == ["run"]:
    from hardcase_edge.cli import main
    assert main(words) == 0
else:
    for word in words:
        __import__(word)
import time
cpu = time.process_time()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
files = [m.__file__ or "" for name, m in sys.modules.items() if name.startswith("hardcase_edge")]
texts = [open(name, encoding="utf-8").read() for name in files if name.endswith(".py")]
lines = sum(text.count("\\n") for text in texts)
print(len(texts), lines, int(peak.split()[1]) / 1024, cpu, file=sys.stderr)
"""
LIBRARY = [
    "typing",
    "argparse",
    "json",
    "threading",
    "signal",
    "array",
    "struct",
    "bisect",
]  # of Python, which a plain job loads


class Walk:
    """The functions that ran while it was open, by file, on this thread and those that began after it."""

    now: Walk  # the last one, which also sees threads that an earlier one has seen begin

    def __init__(self, *, is_open: bool = True) -> None:
        self.functions: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.before: dict[str, tuple[int, int]] = {}  # functions and files that had run when a step began
        self.is_open = is_open
        Walk.now = self

    @staticmethod
    def _see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_function = code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<"  # no class body, no comprehension
        if Walk.now.is_open and event == "call" and is_function and "/hardcase" in code.co_filename:
            found = Walk.now.functions
            if code.co_name in STEPS:
                Walk.now.before.setdefault(code.co_name, (sum(map(len, found.values())), len(found)))
            found[code.co_filename].add((code.co_name, code.co_firstlineno))

    def __enter__(self) -> Walk:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        self.is_open = False

    def by_distribution(self) -> dict[str, tuple[int, int]]:
        """Files and functions of each distribution."""
        found = {}
        for name, folder in DISTRIBUTIONS.items():
            of_it = [f for path, f in self.functions.items() if Path(path).is_relative_to(ROOT / folder)]
            if of_it:
                found[name] = len(of_it), sum(map(len, of_it))
        return found


def tell(what: str, walk: Walk) -> None:
    """Print the figures of a walk, and the names of its files."""
    found = walk.by_distribution()
    files, functions = (sum(pair[k] for pair in found.values()) for k in (0, 1))
    print(f"{what}: {functions} functions run in {files} files")
    for name, folder in DISTRIBUTIONS.items():
        of_it = sorted(p.removeprefix(f"{ROOT / folder}/") for p in walk.functions if f"{ROOT / folder}/" in p)
        if of_it:
            print(f"  {name}, {len(of_it)}: {', '.join(of_it)}")


@contextmanager
def on_thread(call: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    """Runs on a thread of its own while the block does."""
    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(10)


@contextmanager
def silent() -> Iterator[None]:
    """Without the lines of a device, which writes them to the descriptor of standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def decide(folder: Path, what: str, value: float, end: int, words: list[str]) -> Walk:
    """The walk of a device that decides on readings of this value, until the reading of item ``end``."""
    from hardcase_edge.cli import main

    name = f"reads_{what}"
    (folder / f"{name}.py").write_text(READS.format(begin=FIRST, end=end, value=value))
    words = ["run", str(folder / "half.hcb"), "--sensors", f"{name}:read", *words]
    with silent(), Walk(is_open=False) as walk:
        assert main([*words, "--count", str(end + 1)]) == 0
    return walk


def walks(folder: Path) -> None:
    """Walk the four, and print each."""
    from hardcase.verbs.retrain.rows import read_rows
    from hardcase_cloud.answer.onnx_model import Hpc
    from hardcase_cloud.answer.service import Service
    from hardcase_cloud.answer.worker import Worker, default_group
    from hardcase_cloud.keep.records.database import Database
    from hardcase_cloud.keep.records.keeper import Keeper
    from hardcase_edge.bundle.file import pack_bundle
    from hardcase_edge.errors import InputError
    from hardcase_edge.link.address import parse_address
    from tests.helpers.cloud.brokers import running_mosquitto
    from tests.helpers.cloud.requests import half_forwarding, write_model
    from tests.helpers.edge.air_world import Life, world

    hpc = Hpc(write_model(folder))
    loaded = half_forwarding(hpc.sha256)
    (folder / "half.hcb").write_bytes(pack_bundle(loaded.bundle))
    sys.path.insert(0, str(folder))
    tell("a reading to its line", decide(folder, "alone", -1.0, LAST, []))
    store = f"sqlite:{folder / 's.sqlite'}"
    with running_mosquitto(folder) as broker, Walk(is_open=False):  # threads of the cloud begin before the walks
        address = parse_address(broker.url)
        keeper = Keeper(Database(store), address, note=print)
        worker = Worker(Service(hpc), address, default_group(hpc.sha256))
        worker.start()
        keeper.start()
        with on_thread(worker.run, worker.stop), on_thread(keeper.run, keeper.stop):
            words = ["--broker", broker.url, "--device-id", "pi-1", "--interval", "0.2"]
            tell("a hard case and back", decide(folder, "hard", 1.0, LAST, words))
            audits = ["--audit", "100%", "--outbox", "1M", "--outbox-folder", str(folder / "outbox")]
            walk = decide(folder, "audited", -1.0, LAST + 8, [*words, *audits])
    walk.is_open = True
    with walk, suppress(InputError):  # too few for a training
        read_rows(Namespace(store=store, rows=100, per_device=100, audited=None), [loaded])
    tell("an audit to the rows of a retraining", walk)
    with world():
        life = Life(folder / "life", 0)
        with life.disk(), Walk() as walk:
            life.settle()
    tell("an update", walk)


def loaded_by_a_job(folder: Path) -> None:
    """Print what a plain job loads, and what it takes, beside a bare Python and one with paho."""
    from tests.helpers.cloud.brokers import running_mosquitto
    from tests.helpers.cloud.certificates import Authority

    (folder / "plain.py").write_text("def read(sensor):\n    return [-1.0]\n")
    authority = Authority(folder / "authority")
    pem = authority.issue("server")
    keys = {"certfile": str(pem), "keyfile": str(pem.with_suffix(".key"))}
    job = ["run", "half.hcb", "--sensors", "plain:read", "--count", "1"]
    with running_mosquitto(folder / "plain") as broker, running_mosquitto(folder / "tls", **keys) as guarded:
        with_tls = ["--broker", f"mqtts://{guarded.host}:{guarded.port}", "--ca", str(authority.ca)]
        rows = {
            "bare Python": [], "bare Python with typing": ["typing"], "bare Python with a job's library": LIBRARY,
            "bare Python with paho": ["paho.mqtt.client"], "a plain job alone": job,
            "a plain job with a broker": [*job, "--broker", broker.url, "--device-id", "pi-1"],
            "a plain job with a broker and TLS": [*job, *with_tls, "--device-id", "pi-1"],
        }  # fmt: skip
        for what, words in rows.items():
            child = subprocess.run([sys.executable, "-c", CHILD, *words], capture_output=True, text=True, check=False)
            assert child.returncode == 0, child.stderr
            modules, lines, megabytes, cpu = map(float, child.stderr.splitlines()[-1].split())
            print(f"{what}: {modules:.0f} modules, {lines:,.0f} lines, {megabytes:.1f} MB, {cpu:.2f} s of CPU")


def busy_workers(folder: Path, n: int, sources: Path | None = None) -> tuple[float, float]:
    """Milliseconds of CPU that a request takes of ``n`` busy workers, and answers a second: devices ask all the time.

    The workers run the sources of this folder, a checkout of the project, in place of the installed ones.
    """
    from hardcase_cloud.sim.fleet.sockets import Fleet
    from hardcase_edge.device.machine import RuntimeConfig
    from tests.helpers.cloud.brokers import running_mosquitto
    from tests.helpers.cloud.requests import command, half_forwarding, write_model

    model = write_model(folder)
    loaded = half_forwarding(sha256(model.read_bytes()).hexdigest())
    paths = [str(sources / path) for path in (".", "edge_runtime", "train", "export", "cloud_stub")] if sources else []
    environment = {"PYTHONPATH": os.pathsep.join(paths)} if sources else None
    with TemporaryDirectory(dir=folder) as own, running_mosquitto(Path(own)) as broker, ExitStack() as stack:
        words = ("cloud", "worker", "--broker", broker.url, "--hpc", str(model), "--json")
        workers = [stack.enter_context(command(*words, environment=environment)) for _ in range(n)]
        for one in workers:
            one.wait_for("ready")
        processes = [psutil.Process(one.process.pid) for one in workers]
        before = [sum(process.cpu_times()[:2]) for process in processes]
        config = RuntimeConfig(interval_s=0.0, deadline_ms=10_000)
        fleet = Fleet(loaded, np.ones((8, 2), np.float32), broker.url, n_devices=ASKING, config=config, seconds=BUSY_S)
        fleet.start()
        fleet.wait(BUSY_S + 20)
        spent = sum(sum(p.cpu_times()[:2]) for p in processes) - sum(before)
        answered = fleet.journal.routes()["cloud"]
    return 1000 * spent / answered, answered / BUSY_S


def tell_workers(n: int, what: str, turns: list[tuple[float, float]]) -> None:
    """Print the medians of some turns."""
    spent, rate = (median(turn[k] for turn in turns) for k in (0, 1))
    print(
        f"{n} busy worker{'s' * (n > 1)}{what}, f0 in ONNX: {rate:,.0f} answers a second, {spent:.3f} ms of CPU each "
        f"(median of {len(turns)}; fleet, broker and workers share the machine)"
    )


def beside_old(commit: str, n_turns: int) -> None:
    """Print busy workers of a commit and of these sources, turn by turn."""
    with TemporaryDirectory() as holder, chdir(holder):  # a command finds the folder in which it runs before any other
        old = Path(holder) / "old"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(old), commit], check=True)
        try:
            for n in (1, 2):
                pairs = [(busy_workers(Path(holder), n, old), busy_workers(Path(holder), n)) for _ in range(n_turns)]
                for k, what in enumerate((f" of {commit}", " of these sources")):
                    tell_workers(n, what, [pair[k] for pair in pairs])
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(old)], check=True)


def arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--old", metavar="COMMIT", help="measure busy workers of this commit beside these sources")
    parser.add_argument("--turns", type=int, default=4, help="turns of each (default %(default)s)")


def run(args: Any) -> int:
    """Print the figures; 1 if the trip does not end with a bundle."""
    from hardcase.cli import main

    if args.old:
        beside_old(args.old, args.turns)
        return 0
    with TemporaryDirectory() as holder, chdir(holder):
        folder = Path(holder)
        wine = load_wine()
        rows = np.column_stack([wine.data, wine.target])
        head = ",".join([*(name.replace("/", " ") for name in wine.feature_names), "target"])
        np.savetxt(folder / "wine.csv", rows, delimiter=",", header=head, comments="", fmt="%g")
        assert main(["init", str(folder / "wine.csv"), "--target", "target"]) == 0
        verbs = {
            "train": ["train", str(folder / "hardcase.toml"), "--method", "static", "--effort", "quick", "--out"],
            "export": ["export", str(folder / "build"), "--force", "--out"],
        }
        for verb, words in verbs.items():
            before = set(sys.modules)
            with Walk() as walk:
                status = main([*words, str(folder / ("build" if verb == "train" else "wine.hcb"))])
            new = [m for m in sys.modules.keys() - before if m.startswith("hardcase")]
            found = walk.by_distribution()
            files, functions = (sum(pair[k] for pair in found.values()) for k in (0, 1))
            print(f"{verb}: {len(new)} files imported, {functions} functions run in {files} files")
            print("  " + ", ".join(f"{name} {n} in {m}" for name, (m, n) in found.items()))
            for name, (n, m) in walk.before.items():
                print(f"  until the end of {STEPS[name]}: {n} functions in {m} files")
            if status:
                return status
        walks(folder)
        loaded_by_a_job(folder)
        for n in (1, 2):
            tell_workers(n, "", [busy_workers(folder, n)])
    for name, path in DISTRIBUTIONS.items():
        lines = sum(len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / path).rglob("*.py"))
        print(f"{name}: {lines} lines of Python")
    return 0
