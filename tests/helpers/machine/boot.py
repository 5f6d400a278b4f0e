# SPDX-License-Identifier: Apache-2.0
"""Boots a flashed image in the emulated machine and shows its console with the journal, for ``make machine DO=boot``.

A flashed card's first start ends with a restart, which ends QEMU; it is started again then. Ctrl-C and SIGTERM end
both. The guest reaches the loopback of this machine as 10.0.2.2.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from .emulator import Machine

JOURNAL = "systemd.journald.forward_to_console=1"
LOOK_S = 0.2


def boot(base: Path, card: Path) -> None:
    """Run the card until it is stopped; what the machine prints goes to standard output."""
    with tempfile.TemporaryDirectory() as folder, Machine(base, Path(folder), card) as machine:
        while True:
            machine.power_on(JOURNAL)
            shown, is_last = 0, False
            while not is_last:
                is_last = not machine.is_on
                text = machine.console()
                print(text[shown:], end="", flush=True)
                shown = len(text)
                time.sleep(LOOK_S)
            print("\n--- the machine has restarted ---", flush=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # each ends QEMU and removes its folder
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        boot(Path("build/machine"), Path(sys.argv[1]))
