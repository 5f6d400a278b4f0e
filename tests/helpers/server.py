# SPDX-License-Identifier: Apache-2.0
"""A server on a free loopback port that says what a test wants, however wrong it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Server:
    """Talks to whoever connects, one after the other, while the block runs; who hangs up is forgotten.

    ``talk`` gets a connection whose calls wait 30 seconds at most.
    """

    def __init__(self, talk: Callable[[socket.socket], object]) -> None:
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer, suppress(OSError):
                peer.settimeout(30)
                self._talk(peer)
