# SPDX-License-Identifier: Apache-2.0
"""Wheels with the kernel: compiled by Zig for each processor, installed, and replayed on Debian's Python for it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hardcase.flashing import kernels, wheels
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.sources import FOLDER
from hardcase_export.zig import can_compile
from tests.golden.make_golden import GOLDEN
from tests.helpers.edge.machines import python_of

REPLAY = """
import platform, sys
from hardcase_edge.kernel.machine import EVALUATORS, open_machine
from hardcase_edge.bundle.golden import run_case
from hardcase_edge.bundle.load import load_bundle
bundle = load_bundle(sys.argv[1]).bundle
for name in EVALUATORS:
    machine = open_machine(bundle.program, name)
    print(platform.machine(), name, [run_case(machine, c) == c.expected for c in bundle.golden].count(True))
"""
INFO = "hardcase_edge-0.1.0.dist-info"


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for all machines, as make wheels builds it, with the package's modules and no more."""
    package = FOLDER.parent
    files = {f"hardcase_edge/{p.relative_to(package)}": p.read_bytes() for p in package.rglob("*.py")}
    files[f"{INFO}/METADATA"] = b"Metadata-Version: 2.1\nName: hardcase-edge\nVersion: 0.1.0\n"
    files[f"{INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
    files[f"{INFO}/RECORD"] = b""
    path = tmp_path_factory.mktemp("dist") / "hardcase_edge-0.1.0-py3-none-any.whl"
    path.write_bytes(wheels.zip_of(files))
    return path


@pytest.mark.parametrize(
    ("processor", "machine", "debian"),
    [
        pytest.param("aarch64", "aarch64", "arm64", id="aarch64"),
        pytest.param("armv6", "armv7l", "armhf", id="armhf"),
        pytest.param("x86_64", "x86_64", "", id="x86_64"),
    ],
)
def test_a_wheel_as_installed_passes_its_golden_cases(
    processor: str, machine: str, debian: str, pure: Path, tmp_path: Path
) -> None:
    python = python_of(debian) if debian else [sys.executable, "-B"]
    if not can_compile():
        pytest.skip("ziglang: pip install ziglang")
    kernel = kernels.compile_kernel(processor)
    assert (b"arm1176jzf-s" in kernel) == (processor == "armv6")  # the oldest Pi's, not that of Debian's compiler
    name, data = wheels.wheel_with(pure, processor, kernel)
    (tmp_path / name).write_bytes(data)
    if not debian:  # pip itself judges the tags of this machine's wheel, and every digest
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(tmp_path / "site"), str(tmp_path / name)], check=True, timeout=120)
    else:
        with zipfile.ZipFile(tmp_path / name) as archive:
            archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [*python, "-c", REPLAY, str(GOLDEN)], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.stdout == f"{machine} kernel 64\n{machine} python 64\n", done.stderr


def test_a_wheel_says_for_whom_it_is_and_lists_every_file(pure: Path) -> None:
    kernel = b"\x7fELF\x01\x01\x01" + bytes(11) + (40).to_bytes(2, "little") + bytes(99)
    name, data = wheels.wheel_with(pure, "armv6", kernel)
    assert name == "hardcase_edge-0.1.0-cp311-abi3-linux_armv6l.manylinux_2_17_armv7l.whl"
    assert wheels.wheel_with(pure, "armv6", kernel) == (name, data)
    with zipfile.ZipFile(__import__("io").BytesIO(data)) as archive:
        tags = archive.read(f"{INFO}/WHEEL").decode().splitlines()
        listed = [line.split(",")[0] for line in archive.read(f"{INFO}/RECORD").decode().splitlines()]
        assert sorted(listed) == sorted(archive.namelist())
    assert tags == [
        "Wheel-Version: 1.0", "Generator: x", "Root-Is-Purelib: false", "Tag: cp311-abi3-linux_armv6l",
        "Tag: cp311-abi3-manylinux_2_17_armv7l",
    ]  # fmt: skip


def test_only_a_wheel_for_all_machines_is_taken(tmp_path: Path) -> None:
    kernel = b"\x7fELF\x02\x01\x01" + bytes(11) + (183).to_bytes(2, "little")
    with pytest.raises(InputError, match="is not a wheel for all machines"):
        wheels.wheel_with(tmp_path / "x-1-cp311-abi3-any.whl", "aarch64", kernel)
