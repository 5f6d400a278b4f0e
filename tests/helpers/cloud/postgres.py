# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL of Debian in a temporary folder, on a Unix socket alone; as user postgres where tests run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SETTINGS = "-c listen_addresses='' -c shared_buffers=64MB -c max_connections=20 -c fsync={fsync}"


class Cluster:
    """A cluster and its folder; ``url`` names its database ``postgres``."""

    def __init__(self, folder: Path, *, flushes: bool) -> None:
        self.folder, self._flushes = folder, flushes
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self._pg_ctl = _find("pg_ctl")
        self._run(
            _find("initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8",
            "--locale=C",
        )  # fmt: skip

    def start(self) -> None:
        """Start, and return once it takes connections."""
        options = SETTINGS.format(fsync="on" if self._flushes else "off") + f" -c unix_socket_directories={self.folder}"
        self._run(
            self._pg_ctl, "-D", str(self.folder / "data"), "-o", options, "-l", str(self.folder / "log"), "-w", "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        """End it at once, as a crash would, or in another mode of pg_ctl."""
        self._run(self._pg_ctl, "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def empty(self) -> str:
        """Remove all tables; the URL."""
        words = ["-h", str(self.folder), "-U", "postgres", "-qc", "DROP SCHEMA public CASCADE; CREATE SCHEMA public"]
        self._run(_find("psql"), *words)
        return self.url

    def _run(self, *command: str) -> None:
        def become() -> None:
            if os.geteuid() == 0:
                user = pwd.getpwnam("postgres")
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)

        with tempfile.TemporaryFile("w+") as output:  # a file: the server would hold a pipe open
            done = subprocess.run(
                command, preexec_fn=become, cwd=self.folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                timeout=240, check=False,
            )  # fmt: skip
            output.seek(0)
            text = output.read()
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {text[-500:]}")


def _find(tool: str) -> str:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(tool, path=os.pathsep.join([*map(str, places), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"{tool}: apt install postgresql, or, as root, make toolchains")
    return found


@contextmanager
def running_postgres(*, flushes: bool = False) -> Iterator[Cluster]:
    """A cluster that runs while the block does. ``flushes``: commits are on the disk, as outside of tests."""
    folder = Path(tempfile.mkdtemp(prefix="hardcase-pg-"))
    try:
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres") if shutil.which("pg_ctl") or Path("/usr/lib/postgresql").exists() else None
            if user is None:
                _find("pg_ctl")
            else:
                os.chown(folder, user.pw_uid, user.pw_gid)
        cluster = Cluster(folder, flushes=flushes)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
