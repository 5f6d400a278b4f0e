# SPDX-License-Identifier: Apache-2.0
"""The device's distribution stands alone: in a fresh environment, with nothing but paho-mqtt, it decides."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.helpers.places import ROOT

GOLDEN = ROOT / "tests" / "golden" / "v1.hcb"


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment's bin folder, with the device's wheel installed."""
    folder = tmp_path_factory.mktemp("device")
    wheel = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT / "edge_runtime")]
    subprocess.run(wheel, check=True, capture_output=True, timeout=240)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    (built,) = folder.glob("*.whl")
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(built)]
    subprocess.run(install, check=True, capture_output=True, timeout=240)
    return python.parent


def test_nothing_but_paho_comes_along(device: Path) -> None:
    listed = subprocess.run(
        [str(device / "python"), "-m", "pip", "list", "--format=json"], check=True, capture_output=True, timeout=60
    )
    names = {p["name"].lower() for p in json.loads(listed.stdout)}
    assert names - {"pip", "setuptools"} == {"hardcase-edge", "paho-mqtt"}


def test_it_verifies_and_decides_there(device: Path, tmp_path: Path) -> None:
    verified = subprocess.run(
        [str(device / "hardcase-edge"), "verify", str(GOLDEN), "--json"], check=True, capture_output=True, timeout=60
    )
    report = json.loads(verified.stdout)
    assert report["golden"] > 0, report
    assert report["evaluator"] == ("kernel" if shutil.which("cc") else "python")
    script = f"""
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.bundle.golden import run_case
loaded = load_bundle({str(GOLDEN)!r})
print([run_case(loaded.machine, c) == c.expected for c in loaded.bundle.golden].count(True))
"""
    made = subprocess.run([str(device / "python"), "-c", script], check=True, capture_output=True, timeout=60)
    assert int(made.stdout) == report["golden"]


def test_a_device_that_cannot_check_a_signature_refuses_the_bundle(device: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "model.hcb"
    bundle.write_bytes(GOLDEN.read_bytes())
    (tmp_path / "model.hcb.sig").write_bytes(bytes(64))
    (tmp_path / "key.pub").write_text("-----BEGIN PUBLIC KEY-----\n")
    refused = subprocess.run(
        [str(device / "hardcase-edge"), "verify", str(bundle), "--trust", str(tmp_path / "key.pub")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 2
    assert "cryptography" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_the_unit_of_an_installed_device_starts_that_device(device: Path) -> None:
    command = [str(device / "hardcase-edge"), "service", "run", "--store", "/var/lib/hardcase", "--sensors", "thermal:"]
    text = subprocess.run(command, check=True, capture_output=True, timeout=60, text=True).stdout
    assert f"\nExecStart={device}/hardcase-edge run --store /var/lib/hardcase --sensors thermal:\n" in text
