# SPDX-License-Identifier: Apache-2.0
"""The command ``hardcase``: parse the arguments, run the verb, report an error as one line and exit status 2.

Each verb is a module in ``verbs`` with ``HELP``, ``arguments(parser)`` and ``run(args) -> exit status``. Verbs import
large packages inside ``run``, so ``hardcase --help`` imports none of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hardcase_edge.cli import Parser
from hardcase_edge.errors import HardcaseError

__all__ = ["main"]

VERBS = ("init", "train", "export", "inspect", "evaluate", "keygen", "cloud", "demo")


def make_parser() -> Parser:
    """The parser of the command and all its verbs."""
    parser = Parser(prog="hardcase", description="Answer easy cases on the device, forward the hard ones.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        module = import_module(f"hardcase.verbs.{verb}")
        sub = verbs.add_parser(verb, help=module.HELP, description=module.HELP)
        module.arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 on success, 2 when the input cannot be used, 130 when interrupted."""
    args = make_parser().parse_args(argv)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except HardcaseError as error:
        print(f"hardcase {args.verb}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
