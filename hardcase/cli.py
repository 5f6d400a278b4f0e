# SPDX-License-Identifier: Apache-2.0
"""The command ``hardcase``: parse the arguments, run the verb, report an error as one line and exit status 2.

Each verb is a module, found by the hook ``hardcase.verbs``, with ``HELP``, ``arguments(parser)`` and ``run(args) ->
exit status``; it may have ``EXAMPLES`` and ``TERMS``, which its help shows, and ``INTERRUPTED``, which is printed after
Ctrl-C. Verbs import large packages inside ``run``, so ``hardcase --help`` imports none of them.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.hooks import hooked, load_hook

from .options import VerbParser

__all__ = ["main", "make_parser", "verbs"]

FIRST = (
    "init", "train", "export", "inspect", "evaluate", "costs", "keygen", "keys", "ca", "flash", "release", "cloud",
    "fleet", "demo", "completion",
)  # fmt: skip
EXAMPLES = """\
hardcase init data.csv                      # a first hardcase.toml
hardcase train hardcase.toml --out build    # policies, their front, report.html
hardcase export build --max-loss 0.01 --out model.hcb
hardcase evaluate model.hcb build/test.npz"""
TERMS = (
    "f0: the large model in the cloud; policy: which sensor to buy next, and when to answer or to forward to f0; "
    "bundle: a policy as one file for devices; front: the policies that no other beats in both accuracy and cost"
)


class _Version(argparse.Action):
    """``--version``: print it and end; the metadata is read only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="print the version and end")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"hardcase {version('hardcase')}")
        parser.exit()


def verbs() -> dict[str, EntryPoint]:
    """All installed verbs, found by the hook ``hardcase.verbs``: those that most people want first, then the others.

    Raises
    ------
    InputError
        Two packages offer a verb of one name.
    """
    found = hooked("verbs")
    order = {verb: k for k, verb in enumerate(FIRST)}
    return {verb: found[verb] for verb in sorted(found, key=lambda verb: (order.get(verb, len(order)), verb))}


def make_parser(named: Sequence[str] = ()) -> VerbParser:
    """The parser of the command with these verbs; with all of them if none is named.

    Raises
    ------
    InputError
        A verb cannot be loaded.
    """
    description = "Answer easy cases on the device, forward the hard ones."
    parser = VerbParser(prog="hardcase", description=description, examples=EXAMPLES, terms=TERMS)
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    found = verbs()
    for verb in named or found:
        module = load_hook(found[verb], ModuleType)
        examples, terms = (getattr(module, name, "") for name in ("EXAMPLES", "TERMS"))
        sub = subparsers.add_parser(verb, help=module.HELP, description=module.HELP, examples=examples, terms=terms)
        module.arguments(sub)
        sub.set_defaults(run=module.run, interrupted=getattr(module, "INTERRUPTED", ""), root=parser)
    return parser


def _needed(words: Sequence[str]) -> Sequence[str]:
    """The verb of a command; none where it names none, asks for help, or completes words in a shell.

    >>> _needed(["train", "hardcase.toml"]), _needed(["--help"]), _needed(["completion", "bash"])
    (['train'], [], [])
    """
    own = list(words[:1])
    return own if own and own[0] in verbs() and own[0] != "completion" else []


def _drop_output() -> None:
    """Discard what Python still buffers for standard output, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 on success, 2 when the input cannot be used, 130 when interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal's encoding does not have
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = make_parser(_needed(words))
    except InputError as error:  # a package of a stranger is broken
        print(f"hardcase: {terminal(error)}", file=sys.stderr)
        return 2
    args = parser.parse_args(words)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except HardcaseError as error:
        print(f"hardcase {args.verb}: {terminal(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has closed it
        _drop_output()
        return 0
    except OSError as error:  # such as a full disk behind standard output
        _drop_output()
        where = terminal(str(error.filename or "standard output"))
        print(
            f"hardcase {args.verb}: {where}: {error.strerror or error}; make room, then run it again", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        if args.interrupted:
            print(f"hardcase {args.verb}: interrupted; {args.interrupted}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
