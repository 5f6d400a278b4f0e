# SPDX-License-Identifier: Apache-2.0
"""Targets of an export: each is found by its hook, and all have made their files before one file is written."""

from __future__ import annotations

import re
import runpy
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from hardcase.api.policy import Policy
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from hardcase_export.own_targets import BUNDLE
from hardcase_export.targets import Source, targets
from hardcase_export.to_micropython.folder import exchange_module
from tests.golden.make_golden import GOLDEN
from tests.helpers.export.builds import make_build
from tests.helpers.hooks import install
from tests.helpers.places import ROOT
from tests.helpers.train.problems import run

NAMES = ["arduino", "c", "esphome", "js", "micropython", "onnx", "tflite", "zephyr"]
PLUGIN = ROOT / "examples" / "plugin"
pytestmark = pytest.mark.usefixtures("no_compiler")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_build(tmp_path_factory.mktemp("targets") / "build")
    (folder / "front.svg").write_text("<svg/>")  # a picture, which only a policy in Python shows
    return folder


def stranger(site: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """A package with a target ``strange``, whose ``make`` has this body."""
    head = (
        "from hardcase_export.targets import MODELS, Output, Target\n"
        f"def make(source, folder, switches):\n    {source}\nX = Target('also write strange files', make, MODELS)\n"
    )
    install(site, monkeypatch, "stranger_t", "targets", {"strange": "stranger_t:X"}, head)


def test_the_targets_of_this_project_are_found_by_their_hook() -> None:
    assert list(targets()) == NAMES


def test_the_example_of_a_package_of_ones_own_writes_its_file_and_is_short(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    source = (PLUGIN / "hardcase_mermaid.py").read_text()
    assert len(source.splitlines()) <= 42
    install(
        tmp_path / "site",
        monkeypatch,
        "hardcase_mermaid",
        "targets",
        project["entry-points"]["hardcase.targets"],
        source,
    )
    status, said, err = run(capsys, "export", build, "--budget", 100, "--mermaid", tmp_path / "out")
    assert (status, err) == (0, "")
    drawn = (tmp_path / "out" / "policy.mmd").read_text()
    assert drawn.startswith("flowchart TD\n")
    assert "read " in drawn
    assert "answer by scorer" in drawn
    entries = said["models"][str(tmp_path / "out")]
    assert entries == [{"file": "policy.mmd", "bytes": len(drawn)}]
    assert Policy(build, budget=100).export_to("mermaid", tmp_path / "again").files["policy.mmd"].decode() == drawn


def test_a_name_in_the_flow_chart_is_text_and_no_directive_of_mermaid() -> None:
    loaded = load_bundle(GOLDEN)
    names = ('a"]\n%%{init: {"themeCSS": "x"}}%%', "<b>#quot;", "c;\nclick n0 call x()")
    source = Source(b"", replace(loaded, manifest=replace(loaded.manifest, sensors=names)))
    drawn = runpy.run_path(str(PLUGIN / "hardcase_mermaid.py"))["make"](source, Path("out"), frozenset()).files
    assert "#60;b#62;#35;quot#59;" in drawn["policy.mmd"].decode()
    for line in drawn["policy.mmd"].decode().split("\n")[1:-1]:
        assert re.fullmatch(r'  n\d+(\["(\w|[ ,.()-]|#\d+;)+"\]| -->\|[\w ]+\| n\d+)', line)


def test_no_file_is_written_if_one_target_cannot_be_made(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger(tmp_path / "site", monkeypatch, "from hardcase_edge.errors import InputError; raise InputError('no room')")
    flags = ("--onnx", tmp_path / "onnx", "--out", tmp_path / "x.hcb", "--c", tmp_path / "c")
    status, _, err = run(capsys, "export", build, "--budget", 100, *flags, "--strange", tmp_path / "strange")
    assert (status, err) == (2, "hardcase export: no room\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


def test_a_bundle_and_c_sources_of_one_point_are_written_together(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.hcb"
    status, said, err = run(capsys, "export", build, "--budget", 100, "--out", out, "--c", tmp_path / "c")
    assert (status, err) == (0, "")
    assert said["bundle"] == str(out)
    assert (tmp_path / "c" / BUNDLE).read_bytes() == out.read_bytes()


def test_files_of_c_that_the_user_has_edited_stay_and_others_are_made_anew(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "c"
    assert run(capsys, "export", build, "--budget", 100, "--c", folder)[0] == 0
    (folder / "main.c").write_text("mine")
    (folder / "model.h").write_text("not mine")
    before = (folder / "sensors.h").read_text()
    assert run(capsys, "export", build, "--budget", 100, "--c", folder)[0] == 0
    assert (folder / "main.c").read_text() == "mine"
    assert (folder / "model.h").read_text() != "not mine"
    assert (folder / "sensors.h").read_text() == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--inline", "--out", "x.hcb"), "--inline requires --c"),
        (("--onnx", "d", "--c", "d"), "--c and --onnx both name d; give each a folder of its own"),
    ],
)
def test_targets_that_contradict_each_other_are_one_line(
    flags: tuple[str, ...], said: str, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, "export", build, "--budget", 100, *flags)
    assert (status, err) == (2, f"hardcase export: {said}\n")


@pytest.mark.parametrize(
    "more",
    [
        ("--tflite", "d"), ("--max-loss", "0.1", "--c", "d"), ("--key", "k.key", "--c", "d"),
        ("--monitors", "--c", "d"), ("--atypical", "0.1", "--onnx", "d"), ("--min-agreement", "0", "--onnx", "d"), (),
    ],
)  # fmt: skip
def test_of_a_bundle_not_everything_is_made(
    more: tuple[str, ...],
    build: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "export", build, "--budget", 100, "--out", "x.hcb")[0] == 0
    status, _, err = run(capsys, "export", "x.hcb", *more)
    assert (status, err) == (
        2,
        "hardcase export: x.hcb is a bundle; only --arduino, --c, --inline, --esphome, --js, --micropython, "
        "--onnx and --zephyr apply\n",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.hcb"]


def test_a_target_whose_flag_is_taken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "from hardcase_export.targets import MODELS, Target\nX = Target('x', None, MODELS)\n"
    install(tmp_path / "site", monkeypatch, "stranger_o", "targets", {"out": "stranger_o:X"}, source)
    status, _, err = run(capsys, "export", "build")
    said = "hardcase: the target 'out' of stranger_o (stranger_o:X) cannot have the flag '--out'; uninstall it\n"
    assert (status, err) == (2, said)


@pytest.mark.parametrize(
    ("name", "switches", "said"),
    [
        ("wasm", (), f"there is no target 'wasm'; name one of: {', '.join(NAMES)}"),
        ("onnx", ("inline",), "the target onnx has no switch 'inline'; it has none at all"),
    ],
)
def test_a_target_or_switch_that_there_is_not_is_named(
    name: str, switches: tuple[str, ...], said: str, build: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        Policy(build, budget=100).export_to(name, tmp_path / "out", *switches)


def test_a_signed_bundle_in_a_folder_of_c_has_its_signature_beside_it(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "keygen", "--out", tmp_path / "k")[0] == 0
    flags = ("--budget", 100, "--key", tmp_path / "k.key")
    assert run(capsys, "export", build, *flags, "--out", tmp_path / "x.hcb")[0] == 0
    assert run(capsys, "export", build, *flags, "--c", tmp_path / "c")[0] == 0
    assert run(capsys, "export", tmp_path / "x.hcb", "--c", tmp_path / "of-bundle")[0] == 0
    for folder in ("c", "of-bundle"):
        assert (tmp_path / folder / f"{BUNDLE}.sig").read_bytes() == (tmp_path / "x.hcb.sig").read_bytes()


def test_the_exchange_for_micropython_imports_what_a_board_has() -> None:
    lines = exchange_module().splitlines()
    imported = [line for line in lines if line.lstrip().startswith(("import ", "from "))]
    assert imported == [f"from .python import {name}" for name in ("logging", "deque", "record")]
