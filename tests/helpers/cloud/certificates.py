# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for tests, and certificates of any time: for loopback, for a device, and long expired."""

from __future__ import annotations

from pathlib import Path
from time import time

from cryptography.hazmat.primitives.serialization import Encoding

from hardcase_cloud.rollout.enrolment.certificates import Purpose, issue, key_pem, make_authority, make_key


class Authority:
    """An authority in a folder: ``ca.pem``, and a ``NAME.pem`` with a ``NAME.key`` for each ``issue``."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self.folder, self.ca = folder, folder / "ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self._own = make_authority(name, now=int(time()), days=40_000)
        self.ca.write_bytes(self._own.pem)

    def issue(
        self, name: str, host: str = "127.0.0.1", *, purpose: Purpose = "server", begin_days: float = 0.0,
        days: float = 1.0,
    ) -> Path:  # fmt: skip
        """A certificate that is valid from so many days from now on for so many days; its path. Others may read it."""
        key, path = make_key(), self.folder / f"{name}.pem"
        begin = int(time() + begin_days * 86_400)
        made = issue(self._own, key.public_key(), name, purpose=purpose, now=begin, days=days, hosts=[host])
        path.write_bytes(made.public_bytes(Encoding.PEM))
        path.with_suffix(".key").write_bytes(key_pem(key))
        for file in (path, path.with_suffix(".key")):
            file.chmod(0o644)  # a broker that runs as another user reads them
        return path
