# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of what training on the hydraulic rig writes, by method: the same before and after a change of layout alone.

    python tests/house/identity.py FOLDER [CLONE] [METHOD ...]

trains every method of the clone (default: this one) with seed 0 into FOLDER and prints a line per method: the bundle of
its most accurate policy, and everything else in the build folder. The last line is the golden bundle.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
METHODS = ("static", "cascade", "adapt-gbrt", "adapt-lin", "adapt-lstsq", "l1", "greedy-miser", "budget-prune", "dag",
           "lp-tree")  # fmt: skip
SOURCES = ("edge_runtime", "train", "export", "cloud_stub", ".")
GROUPS = {"PS*": ("PS",), "flow": ("FS", "EPS"), "heat": ("TS", "CE", "CP"), "rest": ("VS", "SE")}  # lp-tree takes four


def digest(paths: list[Path]) -> str:
    """Of these files' names and bytes."""
    out = sha256()
    for path in sorted(paths):
        out.update(path.name.encode() + path.read_bytes())
    return out.hexdigest()


def four_sensors(text: str, data: Path) -> str:
    """The rig's configuration with its sensors in four groups."""
    head = text.partition("[[sensor]]")[0].replace('file = "', f'file = "{data}/')
    names = re.findall(r'^name = "(\w+)"', text.partition("[[sensor]]")[2], re.M)
    groups = ([n for n in names if n.startswith(prefixes)] for prefixes in GROUPS.values())
    sensors = (
        f'[[sensor]]\nname = "group {k}"\ncost = {10 * k + 10}\nfeatures = {[f"{n}.*" for n in group]}\n'
        for k, group in enumerate(groups)
    )
    return head + "".join(sensors).replace("'", '"')


def main(folder: Path, clone: Path, methods: tuple[str, ...]) -> None:
    """Train, export, print."""
    paths = [str(clone / source) for source in SOURCES]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    rig = clone / "examples" / "hydraulic" / "hardcase.toml"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "four.toml").write_text(four_sensors(rig.read_text(), rig.parent))

    def hardcase(*words: object) -> None:
        command = [sys.executable, "-m", "hardcase.cli", *map(str, words)]
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr.strip().splitlines()[-1])

    for method in methods:
        build, bundle = folder / method, folder / f"{method}.hcb"
        config = folder / "four.toml" if method == "lp-tree" else rig
        hardcase("train", config, "--seed", 0, "--method", method, "--no-baselines", "--out", build, "--quiet")
        hardcase("export", build, "--method", method, "--budget", 1e9, "--min-agreement", 0.5, "--out", bundle)
        files = [p for p in build.rglob("*") if p.is_file() and p.suffix != ".svg"]
        print(f"{method:14s} bundle {digest([bundle])[:16]}  build {digest(files)[:16]}", flush=True)
    golden = clone / "tests" / "golden" / "v1.hcb"
    print(f"{'golden':14s} bundle {sha256(golden.read_bytes()).hexdigest()[:16]}")


if __name__ == "__main__":
    given = [word for word in sys.argv[2:] if word not in METHODS]
    chosen = tuple(word for word in sys.argv[2:] if word in METHODS) or METHODS
    main(Path(sys.argv[1]).resolve(), Path(given[0]).resolve() if given else HERE, chosen)
