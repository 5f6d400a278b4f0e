# SPDX-License-Identifier: Apache-2.0
"""Progress bars on stderr, shown only on a terminal: of rows that are decided, or of time that passes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from hardcase_export.integers.decide import watching

TICK_S = 0.5


@contextmanager
def rows_bar(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[None]:
    """A progress bar of the rows that are decided meanwhile; on stderr, only on a terminal, and not if ``quiet``."""
    with tqdm(total=total, desc=what, unit=" rows", disable=quiet or None, leave=False) as bar, watching(bar.update):
        yield


@contextmanager
def clock_bar(what: str) -> Iterator[None]:
    """The time that has passed, for work that does not know how much of it is left."""
    done = threading.Event()
    with tqdm(desc=what, bar_format="{desc}: {elapsed}", disable=None, leave=False) as bar:

        def tick() -> None:
            while not done.wait(TICK_S):
                bar.refresh()

        clock = threading.Thread(target=tick, daemon=True)
        if not bar.disable:
            clock.start()
        try:
            yield
        finally:
            done.set()
            if clock.is_alive():
                clock.join()
