# SPDX-License-Identifier: Apache-2.0
"""``hardcase-edge doctor`` says what is there, what is not, and builds the kernel where it was not built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hardcase_edge.cli import main
from hardcase_edge.device import doctor
from hardcase_edge.errors import InputError
from hardcase_edge.kernel.machine import VARIABLE
from tests.helpers.places import ROOT

PACKAGE = Path(doctor.__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "v1.hcb"


def test_every_part_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    report = json.loads(capfd.readouterr().out)
    assert status == bool(report.pop("faults")), "a machine may have faults of its own"
    assert list(report) == ["hardcase-edge", "python", "evaluator", "compiler", "paho-mqtt", "tflite"]
    assert all(value and "\n" not in value for value in report.values())


def test_what_is_missing_comes_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(doctor, "_compiler", lambda: None)
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    monkeypatch.setattr(doctor, "_tflite", lambda: None)
    monkeypatch.setattr(doctor, "has_kernel", lambda: False)
    report = doctor.examine()
    assert report["evaluator"].startswith("python; for the kernel, install a C compiler")
    assert "pip install paho-mqtt" in report["paho-mqtt"]
    assert "tflite-runtime" in report["tflite"]
    with pytest.raises(InputError, match="the kernel needs a C compiler"):
        doctor.build_kernel()


def test_a_forced_evaluator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "python")
    assert doctor.examine()["evaluator"] == "python (set by HARDCASE_EVALUATOR)"


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is needed: apt install gcc python3-dev")
def test_a_device_without_the_kernel_builds_it(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "hardcase_edge", ignore=shutil.ignore_patterns("*.so"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop(VARIABLE, None)

    def edge(*words: str) -> dict[str, str]:
        command = [sys.executable, "-m", "hardcase_edge.cli", *words, "--json"]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=120, check=False)
        assert done.returncode in (0, 1), done.stderr  # 1: the machine has faults of its own
        report: dict[str, str] = json.loads(done.stdout)
        return report

    assert edge("doctor")["evaluator"].startswith("python; for the kernel, run: hardcase-edge doctor --build")
    assert edge("verify", str(GOLDEN))["evaluator"] == "python"
    assert edge("doctor", "--build")["evaluator"] == "kernel"
    assert edge("verify", str(GOLDEN))["evaluator"] == "kernel"
