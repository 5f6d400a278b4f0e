# SPDX-License-Identifier: Apache-2.0
"""A benchmark's page says what its record says, and the one runner keeps what was measured with how it was made."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import cmsis_nn, emlearn_module, pages, runner
from benchmarks.newcomer import gate_commands, playground_commands, server_commands
from benchmarks.pages import MADE, PAGES, RESULTS, ROOT, read

NEEDS = {"import", "synthetic"}  # packages of the extra ``bench``
RENDERED = [name for name in runner.names() if (RESULTS / f"{name}.json").exists() and name not in NEEDS]
SHOWN = {"cstc_trees", "quadrants", "adapt_runs"}  # on another benchmark's page


@pytest.mark.parametrize("name", [name for name in RENDERED if name not in SHOWN])
def test_a_page_is_what_its_record_says(name: str) -> None:
    assert runner.page_of(name, runner.load(name), read(name)) == (PAGES / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", runner.names())
def test_a_benchmark_is_listed_with_what_it_shows(name: str) -> None:
    line = runner.described(name).removeprefix(name).strip()
    assert not line.startswith("(")
    assert line.rpartition(" (")[0].endswith((".", ":", "?"))


@pytest.mark.parametrize("name", RENDERED)
def test_no_flag_of_a_benchmark_hides_what_the_runner_gives_it(name: str) -> None:
    assert not re.search(r"--(known|save|keep)\b", runner.parser_of(name, runner.load(name)).format_help())


def test_the_commands_that_a_newcomer_runs_are_read_from_the_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup, activate, playground = playground_commands(readme)
    assert (setup, activate) == ("make venv", ". .venv/bin/activate")
    assert playground.startswith("hardcase playground examples/")
    gate, log, example = gate_commands(readme)
    assert gate.startswith(f"hardcase gate {log} ")
    assert (ROOT / example).is_file()
    serve, curl = server_commands((ROOT / "docs" / "gate-server.md").read_text(encoding="utf-8"))
    assert (serve, curl[:5]) == ("hardcase serve gate.toml", "curl ")


def test_each_record_is_of_a_benchmark() -> None:
    beside = {"device"}  # of ``edge``
    assert {path.stem for path in RESULTS.glob("*.json")} - beside <= set(runner.names())


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_that_misses_a_goal_says_so_first(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if re.search(r"[Gg]oal.*missed|\(missed\)|\*\*missed|\*\*no\*\*", text):
        assert "falls short" in text[:1_000]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_record_says_how_it_was_made(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found[MADE]
    for made in found[MADE]:
        assert {"parameters", "commit", "date", "machine", "python", "numpy", "seconds"} <= set(made)
        assert all(made[key] for key in ("commit", "date"))
        assert "seeds" in made if "from" in made else made["seconds"] is not None


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A benchmark that counts to ``--seeds`` and can be stopped on its way."""
    module = ModuleType("counting")

    def run(args: Any) -> dict[str, Any]:
        found = args.known() or {"counted": []}
        for k in range(len(found["counted"]), args.seeds):
            if k == args.stop:
                raise KeyboardInterrupt
            found["counted"].append(k)
            args.save(found)
        return dict(found)

    parts = {"SEEDS": 3, "run": run, "page": lambda found: f"{len(found['counted'])} counted\n"}
    parts["arguments"] = lambda parser: parser.add_argument("--stop", type=int, default=-1)
    parts["problems"] = lambda found: ["too few"] if len(found["counted"]) < 3 else []
    for name, part in parts.items():
        setattr(module, name, part)
    monkeypatch.setattr(runner, "load", lambda name: module)
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(runner, "PAGES", tmp_path)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "unnamed", lambda: "")
    return module


def record_of(folder: Path) -> dict[str, Any]:
    """What the file holds."""
    return dict(json.loads((folder / "counting.json").read_text()))


def test_a_run_that_was_stopped_goes_on_where_it_was(counting: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        runner.run("counting", ["--stop", "2"])
    assert record_of(tmp_path)["counted"] == [0, 1]
    assert runner.run("counting", []) == 0
    record = record_of(tmp_path)
    assert record["counted"] == [0, 1, 2]
    assert [made["parameters"] for made in record["made_with"]] == [
        {"seeds": 3, "stop": 2},
        {"seeds": 3, "stop": -1},
    ]
    assert {"commit", "machine", "python", "numpy", "date", "seconds"} <= set(record["made_with"][0])
    assert (tmp_path / "counting.md").read_text() == "3 counted\n"
    assert not list(tmp_path.glob("*.new"))


def test_a_record_names_a_file_of_the_clone_by_its_path_in_it_and_another_by_its_name(
    counting: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        counting,
        "arguments",
        lambda parser: parser.set_defaults(stop=-1, build=tmp_path / "build" / "rig", peer=Path("/elsewhere/peer")),
        raising=False,
    )
    runner.run("counting", [])
    parameters = record_of(tmp_path)["made_with"][0]["parameters"]
    assert (parameters["build"], parameters["peer"]) == ("build/rig", "peer")


def test_a_checkout_that_lacks_a_file_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^--cmsis-nn: .* has no Include/arm_nnfunctions.h; give a checkout of .*$"):
        cmsis_nn.versions(tmp_path)
    with pytest.raises(SystemExit, match=r"^--emlearn: .* has no src/emlearn_trees/Makefile; give a checkout of .*$"):
        emlearn_module.build(tmp_path, tmp_path)


def test_a_fresh_run_forgets_what_was_there(counting: ModuleType, tmp_path: Path) -> None:
    runner.run("counting", [])
    assert runner.run("counting", ["--fresh", "--seeds", "2"]) == 1  # a problem, which is not hidden
    record = record_of(tmp_path)
    assert record["counted"] == [0, 1]
    assert [made["parameters"]["seeds"] for made in record["made_with"]] == [2]


def test_a_record_names_a_commit_that_stays(
    counting: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    monkeypatch.setattr(pages, "ROOT", clone)
    monkeypatch.setattr(pages, "RESULTS", clone / "results")
    monkeypatch.setattr(runner, "unnamed", pages.unnamed)

    def git(*words: str) -> None:
        one = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *one, *words], cwd=clone, check=True, capture_output=True)

    (clone / "results").mkdir(parents=True)
    (clone / "code.py").write_text("1")
    (clone / "results" / "kept.json").write_text("{}")
    for words in (["init", "-b", "main"], ["add", "."], ["commit", "-m", "one"]):
        git(*words)

    def refusal() -> str:
        pages.commit.cache_clear()
        try:
            runner.run("counting", [])
        except SystemExit as refused:
            return str(refused)
        return ""

    (clone / "results" / "kept.json").write_text("[]")
    assert not refusal()
    (clone / "code.py").write_text("2")
    assert "files of the code differ" in refusal()
    git("checkout", "-b", "other")
    git("commit", "-am", "two")
    assert "is not on main" in refusal()
    pages.commit.cache_clear()
    assert runner.run("counting", ["--out", str(tmp_path / "other.json")]) == 0
    pages.commit.cache_clear()


def test_another_file_has_no_page(counting: ModuleType, tmp_path: Path) -> None:
    runner.run("counting", ["--out", str(tmp_path / "other.json")])
    assert {path.name for path in tmp_path.iterdir()} == {"other.json"}


def test_a_page_is_written_from_what_is_there(
    counting: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counting.json").write_text(json.dumps({"counted": [5]}))
    assert runner.run("counting", ["--render"]) == 1
    assert (tmp_path / "counting.md").read_text() == "1 counted\n"
    assert capsys.readouterr().err == "too few\n"


def test_what_stands_above_the_figures_stays(counting: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "counting.md").write_text("# Counting\n\nBy hand.\n\n<!-- figures -->\n7 counted\n")
    runner.run("counting", [])
    assert (tmp_path / "counting.md").read_text() == "# Counting\n\nBy hand.\n\n<!-- figures -->\n3 counted\n"


def test_a_part_in_another_file_needs_no_page(
    counting: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counting, "page", lambda found: found["whole"])
    assert runner.run("counting", ["--out", str(tmp_path / "other.json")]) == 0
    assert capsys.readouterr().out == "there is no page of a part: 'whole' has not been measured\n"
    with pytest.raises(KeyError):
        runner.run("counting", [])
