# SPDX-License-Identifier: Apache-2.0
"""Command-line arguments shared by several verbs, the parser that shows examples, and the printing of reports."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.base.hints import did_you_mean
from hardcase_edge.cli import Parser

Flags = argparse.ArgumentParser | argparse._ArgumentGroup


class VerbParser(Parser):
    """A parser whose help ends with examples and the terms that it uses.

    examples : commands, one per line, which the help shows as they are
    terms : one sentence of definitions
    """

    def __init__(self, *, examples: str = "", terms: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self.examples, self.terms = examples, terms

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse; the parser of a verb refuses what it does not know, and names its nearest flag."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest and self._subparsers is None:
            near = did_you_mean(rest[0].partition("=")[0], self._option_string_actions, "", cutoff=0.7)
            self.error(f"unrecognized arguments: {' '.join(rest)}{f' ({near})' if near else ''}")
        return parsed, rest

    def format_help(self) -> str:
        """The help, as wide as the terminal."""
        formatter = argparse.HelpFormatter(self.prog)
        formatter.add_text(f"terms: {self.terms}" if self.terms else None)
        examples = "".join(f"  {line}\n" for line in self.examples.splitlines())
        parts = (super().format_help(), f"examples:\n{examples}" if examples else "", formatter.format_help())
        return "\n".join(part for part in parts if part)


def add_json(parser: Flags) -> None:
    """Declare ``--json``: print one JSON object on stdout instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_force(parser: Flags) -> None:
    """Declare ``--force``: write also where something stands that hardcase did not write."""
    parser.add_argument(
        "--force", action="store_true", help="replace files that hardcase did not write, which is otherwise refused"
    )


def add_trust(parser: Flags) -> None:
    """Declare ``--trust``: the public key that must have signed a bundle."""
    parser.add_argument("--trust", metavar="KEY", help="public key whose signature the bundle must carry")


def add_hpc(parser: Flags, default: str) -> None:
    """Declare ``--hpc``: what answers forwarded rows; ``default`` says what is asked without it."""
    parser.add_argument("--hpc", metavar="MODEL", help=f"hpc.onnx or module:function (default: {default})")


def report(args: argparse.Namespace, values: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Print the values as JSON with ``--json``, else the lines."""
    print(json.dumps(values) if args.json else "\n".join(map(terminal, lines)))


def plain(value: object, limit: int) -> str:
    """A name from outside on one line of a terminal, at most ``limit`` characters of it.

    >>> plain("a" + chr(9) + "long name", 7)
    'a?long…'
    """
    text = terminal(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
