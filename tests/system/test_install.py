# SPDX-License-Identifier: Apache-2.0
"""The device's distribution stands alone: in a fresh environment, with nothing but paho-mqtt, it decides."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from hardcase_edge.bundle.signature import make_keys, sign
from tests.helpers.places import ROOT

GOLDEN = ROOT / "tests" / "golden" / "v1.hcb"
CONSTRAINTS = ["-c", str(ROOT / "constraints.txt")]


def build(source: Path, out: Path) -> Path:
    """Makes the wheel of a folder in another, by this environment's setuptools."""
    words = ["--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", str(out), str(source)]
    subprocess.run([sys.executable, "-m", "build", *words], check=True, capture_output=True, timeout=240)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment's bin folder, with the device's wheel installed."""
    folder = tmp_path_factory.mktemp("device")
    built = build(ROOT / "edge_runtime", folder)
    venv.create(folder / "venv")
    install = [*pip(folder / "venv" / "bin"), "install", "--quiet", *CONSTRAINTS, str(built)]
    subprocess.run(install, check=True, capture_output=True, timeout=240)
    return folder / "venv" / "bin"


def pip(device: Path) -> list[str]:
    """This environment's pip, which installs into the other one: to make one there takes longer than the rest."""
    return [sys.executable, "-m", "pip", "--python", str(device / "python"), "--disable-pip-version-check"]


def test_nothing_but_paho_comes_along(device: Path) -> None:
    listed = subprocess.run([*pip(device), "list", "--format=json"], check=True, capture_output=True, timeout=60)
    assert {p["name"].lower() for p in json.loads(listed.stdout)} == {"hardcase-edge", "paho-mqtt"}


def test_an_installed_device_verifies_and_decides(device: Path, tmp_path: Path) -> None:
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


def test_a_device_without_cryptography_checks_signatures(device: Path, tmp_path: Path) -> None:
    private, public = make_keys()
    bundle = tmp_path / "model.hcb"
    bundle.write_bytes(GOLDEN.read_bytes())
    (tmp_path / "key.pub").write_bytes(public)
    command = [str(device / "hardcase-edge"), "verify", str(bundle), "--trust", str(tmp_path / "key.pub"), "--json"]
    (tmp_path / "model.hcb.sig").write_bytes(sign(GOLDEN.read_bytes(), private))
    checked = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(checked.stdout)["signed"] == "by the trusted key"
    (tmp_path / "model.hcb.sig").write_bytes(bytes(64))
    refused = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert refused.stderr == "hardcase-edge: the bundle is not signed by the trusted key; do not use it\n"


def test_the_unit_of_an_installed_device_starts_that_device(device: Path) -> None:
    command = [str(device / "hardcase-edge"), "service", "run", "--store", "/var/lib/hardcase", "--sensors", "thermal:"]
    text = subprocess.run(command, check=True, capture_output=True, timeout=60, text=True).stdout
    assert f"\nExecStart={device}/hardcase-edge run --store /var/lib/hardcase --sensors thermal:\n" in text


@pytest.mark.parametrize(("folder", "package"), [(".", "hardcase"), ("cloud_stub", "hardcase_cloud")])
def test_a_wheel_has_every_file_of_its_package(folder: str, package: str, tmp_path: Path) -> None:
    copied = tmp_path / "source"
    copied.mkdir()
    for name in ("pyproject.toml", "README.md"):
        if (ROOT / folder / name).exists():
            shutil.copy(ROOT / folder / name, copied)
    shutil.copytree(ROOT / folder / package, copied / package, ignore=shutil.ignore_patterns("__pycache__"))
    built = build(copied, tmp_path)
    files = {path.relative_to(copied).as_posix() for path in (copied / package).rglob("*") if path.is_file()}
    assert any(name.endswith((".jinja", ".html")) for name in files)
    assert files <= set(zipfile.ZipFile(built).namelist())
