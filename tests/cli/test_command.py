# SPDX-License-Identifier: Apache-2.0
"""The command itself: help with examples that parse, its version, completion in a shell, bars, and what Ctrl-C says."""

from __future__ import annotations

import argparse
import io
import shlex
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from hardcase import cli
from hardcase.cli import FIRST, main, make_parser, verbs
from hardcase.measuring.bars import clock_bar, rows_bar
from hardcase.options import report
from hardcase.verbs.completion import SHELLS
from hardcase_edge.errors import InputError
from hardcase_edge.hooks import hooked
from hardcase_export.integers.decide import decisions
from hardcase_train.sweep.loop import phase_bar
from tests.golden.make_golden import GOLDEN
from tests.helpers.export.builds import make_rows, static_draft
from tests.helpers.hooks import install
from tests.house.test_arrows import HEAVY

WITH_EXAMPLES = [verb for verb, point in verbs().items() if hasattr(point.load(), "EXAMPLES")]


the_parser = cache(make_parser)


def help_of(*words: str) -> str:
    parser: argparse.ArgumentParser = the_parser()
    for word in words:
        below = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = below.choices[word]
    return parser.format_help()


# ---------------------------------------------------------------- help


def test_every_verb_has_examples() -> None:
    assert list(verbs()) == list(FIRST) == WITH_EXAMPLES


@pytest.mark.parametrize("verb", [(), *((v,) for v in WITH_EXAMPLES)], ids=" ".join)
def test_the_examples_of_the_help_parse(verb: tuple[str, ...]) -> None:
    lines = help_of(*verb).partition("\nexamples:\n")[2].splitlines()
    shown = [line.strip() for line in lines if line.startswith("  hardcase ")]
    assert shown
    for line in shown:
        program, *words = shlex.split(line.partition(" > ")[0], comments=True)
        assert program == "hardcase"
        the_parser().parse_args(words)  # ends with SystemExit where it does not


def test_the_help_ends_with_the_terms_that_it_uses() -> None:
    assert help_of("export").rstrip().endswith("before it becomes integers")
    assert "terms: f0: the large model in the cloud" in help_of()
    assert "which point (one of them):" in help_of("export")


@pytest.mark.parametrize(
    ("words", "hint"), [(["--broker", "x"], ""), (["--jsn"], " (did you mean '--json'?)")], ids=["none", "near"]
)
def test_a_flag_that_is_unknown_is_named_with_a_near_one_alone(words, hint, capsys) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit):
        main(["cloud", "check-broker", "mqtt://x", *words])
    assert (
        f"unrecognized arguments: {' '.join(words)}{hint}; see hardcase cloud check-broker" in capsys.readouterr().err
    )


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"hardcase {version('hardcase')}\n"


def modules_after(*words: str) -> set[str]:
    """What a process has imported at the end of this command."""
    code = "import atexit, sys; atexit.register(lambda: print('MODULES', *sys.modules))\n"
    code += "from hardcase.cli import main; main(sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split("MODULES")[1].split())


def test_a_command_imports_the_module_of_no_other() -> None:
    ours = {
        name for name in modules_after("cloud", "store", "--help") if name.startswith(("hardcase.v", "hardcase_cl"))
    }
    assert ours == {"hardcase_cloud", *(f"hardcase_cloud.commands{name}" for name in ("", ".shared", ".store"))}


def test_inspecting_a_bundle_imports_nothing_heavy() -> None:
    assert not modules_after("inspect", str(GOLDEN / "v1.hcb")) & HEAVY


def test_the_cloud_brings_its_own_commands_and_others_may_add_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    homes = {name: point.dist.name for name, point in hooked("cloud").items() if point.dist}
    assert [name for name, home in homes.items() if home == "hardcase"] == ["retrain"]
    assert set(homes.values()) == {"hardcase", "hardcase-cloud"}
    assert [point.dist and point.dist.name for verb, point in verbs().items() if verb == "cloud"] == ["hardcase-cloud"]
    lines = (
        "HELP = 'Count.'",
        "arguments = lambda parser: parser.add_argument('n', type=int)",
        "run = lambda args: args.n",
    )
    install(tmp_path, monkeypatch, "counting", "cloud", {"count": "counting"}, "\n".join(lines))
    assert main(["cloud", "count", "7"]) == 7
    with pytest.raises(SystemExit):
        main(["cloud", "--help"])
    assert "    count " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "hardcase: 'count' of counting (counting) has no 'HELP'; update or uninstall it\n"),
        ("HELP = 'Count.'", "hardcase: 'count' of counting (counting) has no 'arguments'; update or uninstall it\n"),
    ],
)
def test_a_verb_that_lacks_what_its_hook_asks_for_is_one_line(
    lines: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch, "counting", "verbs", {"count": "counting"}, lines)
    assert main(["count", "7"]) == 2
    assert capsys.readouterr().err == said


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_knows_every_verb(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(verb in script for verb in (*FIRST, "max-loss", "each-dead"))


def test_bash_completes_verbs_flags_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "complete").write_text(capsys.readouterr().out, encoding="utf-8")
    (tmp_path / "hardcase.toml").touch()
    script = """
        source ./complete
        try() { COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=(); _shtab_hardcase; echo "${COMPREPLY[*]}"; }
        try hardcase exp; try hardcase export --max-l; try hardcase train hardc; try hardcase cloud ""
    """
    made = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert (made.stdout.split("\n")[:4], made.stderr) == (
        [
            "export",
            "--max-loss",
            "hardcase.toml",
            "up worker store label rollout dashboard enrol acl offer check-broker retrain audits",
        ],
        "",
    )


# ---------------------------------------------------------------- Ctrl-C and bars


@pytest.mark.parametrize("verb", ["export", "evaluate", "inspect", "demo"])
def test_after_ctrl_c_a_verb_says_what_was_kept(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    module = import_module(f"hardcase.verbs.{verb}")
    monkeypatch.setattr(module, "run", interrupted)
    words = {"export": ["build", "--out", "x"], "evaluate": ["x.hcb", "y.npz"], "inspect": ["x.hcb"], "demo": []}[verb]
    assert main([verb, *words]) == 130
    assert capsys.readouterr().err == f"hardcase {verb}: interrupted; {module.INTERRUPTED}\n"


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "is_shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_bars_are_shown_on_terminals_alone(
    stream: io.StringIO, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    X, y = make_rows(250, 0)
    with rows_bar("compare", 500), clock_bar("import"), phase_bar(2, "sensor sets", 3, quiet=False):
        decisions(static_draft(), X, y)
        decisions(static_draft(), X, y)
    assert {bar in stream.getvalue() for bar in ("compare", "import: 00:00", "2/5 sensor sets")} == {is_shown}


def test_the_bar_counts_the_rows_of_every_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    from hardcase_export.integers.decide import watching

    X, y = make_rows(250, 0)
    seen: list[int] = []
    with watching(seen.append):
        decisions(static_draft(), X, y)
        decisions(static_draft(), X, y)
    decisions(static_draft(), X, y)
    assert seen == [100] * 4


def test_names_that_the_terminal_cannot_show_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(cli, "make_parser", lambda _: Printer())
    assert main([]) == 0
    assert out.buffer.getvalue() == b"s\\xfc\\xdf\n"  # type: ignore[attr-defined]


class Printer:
    """A parser whose verb prints a name."""

    def parse_args(self, _: object) -> argparse.Namespace:
        return argparse.Namespace(run=lambda _: print("süß") or 0, verb="x", interrupted="")


def test_names_from_outside_do_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = argparse.Namespace(json=False)
    report(args, {}, ["class \x1b]0;owned\x07\nhardcase: all is well", "  \u202enext"])
    assert capsys.readouterr().out == "class ?]0;owned??hardcase: all is well\n  ?next\n"

    def refused(_: argparse.Namespace) -> int:
        raise InputError("no column \x1b[2J of that name")

    monkeypatch.setattr(import_module("hardcase.verbs.inspect"), "run", refused)
    assert main(["inspect", "x.hcb"]) == 2
    assert capsys.readouterr().err == "hardcase inspect: no column ?[2J of that name\n"


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "hardcase.cli", "cloud", "acl", "--broker", "emqx"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "hardcase cloud: standard output: No space left on device; make room, then run it again\n"
