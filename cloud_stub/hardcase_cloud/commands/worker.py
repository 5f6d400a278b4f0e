# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud worker``: answer the requests of devices at a broker."""

from __future__ import annotations

import argparse
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hardcase_edge.errors import InputError

from .shared import (
    broker_argument,
    broker_of,
    hpc_named,
    is_nats,
    log_lines,
    number,
    on_stop_signals,
    open_model,
    positive,
    say,
    tenant_argument,
    tls_arguments,
)

if TYPE_CHECKING:
    from ..answer.asking import Answerer
    from ..keep.records.cases import Cases

HELP = "Answer the requests of devices at a broker."
STANDSTILL_S = 30.0  # a worker whose loop has not gone on for so long ends itself
STUCK = 75  # exit status of a worker that another process must replace: EX_TEMPFAIL of sysexits.h


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    broker_argument(parser)
    parser.add_argument("--count", type=positive, metavar="N", help="exit after this many answers")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus' metrics at this loopback address")
    parser.add_argument("--cases", metavar="URL", help="keep answered requests in this store, for cloud retrain")
    parser.add_argument("--cases-share", default="100%", metavar="SHARE", help="share of the requests to keep (100%%)")
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="exit when the parent process exits (used by cloud up)"
    )
    model_arguments(parser)


def model_arguments(command: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Declare the flags of a worker's model, also those of TLS; ``is_required``: whether ``--hpc`` is."""
    parser = command.add_argument_group("the model")
    parser.add_argument(
        "--hpc",
        required=is_required,
        type=hpc_named,
        metavar="MODEL",
        help="hpc.onnx of hardcase train, your own Python module:function, kserve+http://host/v2/models/NAME, or a "
        "large model, openai+https://host/v1?model=NAME&key=VARIABLE (the key's environment variable), or the "
        "hardcase.toml whose [hpc] url names one",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        help="with module:function or a server: a bundle that forwards to it, which defines the contents of requests",
    )
    parser.add_argument(
        "--limit-ms",
        type=_limit,
        metavar="MS",
        help="with module:function or a server: how long one call may take (default 700, of a large model 10000)",
    )
    parser.add_argument("--threads", type=positive, default=1, help="threads of each worker's model (default 1)")
    parser = command.add_argument_group("batches and groups")
    parser.add_argument(
        "--max-batch",
        type=positive,
        default=32,
        metavar="N",
        help="largest number of requests answered in one run of the model (default 32)",
    )
    parser.add_argument(
        "--linger-ms",
        type=_milliseconds,
        default=2.0,
        metavar="MS",
        help="how long the first request of a batch waits (default 2)",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="name of the group of workers that share requests (default: one per HPC and password)",
    )
    tenant_argument(command)
    tls_arguments(command)


def _milliseconds(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"{value} is not between 0 and 10000")
    return value


def _limit(text: str) -> float:
    value = number(text)
    if not 1 <= value <= 600_000:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and 600000")
    return value


def run(args: argparse.Namespace) -> int:
    """Answer until stopped; the exit status."""
    from hardcase_edge.fleet.operations.scrape import Page

    from ..answer.service import Service, ServiceConfig
    from ..answer.supervisor import Watchdog
    from ..answer.worker import Worker, default_group
    from ..keep.metrics.families import worker_text

    address, url = broker_of(args)
    hpc = _open_hpc(args)
    cases = open_cases(args.cases, args.cases_share, hpc.sha256)
    config = ServiceConfig(max_batch=args.max_batch, linger_ms=args.linger_ms)
    service = Service(hpc, config, on_answer=None if cases is None else cases.add)
    watchdog = Watchdog(_standstill_s(args))
    group = args.group or default_group(hpc.sha256, address.password)
    worker = Worker(service, address, group, on_step=watchdog.feed, tenant=args.tenant, is_nats=is_nats(args.broker))
    on_stop_signals(worker.stop)
    if args.until_stdin_closes:
        threading.Thread(target=_when_stdin_closes, args=(worker.stop,), daemon=True).start()
    connection_log = logging.getLogger("hardcase_cloud.mqtt.attempts")
    connection_log.addHandler(logging.NullHandler())  # connection errors at start are raised; do not log them too

    def counters() -> dict[str, int]:
        figures = getattr(hpc, "figures", dict)  # of a large model: tokens and their cost
        return {**worker.counters(), **figures(), **({} if cases is None else cases.figures())}

    page = None if args.metrics is None else Page(args.metrics, lambda: worker_text(counters()))
    worker.start()
    log_lines()
    ready = {"broker": url, "mqtt": worker.protocol, "hpc": hpc.sha256, "pid": os.getpid()}
    say(args.json, "ready", ready)
    worker.run(args.count)
    watchdog.close()
    if cases is not None:
        cases.close()
    if page is not None:
        page.close()
    say(args.json, "stopped", counters())
    if service.is_stuck:
        os._exit(STUCK)  # a thread that hangs must not hold the process
    return 0


def _open_hpc(args: argparse.Namespace) -> Answerer:
    check_hpc(args)
    limit_s = None if args.limit_ms is None else _limit_s(args)
    return open_model(args.hpc, args.bundle, limit_s=limit_s, threads=args.threads)


def _limit_s(args: argparse.Namespace) -> float:
    """The longest time of one call of a function; 0 for a model, whose runs are not timed."""
    if args.bundle is None:
        return 0.0
    from ..answer.function import LIMIT_S

    return LIMIT_S if args.limit_ms is None else float(args.limit_ms) / 1000


def _standstill_s(args: argparse.Namespace) -> float:
    """How long the loop may stand still: a batch that fails is asked again row by row."""
    return max(STANDSTILL_S, (int(args.max_batch) + 2) * _limit_s(args))


def check_hpc(args: argparse.Namespace) -> None:
    """Check that --bundle is given with a function, and that it and --limit-ms are only then."""
    from hardcase_edge.sensors.plugin import is_function_name

    from ..backends.backend import backend_of

    backend = backend_of(args.hpc)
    is_function = backend is not None or is_function_name(args.hpc)
    if is_function and args.bundle is None:
        what = f"{args.hpc} is a function" if backend is None else f"is {backend.what}"  # its URL may hold a key
        raise InputError(f"--hpc {what}; name a bundle that forwards to it with --bundle model.hcb")
    if args.bundle is not None and not is_function:
        raise InputError(
            f"--bundle requires --hpc module:function; {args.hpc} is a file and defines the contents of requests"
        )
    if args.limit_ms is not None and not is_function:
        raise InputError(f"--limit-ms requires --hpc module:function; {args.hpc} is a file, whose runs are not timed")


def _when_stdin_closes(stop: Callable[[], None]) -> None:
    while os.read(0, 4096):
        pass
    stop()


def open_cases(url: str | None, share: str, hpc: str) -> Cases | None:
    """Begin to keep cases in this store; None if there is no ``--cases``.

    Raises
    ------
    InputError
        The store cannot be used now, or the share is not a percentage above 0.
    """
    if url is None:
        return None
    from hardcase_edge.settings.values import parse_share

    from ..keep.records.cases import Cases
    from ..keep.records.database import Database

    part = parse_share(share, "--cases-share")
    Database(url).close()  # a store that cannot be used at the start is a mistake of the user's
    cases = Cases(lambda: Database(url), hpc, part)
    cases.start()
    return cases
