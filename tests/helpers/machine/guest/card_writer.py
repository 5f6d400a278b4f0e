# SPDX-License-Identifier: Apache-2.0
"""The first process of a machine whose power is cut: it puts release after release into the card's store.

The console has a line for what runs at the start, and for each step after its file is on the disk:

    BACK ...                    a trial has failed at this start, and why
    RUNS 1.7 TRUSTS 7           the release of the slot that runs, and the version of the trusted targets
    PUT 8, GOOD 8               the release was received, and its trial has passed
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STORE = "/var/lib/hardcase"


def say(text: str) -> None:
    """A line on the console."""
    os.write(1, f"{text}\n".encode())


def main() -> None:
    """Mount what a system mounts, then write until the power is cut."""
    for words in ("-t proc proc /proc", "-o remount,rw /", "-t tmpfs tmp /tmp"):
        subprocess.run(["/bin/mount", *words.split()], check=True)
    sys.path.insert(0, str(HERE))
    from hardcase_edge.fleet.store.folder import Store
    from hardcase_edge.fleet.store.receive import receive
    from hardcase_edge.fleet.store.slots import passed
    from hardcase_edge.fleet.store.trust import trust_from

    store = Store(STORE)
    started = store.start()
    targets = trust_from(store.trust() or b"").targets
    for note in started.notes:
        say(f"BACK {note}")
    say(f"RUNS {'.'.join(map(str, started.slot.release))} TRUSTS {targets.version if targets else 0}")
    releases = zipfile.ZipFile(io.BytesIO((HERE / "releases.zip").read_bytes()))
    newest = store.slots().newest[1]
    if started.slot.state == "trial":
        store.apply(lambda slots: passed(slots, started.slot.sha256))
        say(f"GOOD {started.slot.release[1]}")
    for release in sorted({int(name.partition("/")[0]) for name in releases.namelist()}):
        if release <= newest:
            continue
        with tempfile.TemporaryDirectory() as folder:
            names = [name for name in releases.namelist() if name.startswith(f"{release}/")]
            releases.extractall(folder, names)
            place = Path(folder, str(release))
            receive(store, place / "model.hcb", metadata=place)
        say(f"PUT {release}")
        sha256 = store.start().slot.sha256
        store.apply(lambda slots, sha256=sha256: passed(slots, sha256))
        say(f"GOOD {release}")
    say("there are no more releases")
    while True:
        os.sync()


if __name__ == "__main__":
    main()
