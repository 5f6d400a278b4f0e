# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a store, served on a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hardcase_cloud.keep.dashboard.app import make_app
from hardcase_cloud.keep.dashboard.bundles import Known
from hardcase_cloud.keep.dashboard.figures import Figures
from hardcase_cloud.keep.dashboard.server import Server
from hardcase_cloud.keep.records.database import Database


@contextmanager
def serving(url: str, token: str, *bundles: Known) -> Iterator[tuple[str, int]]:
    """Where it listens while the block runs."""
    database = Database(url)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(make_app(Figures(database, None, bundles), token))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        server.stop()
        thread.join(10)
        listener.close()
        database.close()
