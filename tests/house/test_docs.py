# SPDX-License-Identifier: Apache-2.0
"""The pages say what is there: examples run, commands parse, links lead somewhere, no flag and no key is left out.

`make docs` builds the site and checks links and anchors once more; what the site needs is checked here without Sphinx.
"""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hardcase_edge.record_keys import KEYS
from hardcase_train.methods import AUTO, METHODS
from hardcase_train.settings.effort import EFFORTS
from tests.helpers.places import ROOT
from tests.helpers.train.problems import BRIEF
from tests.house import architecture, configuration, maturity, record_tables
from tests.house.commands import PARSERS, PLACE, leaves, listing

PAGES = sorted(
    [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
    + [p for folder in ("docs", "examples", "benchmarks") for p in (ROOT / folder).rglob("*.md")]
)
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[a-z]*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SENTENCE = re.compile(r"`((?:hardcase|hardcase-edge) [a-z][^`\n]*)`")


MOST_WORDS = 2_500  # of a guide
REFERENCES = {"glossary.md"}  # looked up, not read


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(*languages: str) -> list[object]:
    """(page, source) of every fenced block in one of these languages."""
    found = []
    for page in PAGES:
        for k, match in enumerate(m for m in BLOCK.finditer(text_of(page)) if m[1] in languages):
            found.append(pytest.param(match[2], id=f"{name(page)}-{k}"))
    assert found
    return found


def test_no_two_equations_have_one_number() -> None:
    pages = "".join(text_of(page) for page in sorted((ROOT / "docs").glob("math*.md")))
    numbers = re.findall(r"^    \((\d+)\)  ", pages, re.M)
    assert len(numbers) > 100
    assert sorted(numbers) == sorted(set(numbers))


# ---------------------------------------------------------------- examples

EXAMPLES = blocks("python")


@pytest.fixture
def _no_bundle_stays() -> Iterator[None]:
    yield
    for bundle in ROOT.glob("*.hcb"):
        bundle.unlink()


@pytest.mark.usefixtures("_no_bundle_stays")
def test_the_readmes_python_example_runs_in_a_new_process() -> None:
    command = [sys.executable, "-W", "error", "-c", EXAMPLES[0].values[0]]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert (made.returncode, bool(made.stdout)) == (0, True), made.stderr


@pytest.mark.usefixtures("_no_bundle_stays")
@pytest.mark.parametrize("source", EXAMPLES[1:])
def test_a_python_example_runs(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Modules are there already, which a new process of each took two seconds to import."""
    monkeypatch.setitem(EFFORTS, "quick", BRIEF)
    monkeypatch.chdir(ROOT)
    (tmp_path / "example.py").write_text(source)
    runpy.run_path(str(tmp_path / "example.py"), run_name="__main__")
    assert ("print(" in source) == bool(capsys.readouterr().out)


def commands(source: str) -> Iterator[list[str]]:
    """The words of each command of ours in a shell block, without a redirection of its output."""
    for line in source.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ ").partition(" > ")[0], comments=True)
        if words and words[0].rpartition("/")[2] in PARSERS:
            yield [words[0].rpartition("/")[2], *words[1:]]


@cache
def parser_of(program: str) -> argparse.ArgumentParser:
    return PARSERS[program]()


@pytest.mark.parametrize("source", blocks("sh", "console"))
def test_a_shown_command_parses(source: str) -> None:
    for program, *arguments in commands(source):
        parser_of(program).parse_args(arguments)  # ends with SystemExit where it does not


def test_the_commands_are_found() -> None:
    assert list(commands("$ edge/bin/hardcase-edge run x \\\n  --count 3  # three\nmake demo\n")) == [
        ["hardcase-edge", "run", "x", "--count", "3"]
    ]
    shown = [words for param in blocks("sh", "console") for words in commands(param.values[0])]  # type: ignore[attr-defined]
    assert len(shown) >= 15


def test_a_page_that_shows_a_wrong_flag_would_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PARSERS["hardcase"]().parse_args(["train", "hardcase.toml", "--out", "build", "--oot"])
    said = capsys.readouterr().err
    assert said == "hardcase: unrecognized arguments: --oot (did you mean '--out'?); see hardcase train --help\n"


def unknown(program: str, *words: str) -> list[str]:
    """The words of a command in a sentence, which may leave some out, that are no command or flag of the program."""
    parser, strange = parser_of(program), list[str]()
    for word in words:
        choices = next((a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
        flag = word.partition("=")[0]
        if choices and word in choices:
            parser = choices[word]
            continue
        is_flag = word[:1] == "-"
        is_known = any(flag in action.option_strings for action in parser._actions) if is_flag else not choices
        if not is_known:
            strange.append(word)
    return strange


def test_a_command_in_a_sentence_has_the_flags_that_it_names() -> None:
    named = {(name(page), m[1]) for page in PAGES for m in SENTENCE.finditer(BLOCK.sub("", text_of(page)))}
    assert len(named) > 100
    assert {(page, text): bad for page, text in named if (bad := unknown(*text.split()))} == {}
    assert unknown("hardcase", "export", "build", "--max-los", "0.1") == ["--max-los"]
    assert unknown("hardcase", "trian", "x.toml") == ["trian", "x.toml"]


# ---------------------------------------------------------------- nothing is left out


COMMANDS = [leaf for program, make in PARSERS.items() for leaf in leaves(make(), program)]
LISTING = {part.partition("\n")[0]: part for part in re.split(r"^## ", listing(), flags=re.M)}


@pytest.mark.parametrize("words", [words for words, _ in COMMANDS])
def test_every_command_is_in_a_page(words: str) -> None:
    assert any(re.search(rf"{words}\b", text_of(page)) for page in GUIDES)


@pytest.mark.parametrize(("words", "parser"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_the_sites_page_of_commands_explains_every_flag(words: str, parser: argparse.ArgumentParser) -> None:
    flags = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    assert [action.dest for action in flags if not re.match(r"\S+( \S+)*$", action.help or "")] == []
    help_of = LISTING[words]
    assert [f for action in flags for f in action.option_strings if not re.search(rf"^  .*{f}\b", help_of, re.M)] == []


def test_the_sites_page_of_commands_has_its_place() -> None:
    assert PLACE in text_of(ROOT / "docs" / "commands.md")


def test_the_sites_table_of_keys_has_its_place_and_its_links_lead_somewhere() -> None:
    assert configuration.PLACE in text_of(ROOT / "docs" / "configuration.md")
    for link in LINK.findall(configuration.table()):
        page, _, anchor = link.partition("#")
        assert not anchor or anchor in anchors(ROOT / "docs" / page), f"{link} names no heading"
        assert (ROOT / "docs" / page).exists(), f"{link} leads nowhere"


def test_each_method_driver_and_target_says_how_mature_it_is_and_what_is_known_against_it() -> None:
    pages = text_of(maturity.PAGE), text_of(maturity.SENSORS)
    assert pages == (maturity.page(), maturity.sensors()), "run python tests/house/maturity.py"
    assert all(against for rows in maturity.said().values() for _, _, against in rows)


@pytest.mark.parametrize("name", record_tables.ORIGINS)
def test_a_page_explains_the_keys_of_lines_and_records_as_their_table_does(name: str) -> None:
    assert text_of(ROOT / "docs" / name) == record_tables.page(name), "run python tests/house/record_tables.py"
    assert record_tables.table(name) in text_of(ROOT / "docs" / name)


def test_each_key_of_a_record_says_what_it_means() -> None:
    assert [key.name for key in KEYS if not key.doc] == []
    assert {key.origin for key in KEYS} == {o for origins in record_tables.ORIGINS.values() for o in origins}


def test_every_method_is_named_and_explained() -> None:
    for method in (AUTO, *METHODS):
        assert f"- `{method}`:" in text_of(ROOT / "docs" / "methods.md")


def test_the_architecture_has_the_floors_of_the_plan_on_a_page_that_one_reads_whole() -> None:
    assert text_of(architecture.PAGE) == architecture.page(), "run python tests/house/architecture.py"
    assert len(text_of(architecture.PAGE).encode()) <= architecture.MAX_PAGE_BYTES


def test_the_site_lists_every_module_with_a_sentence() -> None:
    rows = re.findall(r"^\| `([\w/.]+)` \| (.*) \|$", architecture.tables(), re.M)
    rooms = re.findall(r"^\*\*`[\w/.]+`\*\* \(.*?\): (.*)$", architecture.tables(), re.M)
    assert len(rows) > 500
    assert len(rooms) > 80
    assert all(line.endswith((".", "?", "!")) for line in [*rooms, *(line for _, line in rows)])
    assert architecture.PLACE in text_of(ROOT / "docs" / "modules.md")


def test_the_architecture_names_only_what_is_there() -> None:
    page = text_of(ROOT / "ARCHITECTURE.md").partition("<!-- rooms -->")[0]
    paths = set(re.findall(r"`([\w/]+\.(?:py|c))`", page))
    assert len(paths) > 30
    assert not {path for path in paths if not any(other.endswith(f"/{path}") for other in MODULES)}


MODULES = {p.as_posix() for top in sorted(ROOT.iterdir()) if top.name[0] != "." and top.name != "build"
           for p in (top.rglob("*.[pc]*") if top.is_dir() else [top])}  # fmt: skip


@pytest.mark.parametrize("page", [p for p in PAGES if p.parts[len(ROOT.parts)] == "docs"], ids=name)
def test_a_module_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", BLOCK.sub("", text_of(page))))
    assert not [n for n in sorted(named) if not any(m.endswith(f"/{n}") for m in MODULES)]


# ---------------------------------------------------------------- the site and the style


def navigation() -> dict[str, tuple[str, ...]]:
    """``NAV`` of docs/conf.py, which cannot be imported without Sphinx."""
    for node in ast.parse(text_of(ROOT / "docs" / "conf.py")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "NAV":
            nav: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return nav
    raise AssertionError("docs/conf.py has no NAV")


def test_every_page_has_its_place_in_the_sites_navigation() -> None:
    shown = [page for pages in navigation().values() for page in pages]
    docs = {f"docs/{p.stem}" for p in (ROOT / "docs").glob("*.md")} - {"docs/index"}
    assert docs <= set(shown)
    assert all((ROOT / f"{page}.md").exists() for page in shown)
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("folder", ["benchmarks", "decisions"])
def test_the_list_of_a_folder_links_to_each_of_its_pages(folder: str) -> None:
    pages = {p.name for p in (ROOT / "docs" / folder).glob("*.md")}
    assert set(LINK.findall(text_of(ROOT / "docs" / folder / "README.md"))) == pages - {"README.md"}


@pytest.mark.parametrize("page", [p for p in GUIDES if p.name not in REFERENCES], ids=name)
def test_a_guide_is_read_in_a_quarter_of_an_hour(page: Path) -> None:
    assert len(text_of(page).split()) <= MOST_WORDS


def test_the_first_page_and_the_changelog_are_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 100
    assert len(text_of(ROOT / "CHANGELOG.md").encode()) <= 6_144


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_headings_leave_out_no_level(page: Path) -> None:
    levels = [len(head) for head in re.findall(r"^(#+) ", BLOCK.sub("", text_of(page)), re.M)]
    assert levels[0] == 1
    assert all(level <= before + 1 for before, level in pairwise(levels))


def prose(text: str) -> Iterator[str]:
    """Lines of a page but for code, tables and headings; without the bold words and numbers that begin a paragraph."""
    for line in re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.M | re.S).splitlines():
        if not line.startswith(("|", "    ", "#")):
            yield re.sub(r"^(?:[-*] |\d\. )?(?:\*\*[^*]+\*\* |\(\d\) )?", "", line.strip())


SENTENCES = re.compile(r"(?<!et al)(?<!\d)[.!?]\)? (?=[A-Z`*\[(])")


@pytest.mark.parametrize("page", [p for p in PAGES if p.parts[len(ROOT.parts)] == "docs"], ids=name)
def test_prose_has_one_sentence_on_a_line(page: Path) -> None:
    assert not [line for line in prose(text_of(page)) if SENTENCES.search(line)]


def test_a_second_sentence_on_a_line_would_be_seen() -> None:
    lines = list(
        prose("**Found.** One thing.\n- `a`: two. Three things.\n| a. B |\n```text\nA. B\n```\nSee B et al. (2020).\n")
    )
    assert [bool(SENTENCES.search(line)) for line in lines] == [False, True, False, False]


# ---------------------------------------------------------------- links and pictures


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made from their words."""
    heads = re.findall(r"^#+ (.*)$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(BLOCK.sub("", text_of(page))):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(target), f"{link} names no heading"


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=name)
def test_a_picture_is_whole_and_loads_nothing(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    assert root.tag.endswith("svg")
    text = text_of(picture)
    assert "<script" not in text
    assert not re.search(r"(?:href|src)=\"(?!#)", text)


def test_the_picture_of_the_paths_can_be_read_in_the_dark() -> None:
    assert "prefers-color-scheme: dark" in text_of(ROOT / "docs" / "pictures" / "paths.svg")


def test_the_claims_of_the_readme_stand_beside_the_figures_of_the_results() -> None:
    command = [sys.executable, "-m", "benchmarks", "claims", "--check"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 0, made.stderr


def test_every_invariant_has_tests_and_they_exist() -> None:
    tests = ROOT / "tests"
    shown = tomllib.loads((tests / "threats.toml").read_text(encoding="utf-8"))
    numbers = re.findall(r"^\*\*(I\d+)\.\*\*", (ROOT / "docs" / "THREATS.md").read_text(encoding="utf-8"), re.M)
    assert len(numbers) == len(set(numbers)), "an invariant has its number alone"
    assert set(numbers) == set(shown)
    assert all(shown.values()), "each invariant has a test"
    for file, name in (test.split("::") for of_one in shown.values() for test in of_one):
        assert re.search(rf"^def {name}\(", (tests / file).read_text(encoding="utf-8"), re.M), f"{file}::{name}"
