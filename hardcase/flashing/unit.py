# SPDX-License-Identifier: Apache-2.0
"""The systemd unit of a card: the flashed command, as a user of its own, started again when it fails."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["unit"]


def unit(command: Sequence[str]) -> str:
    """The unit's text.

    >>> [line for line in unit(["/bin/x", "100%"]).splitlines() if line.startswith("ExecStart")]
    ['ExecStart="/bin/x" "100%%"']
    """
    words = [w.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") for w in command]
    return f"""\
[Unit]
Description=hardcase: decisions at the edge
StartLimitIntervalSec=0

[Service]
ExecStart={" ".join(f'"{word}"' for word in words)}
DynamicUser=yes
StateDirectory=hardcase
WorkingDirectory=/var/lib/hardcase
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
