# SPDX-License-Identifier: Apache-2.0
"""What users are told where they would walk into a trap, by the commands that they type (docs/benchmarks/traps.md).

    HARDCASE_DATA=FOLDER python -m benchmarks run traps

Three tables are written from Covertype and from windows of a phone's accelerometer: a class of one row in 200, one of
one row in 33, and 36 people, whose column is named ``user``. Each goes through ``init``, ``train --effort quick`` and
``export --max-loss 0.01``; what they say is printed, with the bytes of the build folder.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 20_000  # of Covertype
FEATURES = 10  # of it: those that are numbers


def write_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """A table by columns."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def tables(data: Path, folder: Path) -> list[Path]:
    """Write the three tables."""
    cover, paths = np.load(data / "covertype_sample.npz"), []
    some = np.random.default_rng(0).permutation(len(cover["y"]))[:ROWS]
    readings = {str(n): cover["X"][some, k].tolist() for k, n in enumerate(cover["feature_names"][:FEATURES])}
    for name, number in (("cottonwood", 3), ("douglas", 5)):
        labels = [name if label == number else "other" for label in cover["y"][some].tolist()]
        paths.append(folder / f"{name}.csv")
        write_csv(paths[-1], {**readings, "cover": labels})
    walks = np.load(data / "wisdm_transformed.npz")
    columns = {
        str(n): ["" if v != v else f"{v:g}" for v in walks["X"][:, k].tolist()]
        for k, n in enumerate(walks["feature_names"])
    }
    users, activities = ([f"U{u}" for u in walks["user"]], [str(walks["class_names"][k]) for k in walks["y"]])
    paths.append(folder / "walks.csv")
    write_csv(paths[-1], {**columns, "user": users, "activity": activities})
    return paths


def say(folder: Path, *words: str) -> None:
    """Print a command and what it prints."""
    print(f"\n$ hardcase {' '.join(words)}", flush=True)
    command = [sys.executable, "-m", "hardcase.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(f"{done.stdout}{done.stderr}".rstrip(), f"[status {done.returncode}]", flush=True)


def run(args: Any) -> None:
    """Run the commands on each table."""
    with tempfile.TemporaryDirectory(prefix="hardcase-traps-") as place:
        folder = Path(place)
        for path in tables(Path(os.environ["HARDCASE_DATA"]), folder):
            name = path.stem
            for more in ((), ("--no-group",)) if name == "walks" else ((),):
                say(folder, "init", path.name, "--out", f"{name}.toml", *more, "--force")
                say(folder, "train", f"{name}.toml", "--out", name, "--effort", "quick", "--quiet", "--jobs", "1")
                size = sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file())
                print(f"{size:,} bytes in {name}")
                say(folder, "export", name, "--max-loss", "0.01", "--out", f"{name}.hcb")
