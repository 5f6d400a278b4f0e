# SPDX-License-Identifier: Apache-2.0
"""``hardcase completion``: print a script that completes the verbs, flags and files of ``hardcase`` in a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

HELP = "Print a script that completes this command in your shell."
EXAMPLES = """\
hardcase completion bash > ~/.local/share/bash-completion/completions/hardcase
hardcase completion zsh > ~/.zfunc/_hardcase    # in a folder of $fpath
hardcase completion fish > ~/.config/fish/completions/hardcase.fish"""
SHELLS = ("bash", "zsh", "fish")
FILES = ("BUNDLE", "CSV", "DATA", "FILE", "KEY", "PEM")  # what stands for a file in help texts
FOLDERS = ("BUILD", "DIR", "FOLDER")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    """Print the script; ``args.root`` is the parser of the whole command."""
    import shtab

    for action in _actions(args.root):
        if action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # read by shtab
        elif action.metavar in FILES or action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(args.root, shell=args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of a parser and of the parsers below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
