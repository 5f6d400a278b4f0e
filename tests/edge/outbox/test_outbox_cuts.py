# SPDX-License-Identifier: Apache-2.0
"""What the cuts on ext4 look at: a folder shows what its outbox committed, and a damaged or shortened one shows it."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.edge.outbox_cuts import commits, seen_in
from tests.helpers.edge.store_cuts import MEMORY


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else tmp_path) as folder:
        yield Path(folder)


def run(folder: Path, n_steps: int) -> object:
    """What is right behind so many steps."""
    folder.mkdir()
    steps = commits(folder)
    views = list(itertools.islice(steps, n_steps))
    steps.close()
    return views[-1]()


@pytest.mark.parametrize("n_steps", [1, 2, 3, 14, 70])
def test_a_folder_shows_what_was_committed(memory: Path, n_steps: int) -> None:
    expected = run(memory / "run", n_steps)
    assert seen_in(memory / "run") == expected


def test_a_lost_record_or_page_is_seen(memory: Path) -> None:
    expected = run(memory / "run", 14)
    shutil.copytree(memory / "run", memory / "lost")
    with sqlite3.connect(memory / "lost" / "outbox.sqlite") as database:
        database.execute("DELETE FROM records WHERE id = (SELECT max(id) FROM records)")
    database.close()
    assert seen_in(memory / "lost") != expected
    path = memory / "run" / "outbox.sqlite"
    path.write_bytes(path.read_bytes()[:20_000])
    assert seen_in(memory / "run") != expected
