# SPDX-License-Identifier: Apache-2.0
"""The targets that ``hardcase export`` was asked for: their flags, and their files, all made before one is written."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.hooks import home_of, hooked
from hardcase_export.targets import HOOK, MODELS, Output, Source, Target, targets

from ..options import Flags
from ..training.folders import check_folder, whole_folder

DESCRIPTION = "models.json"
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


def add_targets(group: Flags) -> None:
    """Declare a flag for each installed target, which takes a folder, and one for each of its switches."""
    for name, target in targets().items():
        flags = [f"--{name}", *(f"--{switch}" for switch in target.switches)]
        taken = [f for f in flags if f in group._option_string_actions or not NAME.fullmatch(f[2:])]
        if taken:
            home = home_of(hooked(HOOK)[name])
            raise InputError(f"the target {name!r} of {home} cannot have the flag {taken[0]!r}; uninstall it")
        group.add_argument(flags[0], type=Path, metavar="FOLDER", help=target.help)
        for switch, words in target.switches.items():
            group.add_argument(f"--{switch}", action="store_true", help=f"with --{name}: {words}")


def given_target(args: argparse.Namespace) -> str | None:
    """The first flag of a target or of a switch that was given; None if none was."""
    flags = [flag for name, target in targets().items() for flag in (name, *target.switches)]
    return next((flag for flag in flags if getattr(args, flag.replace("-", "_"))), None)


def wished_in(args: argparse.Namespace) -> Wished:
    """The targets whose flags were given.

    Raises
    ------
    InputError
        A switch stands without its target, or a folder may not be written.
    """
    wished = Wished(force=args.force)
    for name, target in targets().items():
        on = frozenset(switch for switch in target.switches if getattr(args, switch.replace("-", "_")))
        folder = getattr(args, name.replace("-", "_"))
        if folder is not None:
            wished.add(name, target, folder, on)
        elif on:
            raise InputError(f"--{min(on)} requires --{name}")
    return wished


def target_of(name: str, switches: Sequence[str] = ()) -> Target:
    """The installed target of this name, which must have these switches.

    Raises
    ------
    InputError
        There is none, or it has no such switch.
    """
    known = targets()
    if name not in known:
        raise InputError(f"there is no target {name[:40]!r}; name one of: {', '.join(known)}")
    strange = sorted({*switches} - known[name].switches.keys())
    if strange:
        has = ", ".join(known[name].switches) or "none at all"
        raise InputError(f"the target {name} has no switch {strange[0][:40]!r}; it has {has}")
    return known[name]


class Wished:
    """Targets with their folders: ``make`` all of them from one source, then ``write`` them.

    outputs : what each has made, by name; empty before ``make``
    """

    def __init__(self, *, force: bool = False) -> None:
        self.targets: dict[str, tuple[Target, Path, frozenset[str]]] = {}
        self.outputs: dict[str, Output] = {}
        self._force, self._manifest = force, cast("Manifest | None", None)

    def add(self, name: str, target: Target, folder: Path, switches: frozenset[str] = frozenset()) -> None:
        """Ask for a target too.

        Raises
        ------
        InputError
            The folder may not be written, or is already that of another target, and one of the two shares none.
        """
        check_folder(folder, target.folder, force=self._force)
        for other, (known, at, _) in self.targets.items():
            if at.absolute() == folder.absolute() and (known.folder, target.folder) != (MODELS, MODELS):
                raise InputError(f"--{other} and --{name} both name {folder}; give each a folder of its own")
        self.targets[name] = target, folder, switches

    @property
    def of_build_only(self) -> list[str]:
        """The names of those that a bundle alone is not enough for."""
        return [name for name, (target, *_) in self.targets.items() if not target.of_bundle]

    @property
    def mixes(self) -> bool:
        """Whether all of them can hold a policy that mixes two points."""
        return all(target.mixes for target, *_ in self.targets.values())

    def make(self, source: Source) -> None:
        """Make the files of every target, in memory.

        Raises
        ------
        InputError, BundleError
            A target cannot hold this policy.
        """
        if self.targets and source.loaded.joint is not None:
            raise InputError(
                f"items of several parts are decided from a bundle alone; leave out --{next(iter(self.targets))}"
            )
        self._manifest = source.loaded.manifest
        self.outputs = {name: t.make(source, folder, on) for name, (t, folder, on) in self.targets.items()}

    def write(self) -> None:
        """Write each folder whole or not at all; targets of models may share one.

        Raises
        ------
        InputError
            A folder cannot be written.
        """
        folders: dict[Path, list[str]] = {}
        for name, (_, folder, _) in self.targets.items():
            folders.setdefault(folder.absolute(), []).append(name)
        for folder, names in folders.items():
            kind = self.targets[names[0]][0].folder
            files = {path: data for name in names for path, data in self.outputs[name].files.items()}
            if kind == MODELS:
                files[DESCRIPTION] = self._description(names)
            with whole_folder(folder, kind, force=self._force) as new:
                for path, data in files.items():
                    (new / path).parent.mkdir(parents=True, exist_ok=True)
                    (new / path).write_bytes(data)

    def _description(self, names: list[str]) -> bytes:
        """What ``models.json`` says: of which policy these files are, and an entry for each of them."""
        manifest = self._manifest
        assert manifest is not None
        facts: dict[str, Any] = {"name": manifest.name, "classes": list(manifest.classes)}
        facts["categories"] = {name: list(texts) for name, texts in manifest.categories.items()}
        facts["models"] = [entry for name in names for entry in self.outputs[name].values]
        return f"{json.dumps(facts, indent=1, sort_keys=True)}\n".encode()

    @property
    def bundle(self) -> Path | None:
        """The bundle that one of the folders holds; None if none does."""
        return next((self.targets[n][1] / o.bundle for n, o in self.outputs.items() if o.bundle), None)

    def values(self) -> dict[str, Any]:
        """What ``--json`` prints: the entries of models by folder, and of any other target its own values by name."""
        models: dict[str, list[Any]] = {}
        others: dict[str, Any] = {}
        for name, output in self.outputs.items():
            target, folder, _ = self.targets[name]
            if target.folder == MODELS:
                models.setdefault(str(folder.absolute()), []).extend(output.values)
            else:
                others[name] = output.values
        return {**({"models": models} if models else {}), **others}

    def lines(self) -> list[str]:
        """What the terminal shows."""
        return [line for output in self.outputs.values() for line in output.lines]
