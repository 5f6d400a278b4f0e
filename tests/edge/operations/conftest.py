# SPDX-License-Identifier: Apache-2.0
"""Signals of the tests in this room."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _hangups_are_heard() -> Iterator[None]:
    """Also where the tests themselves run under nohup, which devices would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
