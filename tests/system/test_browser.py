# SPDX-License-Identifier: Apache-2.0
"""Reports in a real browser: no script of a hostile name runs, nothing leaves the page, light and dark differ."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from hardcase.cli import main
from hardcase_edge.bundle.file import unpack_bundle
from tests.helpers.cli.browser import BROWSER, FLAGS
from tests.helpers.cli.pages import HOSTILE, hostile_table, hostile_toml, read_page
from tests.helpers.tools import need
from tests.helpers.train.problems import toml, write_csv

DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of a table with hostile names, with the picture of its pick."""
    need(BROWSER)
    folder = tmp_path_factory.mktemp("browser")
    write_csv(folder / "data.csv", hostile_table(120))
    path = toml(folder, hostile_toml())
    assert main(["train", str(path), "--out", str(folder / "build"), "--effort", "quick", "--quiet"]) == 0
    bundle, svg = folder / "build" / "model.hcb", folder / "build" / "policy.svg"
    assert main(["export", str(folder / "build"), "--out", str(bundle), "--min-agreement", "0"]) == 0
    assert main(["inspect", str(bundle), "--svg", str(svg), "--rows", str(folder / "build" / "test.npz")]) == 0
    assert any(HOSTILE[0] in name for name in unpack_bundle(bundle.read_bytes()).manifest["features"])
    return folder / "build"


def browse(path: Path, folder: Path, *flags: str) -> str:
    """What the browser prints for a page."""
    command = [
        BROWSER, *FLAGS, "--virtual-time-budget=2000", f"--user-data-dir={folder / 'profile'}", *flags, path.as_uri(),
    ]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    assert made.returncode == 0, made.stderr[-500:]
    return made.stdout


def test_the_page_after_all_its_scripts_is_the_page_that_was_written(build: Path, tmp_path: Path) -> None:
    before = read_page((build / "report.html").read_text(encoding="utf-8"))
    after = read_page(browse(build / "report.html", tmp_path, "--dump-dom"))
    assert [tag for tag, _ in after.elements] == [tag for tag, _ in before.elements]
    assert after.text.split() == before.text.split()
    assert after.text.strip().startswith("data.csv: y")


def test_a_script_in_a_page_of_ours_would_not_run(build: Path, tmp_path: Path) -> None:
    """The policy in the page's head stops what escaping would have let through."""
    html = (build / "report.html").read_text(encoding="utf-8")
    attack = HOSTILE[0] + '<img src="data:," onerror="document.title = \'owned\'">'
    for name, text in (("with", html), ("without", html.replace("http-equiv", "data-was"))):
        (tmp_path / f"{name}.html").write_text(text.replace("<main>", f"<main>{attack}"), encoding="utf-8")
    titles = [
        browse(tmp_path / f"{name}.html", tmp_path, "--dump-dom").partition("<title>")[2].partition("</title>")[0]
        for name in ("with", "without")
    ]
    assert titles == ["data.csv: y", "owned"]


@pytest.mark.parametrize("name", ["report.html", "policy.svg"])
def test_a_report_is_drawn_in_light_and_in_dark(build: Path, tmp_path: Path, name: str) -> None:
    corners = []
    for flags in ((), (DARK,)):
        browse(build / name, tmp_path, f"--screenshot={tmp_path / 'shot.png'}", "--window-size=900,700", *flags)
        corner, colours = look_at(tmp_path / "shot.png")
        assert colours > 60  # text is drawn, with soft edges
        corners.append(sum(corner))
    assert corners[0] > 3 * 245
    assert corners[1] < 3 * 40


def look_at(path: Path) -> tuple[tuple[int, ...], int]:
    """The colour of a picture's first pixel, and how many different bytes its rows have."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        parts += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    rows = zlib.decompress(parts)
    return tuple(rows[1:4]), len(set(rows))
