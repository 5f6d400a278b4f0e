# SPDX-License-Identifier: Apache-2.0
"""The list of all commands and flags that `make docs` puts into docs/commands.md: what `--help` of each one prints.

python tests/house/commands.py    prints it
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from unittest.mock import patch

from hardcase.cli import make_parser
from hardcase_edge.cli import make_parser as make_edge_parser

PARSERS = {"hardcase": make_parser, "hardcase-edge": make_edge_parser}
PLACE = "<!-- commands -->\n"  # where docs/commands.md has the list on the site


def leaves(parser: argparse.ArgumentParser, words: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that can be typed, such as "hardcase cloud up", with its parser."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield words, parser
    for action in below:
        for verb, sub in action.choices.items():
            yield from leaves(sub, f"{words} {verb}")


def listing() -> str:
    """Markdown: for each command a heading and its help."""
    commands = [leaf for program, make in PARSERS.items() for leaf in leaves(make(), program)]
    with patch.dict(os.environ, COLUMNS="110"):
        return "\n".join(f"## {words}\n\n```text\n{parser.format_help()}```\n" for words, parser in commands)


if __name__ == "__main__":
    print(listing())
