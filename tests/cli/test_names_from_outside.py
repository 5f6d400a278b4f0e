# SPDX-License-Identifier: Apache-2.0
"""Names of columns, classes, categories and units may hold anything; no terminal, page or file shows it raw."""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase.api.policy import Policy
from hardcase.cli import main
from hardcase_edge.base.escape import NO_BREAK, PUNCTUATION, json_line, markdown, markup, terminal
from hardcase_edge.base.toml import toml_value
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.cli import main as edge
from tests.helpers.cli.pages import read_page

STEER, COLOUR, LINE, TURN = "\x1b[2J\x1b]0;owned\x07", "\x9b31mred", "a\nhardcase: all is well", "\u202eevil"
LINK = "|`x`|[y](http://z.example)<i>*b*"
UNIT = f"{STEER}<b>u&</b>{LINK}"
PARTS = st.sampled_from((STEER, COLOUR, LINE, TURN, LINK, "www.", "\ud800"))
names = st.text(max_size=30) | st.lists(PARTS, max_size=4).map("".join)


def replaced(name: str, shown: str) -> set[str]:
    """What stands in place of the characters that are not as they were; each character stands in its place."""
    return {b for a, b in zip(name, shown, strict=True) if a != b}


# ---------------------------------------------------------------- one function for each medium


@given(names)
def test_a_terminal_gets_one_line_of_what_is_printed(name: str) -> None:
    shown = terminal(name)
    assert all(c.isprintable() or c == NO_BREAK for c in shown)
    assert replaced(name, shown) <= {"?"}


@given(st.dictionaries(names, names | st.integers() | st.none()))
def test_a_line_of_json_is_printed_and_means_the_same(value: dict[str, str | int | None]) -> None:
    assert json_line(value).isprintable()
    assert json.loads(json_line(value)) == value


@given(names)
def test_markdown_has_no_meaning_left_in_a_name(name: str) -> None:
    shown = markdown(name)
    assert "\n" not in shown
    assert not set("<>") & set(shown)
    plain = re.sub(r"\\(.)|&(lt|gt|amp);", "", shown)  # what is neither escaped nor an entity
    assert not PUNCTUATION & set(plain)
    assert not re.search(r"www\.", shown, re.IGNORECASE)
    assert TURN[0] not in shown


@given(names)
def test_markup_is_the_text_again_without_what_cannot_be_shown(name: str) -> None:
    page = read_page(f'<p title="{markup(name)}">{markup(name)}</p>')
    assert [tag for tag, _ in page.elements] == ["p"]
    assert page.elements[0][1]["title"] == page.text
    assert replaced(name, page.text) <= {"\ufffd"}


@given(names.filter(lambda name: "\ud800" not in name))
def test_a_toml_has_a_name_as_it_is_and_shows_what_is_printed(name: str) -> None:
    line = f"name = {toml_value(name)}"
    assert line.isprintable()
    assert tomllib.loads(line) == {"name": name}


def test_a_table_whose_path_toml_cannot_hold_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / os.fsdecode(b"d\xff.csv")
    path.write_text("a,y\n" + "1,0\n2,1\n" * 40)
    assert main(["init", str(path), "--out", str(tmp_path / "hardcase.toml")]) == 2
    assert capfd.readouterr().err == "hardcase init: the value of file is not UTF-8; leave out what is not\n"
    assert not (tmp_path / "hardcase.toml").exists()


# ---------------------------------------------------------------- from init to a device


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose columns, classes and texts have such names."""
    folder = tmp_path_factory.mktemp("names")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    x = np.round(y[:, None] + rng.normal(size=(150, 2)) * 0.3, 3)
    classes, texts = (COLOUR, LINE, LINK + TURN), ("calm" + TURN, STEER)
    with open(folder / "data.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([STEER, COLOUR, TURN, LINK, "y"])
        for k in range(150):
            writer.writerow([*x[k], texts[k % 2], k % 7, classes[y[k]]])
    return folder


def test_nothing_from_init_to_a_device_shows_a_name_raw(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toml, build, bundle = folder / "hardcase.toml", folder / "build", folder / "model.hcb"

    def shown(run: object, *argv: object, status: int = 0) -> str:
        assert run([str(a) for a in argv]) == status  # type: ignore[operator]
        out, err = capfd.readouterr()
        for line in (out + err).replace("\r", "\n").split("\n"):  # a bar returns to the start of its line
            assert terminal(line) == line
            assert not line.startswith("hardcase: ")  # the line that a name would add
        return out + err

    assert "?[2J" in shown(main, "init", folder / "data.csv", "--out", toml)
    for line in toml.read_text(encoding="utf-8").splitlines():
        assert terminal(line) == line
    text = toml.read_text(encoding="utf-8").replace('unit = "unit"', f"unit = {toml_value(UNIT)}")
    text = text.replace("HistGradientBoostingClassifier", "LogisticRegression").replace(
        "default_sensor", "default_sensor"
    )
    toml.write_text(text, encoding="utf-8")
    trained = shown(main, "train", toml, "--out", build, "--method", "static", "--no-baselines", "--effort", "quick")
    assert "?[2J" in trained
    assert "?[2J" in shown(main, "export", build, "--out", bundle, "--min-agreement", "0", "--verbose")
    assert set(load_bundle(bundle).manifest.classes) == {COLOUR, LINE, LINK + TURN}
    for verb in ("inspect", "evaluate"):
        rows = [build / "test.npz"] if verb == "evaluate" else []
        assert "?" in shown(main, verb, bundle, *rows)
        assert json.loads(shown(main, verb, bundle, *rows, "--json"))
    assert "?[2J" in shown(edge, "verify", bundle)
    assert json.loads(shown(edge, "verify", bundle, "--json"))["unit"] == UNIT
    decided = shown(edge, "run", bundle, "--sensors", f"replay:{folder / 'data.csv'}", "--count", "3")
    assert {json.loads(line)["label"] for line in decided.splitlines()} <= {COLOUR, LINE, LINK + TURN}
    shown_in_python = repr(Policy(build, max_loss=1)) + Policy(build, max_loss=1).front.table()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown_in_python)
    page = (build / "front.md").read_text(encoding="utf-8")
    assert markdown(UNIT) in page
    assert UNIT not in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]|<b>|(?<!\\)`x|(?<!\\)\[y", page)
    report = read_page((build / "report.html").read_text(encoding="utf-8"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", report.text)
    svg = (build / "front.svg").read_text(encoding="utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]|<b>", svg)
