# SPDX-License-Identifier: Apache-2.0
"""What an emulated device is flashed with and offered: bundles of a fleet, signed metadata, and two bad drivers."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

from hardcase_edge.bundle.file import Bundle, pack_bundle
from hardcase_edge.program.definition import Acquire
from tests.helpers.edge.device import make_bundle_bytes, make_manifest, make_program
from tests.helpers.edge.repository import Repository

DEVICE = "pi-1"
GUEST = Path(__file__).parent / "guest"


def crashing_bundle() -> bytes:
    """A bundle that reads both sensors for each decision, of which one crashes."""
    program = make_program()
    changed = replace(program, nodes=(Acquire((0, 1), 1, 3), *program.nodes[1:]))
    return pack_bundle(Bundle(make_manifest().to_json(), changed, ()))


class Fleet:
    """A folder with a first bundle, its metadata, and releases for the machine whose power is cut."""

    def __init__(self, folder: Path, n_releases: int) -> None:
        self.folder, self._repository = folder, Repository()
        (folder / "1.root.json").write_bytes(self._repository.roots[0])
        self.bundle, self.metadata = self.publish("first", make_bundle_bytes(name="first"))
        releases = io.BytesIO()
        with zipfile.ZipFile(releases, "w", zipfile.ZIP_DEFLATED) as archive:
            for release in range(2, n_releases + 2):
                data = make_bundle_bytes(name=f"release-{release}")
                archive.writestr(f"{release}/model.hcb", data)
                for name, text in self._repository.named(data).items():
                    archive.writestr(f"{release}/{name}", text)
        (folder / "releases.zip").write_bytes(releases.getvalue())

    def publish(self, name: str, data: bytes) -> tuple[Path, Path]:
        """A bundle's file, and the folder of the metadata that allow it and nothing else."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "model.hcb").write_bytes(data)
        return folder / "model.hcb", self._repository.write(folder / "metadata", data)

    def flash(self, card: Path, broker_port: int, module: str = "card_sensors") -> None:
        """``hardcase flash`` of the first bundle, with this module of sensors.

        Raises
        ------
        subprocess.CalledProcessError
            It ended with another status than 0.
        """
        run = (
            f"--sensors {module}:read --interval 0.25 --broker mqtt://10.0.2.2:{broker_port} --device-id {DEVICE} "
            "--publish all"
        )
        words = ["flash", self.bundle, card, "--root", self.folder / "1.root.json", "--metadata", self.metadata]
        words += ["--file", GUEST / f"{module}.py", "--file", GUEST / "card_writer.py"]
        words += ["--file", self.folder / "releases.zip", "--run", run]
        subprocess.run([sys.executable, "-m", "hardcase.cli", *map(str, words)], check=True)
