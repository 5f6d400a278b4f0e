# SPDX-License-Identifier: Apache-2.0
"""The flags of ``hardcase-edge run`` on drift and broken promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["ACT", "ALARM", "FORWARD", "add_arguments"]

WATCH, ACT = "watch", "act"
ALARM, FORWARD = "alarm", "forward"  # what to do about a broken promise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    group = parser.add_argument_group("drift")
    group.add_argument(
        "--drift",
        choices=(WATCH, ACT),
        help="test the bundle's promise with each audit, watch readings for drift and for sensors that fail slowly; "
        "act: also do without such a sensor where that is better (default: neither)",
    )
    group.add_argument(
        "--on-broken",
        choices=(ALARM, FORWARD),
        help="what to do when audits show that the bundle's promise is broken: report it, or also forward more "
        f"(default {ALARM})",
    )
