# SPDX-License-Identifier: Apache-2.0
"""What the commands of ``hardcase cloud`` share: events as lines, log messages as lines, and signals that stop them."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from hardcase_edge.base.escape import terminal

__all__ = ["log_lines", "on_stop_signals", "say", "warn", "without_attempts"]


class _Lines(logging.Formatter):
    """Each message on one line, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        return terminal(super().format(record))


def log_lines() -> None:
    """Have log messages on standard error, one line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("hardcase cloud: %(message)s"))
    logging.basicConfig(handlers=[handler])


def without_attempts() -> None:
    """Keep quiet of attempts to connect until ``log_lines``: the error at the start says what is wrong."""
    logging.getLogger("hardcase_cloud.mqtt.attempts").addHandler(logging.NullHandler())


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call this at SIGTERM and Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def warn(text: str) -> None:
    """Print a line of warning to standard error."""
    print(terminal(f"hardcase cloud: {text}"), file=sys.stderr, flush=True)


saying = threading.Lock()  # events come from several threads


def say(as_json: bool, event: str, fields: dict[str, Any]) -> None:
    """Print one line to stdout; if its reader is gone or its disk is full, continue without output."""
    if as_json:
        line = json.dumps({"event": event, **fields})
    else:
        line = terminal(f"{event}: " + ", ".join(f"{key} {value}" for key, value in fields.items()))
    with saying:
        try:
            print(line, flush=True)
        except OSError:  # on a supervisor's thread too, which must go on
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
