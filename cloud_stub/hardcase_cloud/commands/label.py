# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud label``: have f0 answer the audits in a store, so that agreement is known."""

from __future__ import annotations

import argparse
import threading
import time

from hardcase_edge.errors import InputError

from .shared import hpc_named, on_stop_signals, open_model, say, store_argument, warn

HELP = "Have f0 answer the audits in a store, or add labels that people gave, next to the devices' answers."
PAUSE_S = 1.0  # between two looks for new audits
RETRY_S = 10.0  # after a look that failed, as where a database restarts
ROUNDS = 4  # of a large model's requests, after which the labels are kept


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    store_argument(parser)
    parser.add_argument("--hpc", type=hpc_named, metavar="MODEL", help="f0, as of cloud worker")
    parser.add_argument("--bundle", required=True, metavar="FILE", help="a bundle that forwards to it: its classes")
    parser.add_argument(
        "--labels", metavar="FILE",
        help="in place of --hpc: a CSV file of what people say, with device, boot, sequence and label",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="end when no audit waits (default: wait for more)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Label until stopped; the exit status."""
    from hardcase_edge.bundle.load import load_bundle

    from ..keep.records.database import Database
    from ..keep.records.labels import BATCH, Labelling, Labels, read_labels
    from ..keep.records.standing import promise

    loaded = load_bundle(args.bundle)
    classes = loaded.manifest.classes
    if not classes:
        raise InputError(f"{args.bundle} answers values, and agreement is known for classes alone")
    if (args.hpc is None) == (args.labels is None):
        raise InputError("name either f0 with --hpc, or a file of labels with --labels")
    if args.labels is not None:
        by_people = read_labels(args.labels, [str(c) for c in classes])
        database = Database(args.store, makes=False)
        n = Labels(database).label_by_person(by_people, time.time())
        database.close()
        say(args.json, "labelled", {"records": n, "unknown": len(by_people) - n})
        return 0
    model = open_model(args.hpc, args.bundle)
    if loaded.manifest.hpc not in ("", model.sha256):
        raise InputError(f"{args.bundle} asks another f0 than that of --hpc; name a bundle that asks this one")
    database, stop = Database(args.store, makes=False), threading.Event()
    at_once = getattr(model, "at_once", None)  # of a large model, whose answers are paid: they are kept soon
    labelling = Labelling(Labels(database), model, classes, BATCH if at_once is None else ROUNDS * at_once)
    promise(database, loaded.bundle.sha256, loaded.manifest.claims, loaded.manifest.shipped)
    on_stop_signals(stop.set)
    say(args.json, "ready", {"store": database.dialect.name, "hpc": model.sha256})
    n_all = agreed_all = 0
    has_looked, trouble = False, ""
    while not stop.is_set():
        try:
            n, agreed = labelling.some()
        except InputError as error:
            if args.once or not has_looked:
                raise
            if str(error) != trouble:
                trouble = str(error)
                warn(f"{trouble}; trying again every {RETRY_S:g} s")
            stop.wait(RETRY_S)
            continue
        has_looked, trouble = True, ""
        n_all, agreed_all = n_all + n, agreed_all + agreed
        if not labelling.n_found and (args.once or stop.wait(PAUSE_S)):
            break
    database.close()
    failed = {"failed": len(labelling.failed)} if labelling.failed else {}
    say(args.json, "stopped", {"audits": n_all, "agree": agreed_all, **failed})
    return 0
