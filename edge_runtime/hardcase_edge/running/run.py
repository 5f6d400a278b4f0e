# SPDX-License-Identifier: Apache-2.0
"""The verb ``run``: what a process runs one after the other.

With a store, a run that ends because a trial has failed is followed by a run of what the store had before; a reload
ends a run, too, if a newer bundle is there. What else a run does is in ``operations``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..device.output import Lines, note
from ..errors import HardcaseError
from .one_run import Process, run_bundle
from .signals import interrupt, on_end, on_reload

if TYPE_CHECKING:
    import argparse

    from ..bundle.load import Loaded

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Decide until the items end, until somebody ends it, or for a number of decisions; returns the exit status.

    Raises
    ------
    HardcaseError
        It cannot start, or another device uses its id.
    BrokenPipeError
        The reader of standard output has left, and there is no broker.
    """
    from .. import __version__
    from ..bundle.load import load_bundle
    from ..operations.beside import Beside
    from .arguments import anchor, check_arguments, config_of

    check_arguments(args)
    on_end(interrupt)
    beside = Beside(args, note, __version__)
    on_reload(beside.reload.ask)
    config = config_of(args)
    loaded = load_bundle(args.bundle, trust=args.trust, allow_joint=True) if args.store is None else None
    anchor(args)
    output = Lines(ends_with_reader=args.broker is None, is_last=args.is_process, tell=beside.note)
    with output as lines, beside:
        process = Process(args, config, lines, beside)
        if loaded is not None:
            _run_file(process, loaded)
        else:
            _run_store(process)
    return 0


def _run_file(process: Process, loaded: Loaded) -> None:
    """Run a bundle, and after a reload what its file holds then."""
    from ..operations.reload import newer

    args, reload = process.args, process.beside.reload
    news: list[Loaded] = [loaded]

    def has_news() -> bool:
        new = newer(args.bundle, args.trust, news[-1], note)
        news.extend([new] if new is not None else [])
        return new is not None

    while True:
        run_bundle(process, news[-1], has_news)
        on_end(interrupt)
        if not reload.take():
            return


def _run_store(process: Process) -> None:
    """Run what the store has, and after a trial that has failed or a reload what it has then."""
    from ..bundle.load import load_bundle
    from ..errors import BundleError, SignatureError
    from ..operations.reload import has_news
    from ..store.folder import Store
    from ..store.run import Run
    from .arguments import rules_of

    args, beside = process.args, process.beside
    rules, store = rules_of(args), Store(args.store)
    while True:
        stored = Run(store, store.start(), rules, beside.note)
        try:
            try:
                loaded = load_bundle(stored.started.path, trust=args.trust, allow_joint=True)
            except BundleError as error:
                if not isinstance(error, SignatureError):  # a wrong --trust is not the bundle's fault
                    stored.fail(str(error))
                raise
            news = partial(has_news, store, stored.started, beside.note)
            run_bundle(process, loaded, news, store=store, stored=stored)
        except HardcaseError:
            if not stored.has_failed:
                stored.stop()
                raise
        except (BrokenPipeError, KeyboardInterrupt):
            stored.stop()
            raise
        on_end(interrupt)
        is_reload = beside.reload.take()
        if stored.is_told or not stored.has_failed:
            stored.stop()
            if stored.is_told or not is_reload:
                return
