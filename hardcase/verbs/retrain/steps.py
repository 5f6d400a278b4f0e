# SPDX-License-Identifier: Apache-2.0
"""The steps of a retraining: the table of what came back, the build, the bundle, and its place in the signed list."""

from __future__ import annotations

import argparse
import csv
import io
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardcase_edge.base.files import read_bounded, write_whole
from hardcase_edge.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardcase_cloud.records.came_back import CameBack
    from hardcase_edge.bundle.load import Loaded
    from hardcase_train.data.config import Config

__all__ = ["SPLIT", "WEIGHT", "inputs_of", "noted", "sign", "train", "weights_of"]

SPLIT, WEIGHT = "hardcase split", "hardcase weight"  # columns of the table; a feature may not be called so
NOTE = "retrain.json"
REMEDY = "name another file"
LIST_LIFE_S = 30 * 86_400  # how long the signed list counts, as of hardcase keys


def inputs_of(args: argparse.Namespace, rows: Sequence[CameBack]) -> str:
    """A digest of all that decides what comes out: with the same one there is nothing to train."""
    digest = sha256()
    for path in (args.config, args.hpc, *args.bundle):
        digest.update(sha256(read_bounded(path, 1 << 31, "input", remedy=REMEDY)).digest())
    flags = [getattr(args, key) for key in ("audited", "with_old", "effort", "time_limit", "max_loss", "budget")]
    digest.update(json.dumps(flags).encode())
    for row in rows:
        digest.update(repr((row.device, row.boot, row.sequence, row.share, row.readings, row.label)).encode())
    return digest.hexdigest()


def noted(out: Path) -> str:
    """The inputs of the bundle that lies in this folder; "" if there is none."""
    try:
        note = json.loads(read_bounded(out / NOTE, 65_536, "note", remedy=REMEDY))
        same = sha256(read_bounded(out / "model.hcb", 1 << 28, "bundle", remedy=REMEDY)).hexdigest() == note["bundle"]
        return str(note["inputs"]) if same else ""
    except (InputError, ValueError, KeyError, TypeError):
        return ""


def train(args: argparse.Namespace, old: Loaded, rows: Sequence[CameBack], inputs: str) -> None:
    """Write the table, the build, the bundle and, when all of them are there, the note."""
    from hardcase_export.bundle import export_bundle

    from ...training.build import build, configure

    config = configure(args.config, effort=args.effort)
    if config.item_size is not None:
        raise InputError(f"{args.config} has an item size, which audits do not carry; train by hardcase train")
    path = args.out / "rows.csv"
    write_whole(path, _table(args, config, old, rows).encode())
    config = replace(
        config, file=path, split=SPLIT, weight=WEIGHT, group=None, drop=(), model=args.hpc, legacy=None,
        legacy_name="", params={},
    )  # fmt: skip
    from hardcase_train.methods import BASELINES

    where = {"jobs": args.jobs, "time_limit": args.time_limit, "quiet": True}
    front = build(config, (*config.methods, *BASELINES), args.out / "build", **where)[1]
    if front["hpc"]["sha256"] != old.manifest.hpc:
        raise InputError(
            f"{args.hpc} takes other types of readings than these rows have, or other costs of errors than those of "
            f"{args.config}, so its workers would answer no request of the new bundle; wait for more rows"
        )
    exported = export_bundle(
        args.out / "build", args.out / "model.hcb", max_loss=args.max_loss, budget=args.budget, key=args.sign
    )
    write_whole(args.out / NOTE, json.dumps({"inputs": inputs, "bundle": exported.sha256}).encode())


def weights_of(args: argparse.Namespace, rows: Sequence[CameBack]) -> NDArray[np.float64]:
    """How many decisions each row stands for, (n,).

    Raises
    ------
    InputError
        ``--audited`` is not a share above 0.
    """
    import numpy as np

    from hardcase_edge.outbox.flags import parse_share

    audited = 1.0 if args.audited is None else parse_share(args.audited, "--audited")
    return np.array([1 / row.share if row.is_case else 1 / audited for row in rows])


def sign(bundle: Path, folder: Path, private: Path | None) -> None:
    """List the bundle in a folder of signed metadata, as ``hardcase keys sign`` does.

    Raises
    ------
    InputError
        The folder or its keys cannot be used, or python-tuf is not installed.
    """
    try:
        from ...keys.repository import Lives, Places
        from ...keys.repository import sign as list_bundles
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("tuf", "securesystemslib"):
            raise
        raise InputError("the tuf package is missing; pip install 'hardcase[keys]'") from error
    from ...training.lock import locked
    from ..keys import keys_beside

    keys = private or keys_beside(folder)
    with locked(folder):
        data = bundle.read_bytes()
        list_bundles(Places(folder, keys, (keys,)), {bundle.name: data}, Lives(LIST_LIFE_S, 0), int(time.time()))


# ---------------------------------------------------------------- the table


def _table(args: argparse.Namespace, config: Config, old: Loaded, rows: Sequence[CameBack]) -> str:
    """The rows as CSV: features by name, the target, the part of each row, and its weight."""
    from hardcase_cloud.records.came_back import part_of

    manifest = old.manifest
    names = [manifest.features[f] for f in old.machine.program.uplink.features]
    clashes = {SPLIT, WEIGHT, config.target} & set(names)
    if clashes:
        raise InputError(f"a feature is called {min(clashes)!r}, which the table needs for itself; rename it")
    texts = [manifest.categories.get(name) for name in names]
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow([*names, config.target, SPLIT, WEIGHT])
    for row, weight in zip(rows, weights_of(args, rows).tolist(), strict=True):
        cells = [_cell(value, of) for value, of in zip(row.readings, texts, strict=True)]
        writer.writerow([*cells, row.label, part_of(row), repr(weight)])
    if args.with_old:
        writer.writerows(_old_rows(config, names))
    return file.getvalue()


def _cell(value: Any, texts: Sequence[str] | None) -> Any:
    """A reading in the table: a number, the text of a category's code, or nothing."""
    if value is None:
        return ""
    if texts is None:
        return repr(value)
    return texts[value] if type(value) is int and 0 <= value < len(texts) else ""


def _old_rows(config: Config, names: Sequence[str]) -> Iterator[list[Any]]:
    """The rows of the configuration's own table, all of them to train on."""
    from hardcase_train.data.table import read_table
    from hardcase_train.tasks.target import target_labels

    table = read_table(config.file)
    lacking = [name for name in names if name not in table.names and name not in table.labels]
    if lacking:
        raise InputError(f"{config.file} lacks {lacking[0]!r}, which requests carry; leave out --with-old")
    columns = [
        [None if x != x else x for x in table.X[:, table.names.index(name)].tolist()]
        if name in table.names
        else table.labels[name].tolist()
        for name in names
    ]
    for *cells, label in zip(*columns, target_labels(table, config.target), strict=True):
        yield [*("" if cell is None else cell for cell in cells), label, "train", "1.0"]
