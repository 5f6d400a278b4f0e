# SPDX-License-Identifier: Apache-2.0
"""Freezes what the program writes, and compares it later, byte for byte: for changes that must change nothing.

    python -m tests.golden.freeze --save FOLDER [--only PART]       makes FOLDER, in some ten minutes
    python -m tests.golden.freeze --compare FOLDER [--only PART]    a line for each file that differs; status 1 if any

PART is ``trainings`` (from shipped tables to builds, bundles and C, with each command's ``--json``), ``replays``
(fleets in virtual time: digests of seeds 0 to 20, and every event of seed 0) or ``runs`` (decision lines of a device
alone, and of one with a broker, a worker and a store, up to the store's Parquet). ``TOLD_BY_CLOCKS`` names all that is
left out, because a clock, the machine or chance says it; everything else is compared as it is.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from lightgbm import LGBMClassifier
from pyarrow.csv import write_csv
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

from hardcase.demo.processes import Process, start_broker, start_worker
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.parquet import write_parquet
from hardcase_cloud.sim.fleet.scenario import read_scenario
from hardcase_cloud.sim.replay.world import World
from tests.helpers.export.own_models import dense_file

ROOT = Path(__file__).resolve().parents[2]
TOLD_BY_CLOCKS = frozenset({
    "t", "latency_ms",  # of decision lines and records
    "at", "boot", "received", "time",  # of records: a first boot has a number by chance
    "worst_decision_ms",  # of verify: by the speed of this machine
})  # fmt: skip
WINE = """
cost = {unit = "mJ", uplink = {per_request = 100.0, per_byte = 0.02}}
hpc = {estimator = "ExtraTreesClassifier", params = {n_estimators = 30}}
data = {file = "wine.csv", target = "cultivar"}
policy = {methods = ["auto"], effort = "quick"}
sensor = [
  {name = "cheap", features = ["alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium"], cost = 5.0},
  {name = "phenols", features = ["total_phenols", "flavanoids", "nonflavanoid_phenols"], cost = 30.0},
  {name = "rest", features = ["proanthocyanins", "color_intensity", "hue", "od280*", "proline"], cost = 60.0},
]
"""
TRAININGS = {  # by name: the table's settings, flags of its training, and the flags of each of its exports
    "wine": ("wine.toml", [], {
        "loss": ["--max-loss", "0.02"], "cascade": ["--method", "cascade", "--prices", "--monitors"],
        "mixed": ["--budget", "40"], "asks": ["--method", "adapt-gbrt", "--max-loss", "0"],
    }),
    "stream": ("streams/hardcase.toml", [], {
        "held": ["--method", "held", "--max-loss", "0.04"], "atypical": ["--method", "cascade", "--atypical", "0.1"],
    }),
    "values": ("hydraulic/values.toml", ["--effort", "quick"], {"cascade": ["--method", "cascade"]}),
    "codes": ("labels/hardcase.toml", [], {"chain": []}),
    **{name: (f"{name}.toml", ["--method", "cascade"], {"cascade": ["--method", "cascade"]})
       for name in ("rank", "groups", "sizes", "legacy", "given")},
    "own": ("own.toml", ["--method", "static"], {
        "own": ["--method", "own", "--max-loss", "1"], "promise": ["--risk", "0.3", "--delta", "0.2"],
    }),
}  # fmt: skip
CASK = 'target = "cultivar", group = "cask"'
VARIANTS = {  # settings of WINE by name: what stands in place of what
    "rank": {'target = "cultivar"': f'{CASK}, task = "rank", drop = ["bottles"]', "TreesClassifier": "TreesRegressor"},
    "groups": {'target = "cultivar"': f'{CASK}, drop = ["bottles"]'},
    "sizes": {
        'target = "cultivar"': 'target = "cultivar", item_size = "bottles", drop = ["cask"]',
        "cost = 60.0": "cost = [20.0, 40.0]",
    },
    "legacy": {WINE.splitlines()[2]: 'hpc = {table = "legacy.csv", name = "taster"}'},
    "given": {WINE.splitlines()[2]: 'hpc = {model = "taster.txt"}'},
    "own": {"\nsensor = [": '\nlpc = {tflite = "own.tflite", sensors = ["cheap"]}\nsensor = ['},
}


def trainings(folder: Path) -> None:
    """Builds, bundles and C sources of each training, and what the commands say of them."""
    wine = load_wine()
    table, names = np.column_stack([wine.data, wine.target]), ",".join([*wine.feature_names, "cultivar"])
    np.savetxt(folder / "wine.csv", table, "%.17g", ",", header=names, comments="")
    (folder / "wine.toml").write_text(WINE)
    for example in ("streams", "hydraulic", "labels"):  # here, so that no path tells where the repository is
        shutil.copytree(ROOT / "examples" / example, folder / example)
    write_variants(folder, wine.data, wine.target)
    write_csv(pq.read_table(folder / "labels/labels.parquet").slice(4400), folder / "codes.csv")
    for name, (settings, training, exports) in TRAININGS.items():
        rows = "codes.csv" if name == "codes" else f"{name}/test.npz"
        command(folder, f"{name}.train.json", "train", settings, "--out", name, "--json", "--quiet", *training)
        for export, flags in exports.items():
            bundle = f"{name}.{export}.hcb"
            command(folder, f"{bundle}.json", "export", name, "--out", bundle, "--json", *flags)
            command(folder, f"{bundle}.inspect.json", "inspect", bundle, "--json")
            command(folder, f"{bundle}.evaluate.json", "evaluate", bundle, rows, "--json")
            command(folder, f"{bundle}.verify.json", "verify", bundle, "--json")
    command(folder, "import.json", "export", "--model", "taster.txt", "--out", "import.hcb", "--json")
    command(folder, "firmware.json", "export", "wine", "--c", "firmware", "--json", "--method", "cascade")


def write_variants(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Settings of ``VARIANTS``, and what they read: casks and bottles, a taster as table and model, a small network."""
    text, k = (folder / "wine.csv").read_text().splitlines(), range(len(X))
    more = ["cask,bottles", *(f"{n % 40},{1 + n % 4}" for n in k)]
    (folder / "more.csv").write_text("".join(f"{a},{b}\n" for a, b in zip(more, text, strict=True)))
    told = [y[n - n % 9] for n in k]  # by the legacy system, mostly right: rows are in the order of classes
    sure = [",".join("0.8" if c == said else "0.1" for c in range(3)) for said in told]
    legacy = ["p:0,p:1,p:2,used:rest", *(f"{p},{n % 2}" for n, p in enumerate(sure))]
    (folder / "legacy.csv").write_text("\n".join(legacy) + "\n")
    taster = LGBMClassifier(n_estimators=10, n_jobs=1, verbose=-1, random_state=0)
    taster.fit(X, y, feature_name=text[0].split(",")[:-1]).booster_.save_model(folder / "taster.txt")
    small = LogisticRegression(max_iter=5000).fit(X[:, :5], y)
    (folder / "own.tflite").write_bytes(dense_file(small.coef_.tolist(), small.intercept_.tolist()))
    for name, changes in VARIANTS.items():
        settings = WINE.replace('["auto"]', '["cascade"]')
        for old, new in changes.items():
            settings = settings.replace(old, new)
        file = "more.csv" if name in ("rank", "groups", "sizes") else "wine.csv"
        (folder / f"{name}.toml").write_text(settings.replace("wine.csv", file))


def replays(folder: Path) -> None:
    """Of two scenarios the report of each seed, which has the digest of all events, and the events of seed 0."""
    for name in ("small", "rollout"):
        scenario = ROOT / f"examples/fleet/{name}.toml"
        command(folder, f"{name}.replay.json", "fleet", "replay", scenario, "--seeds", "21", "--json")
        with open(folder / f"{name}.events.txt", "wb") as file:
            world = World(read_scenario(str(scenario)), 0)
            note = world.referee.note
            world.referee.note = lambda event, note=note, file=file: note(event) or file.write(event + b"\n")
            world.run()
            world.keeper.close()


def runs(folder: Path) -> None:
    """Decision lines of devices over the bundles of ``trainings``: alone, and with all of the demo's cloud."""
    wine, stream = ["--sensors", "replay:wine.csv"], ["--sensors", "replay:streams/occupancy.csv"]
    for export in TRAININGS["wine"][2]:
        command(folder, f"wine.{export}.lines", "run", f"wine.{export}.hcb", *wine, "--coin-seed", "7")
    command(folder, "wine.strict.lines", "run", "wine.cascade.hcb", *wine, "--strict-range", "--budget", "36")
    command(folder, "wine.lame.lines", "run", "wine.cascade.hcb", *wine, "--sensors", "phenols=none")
    command(folder, "stream.lines", "run", "stream.held.hcb", *stream, "--count", "500")
    command(folder, "codes.lines", "run", "codes.chain.hcb", "--sensors", "replay:codes.csv", "--budget", "3")
    cloud(folder, "wine.cloud.lines", "wine.asks.hcb", *wine, "--publish", "all", "--audit", "100%")


def cloud(folder: Path, to: str, *words: object) -> None:
    """A run with broker, worker and store, and what the store has of it: records, CSV, and Parquet as text."""
    with tempfile.TemporaryDirectory() as aside:
        broker, url = start_broker(folder / "wine/hpc.onnx")
        store = Process(
            "the store", "hardcase.cli", ["cloud", "store", "--out", f"{aside}/db", "--broker", url, "--json"]
        )
        store.event("ready")
        parts = [store, start_worker(url, folder / "wine/hpc.onnx"), broker]
        outbox = ["--outbox", "4M", "--outbox-folder", f"{aside}/outbox", "--interval", "0.02"]
        try:
            command(
                folder, to, "run", *words, "--broker", url, "--device-id", "pi-1", "--deadline-ms", "20000", *outbox
            )
        finally:
            for part in parts:
                part.stop()
        database = Database(f"{aside}/db")
        write_parquet(database, f"{aside}/parquet")
        table = pq.read_table(f"{aside}/parquet")
        with open(f"{aside}/csv", "w+", encoding="utf-8", newline="") as file:
            database.export(file)
            file.seek(0)
            write_json(folder / "store.csv.json", list(csv.DictReader(file)))
        write_json(folder / "store.parquet.json", [{f.name: str(f.type) for f in table.schema}, *table.to_pylist()])
        records = database.read("SELECT record FROM records ORDER BY sequence")
        write_json(folder / "store.records.json", [json.loads(row[0]) for row in records])
        database.close()


def command(folder: Path, to: str, verb: str, *words: object) -> None:
    """Run a command in the folder, and keep what it prints there."""
    module = "hardcase_edge.cli" if verb in ("run", "verify") else "hardcase.cli"
    line = [sys.executable, "-m", module, verb, *map(str, words)]
    done = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, check=True)
    write_json(folder / to, [json.loads(line) for line in done.stdout.splitlines()])


def write_json(path: Path, objects: list[dict[str, Any]]) -> None:
    """Objects as lines, without ``TOLD_BY_CLOCKS``."""
    lines = (json.dumps({key: value for key, value in o.items() if key not in TOLD_BY_CLOCKS}) for o in objects)
    path.write_text("".join(f"{line}\n" for line in lines))


def difference(before: Path, now: Path) -> str:
    """Where two files differ first; "" where they do not."""
    if not before.is_file() or not now.is_file():
        return "is new" if now.is_file() else "is not there any more"
    lines = zip_longest(before.read_bytes().split(b"\n"), now.read_bytes().split(b"\n"), fillvalue=b"")
    for k, (a, b) in enumerate(lines, 1):
        if a != b:
            at = max(0, next(i for i in range(len(a) + len(b)) if a[: i + 1] != b[: i + 1]) - 40)
            return f"line {k}: ...{a[at : at + 100]!r} before, ...{b[at : at + 100]!r} now"
    return ""


PARTS = (trainings, replays, runs)


def main() -> int:
    """Save, or make all again and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    act = parser.add_mutually_exclusive_group(required=True)
    act.add_argument("--save", type=Path, metavar="FOLDER")
    act.add_argument("--compare", type=Path, metavar="FOLDER")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS])
    args = parser.parse_args()
    parts = [part for part in PARTS if args.only in (None, part.__name__)]
    with tempfile.TemporaryDirectory() as temporary:
        now = args.save or Path(temporary)
        if args.save is not None:
            now.mkdir(parents=True)
        elif args.only == "runs":
            shutil.copytree(args.compare, now, dirs_exist_ok=True)
        for part in parts:
            part(now)
        if args.save is not None:
            return 0
        found = {p.relative_to(f) for f in (args.compare, now) for p in f.rglob("*") if p.is_file()}
        files = sorted(p for p in found if p.suffix != ".pyc")  # which Python writes or not, as the environment says
        made = [path for path in files if args.only is None or (now / path).is_file()]
        told = {path: text for path in made if (text := difference(args.compare / path, now / path))}
    for path, text in told.items():
        print(f"{path}: {text}")
    print(f"{len(made)} files, {len(told)} of them differ")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
