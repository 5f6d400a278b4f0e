# SPDX-License-Identifier: Apache-2.0
"""The command ``hardcase``: parse the arguments, run the verb, report an error as one line and exit status 2.

Each verb is a module, found by the hook ``hardcase.verbs``, with ``HELP``, ``arguments(parser)`` and ``run(args) ->
exit status``; it may have ``EXAMPLES`` and ``TERMS``, which its help shows, and ``INTERRUPTED``, which is printed after
Ctrl-C. A verb of several commands has, in place of the two functions, ``COMMANDS``, the hook of their modules, and
``FIRST``, those that its help shows first. Only the module that a command names is imported, and it imports large
packages inside ``run``: ``hardcase --help`` imports none of them.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import HardcaseError, InputError
from hardcase_edge.hooks import hooked, load_hook

from .options import VerbParser

FIRST = (
    "init", "train", "export", "inspect", "evaluate", "playground", "gate", "serve", "costs", "keygen", "keys", "ca",
    "flash", "release", "cloud", "fleet", "demo", "completion",
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
    return _ordered("verbs", FIRST)


def _ordered(hook: str, first: Sequence[str]) -> dict[str, EntryPoint]:
    found = hooked(hook)
    order = {name: k for k, name in enumerate(first)}
    return {name: found[name] for name in sorted(found, key=lambda name: (order.get(name, len(order)), name))}


def make_parser(words: Sequence[str] = ()) -> VerbParser:
    """The parser of the command with what these words need; with all verbs and their commands for none.

    Raises
    ------
    InputError
        A verb cannot be loaded.
    """
    description = "Answer easy cases on the device, forward the hard ones."
    parser = VerbParser(prog="hardcase", description=description, examples=EXAMPLES, terms=TERMS)
    parser.add_argument("--version", action=_Version)
    is_completed = list(words[:1]) == ["completion"]  # a shell completes all of them
    _add(parser, verbs(), () if is_completed else words, dest="verb", root=parser)
    return parser


def _add(parser: VerbParser, found: Mapping[str, EntryPoint], words: Sequence[str], *, dest: str, root: Any) -> None:
    """Declare the module that the first of the words names; if it names none, all that were found."""
    subparsers = parser.add_subparsers(dest=dest, required=True, metavar=dest.upper())
    named = words[:1] if words and words[0] in found else ()
    for name in named or found:
        module = load_hook(found[name], ModuleType, "HELP")
        examples, terms = (getattr(module, key, "") for key in ("EXAMPLES", "TERMS"))
        sub = subparsers.add_parser(name, help=module.HELP, description=module.HELP, examples=examples, terms=terms)
        if hasattr(module, "COMMANDS"):
            below = _ordered(module.COMMANDS, module.FIRST) if named or not words else {}
            _add(sub, below, words[1:], dest="command", root=root)
            continue
        load_hook(found[name], ModuleType, "arguments", "run").arguments(sub)
        sub.set_defaults(run=module.run, interrupted=getattr(module, "INTERRUPTED", ""), root=root)


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
        parser = make_parser(words)
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
