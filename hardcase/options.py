# SPDX-License-Identifier: Apache-2.0
"""Command-line arguments shared by several verbs, and the printing of reports."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["add_force", "add_json", "report"]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``: print one JSON object on stdout instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_force(parser: argparse.ArgumentParser) -> None:
    """Declare ``--force``: write also where something stands that hardcase did not write."""
    parser.add_argument(
        "--force", action="store_true", help="replace files that hardcase did not write, which is otherwise refused"
    )


def report(args: argparse.Namespace, values: Mapping[str, Any], text: str) -> None:
    """Print the values as JSON with ``--json``, else the text."""
    print(json.dumps(values, sort_keys=True) if args.json else text)
