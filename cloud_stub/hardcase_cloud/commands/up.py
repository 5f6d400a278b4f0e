# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud up``: a broker, unless one is named, and workers that are started again when they end."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from .shared import broker_of, on_stop_signals, say
from .worker import check_hpc, model_arguments

if TYPE_CHECKING:
    from ..answer.supervisor import Supervisor

HELP = "Start a broker (unless one is named) and workers."
MAX_WORKERS = 64
POLL_S = 0.2


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--broker", metavar="URL", help="mqtt[s]://host:port of your broker (default: the embedded one)")
    where.add_argument(
        "--bind", metavar="HOST:PORT", help="loopback address of the embedded broker (default 127.0.0.1:1883)"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="number of worker processes (0: the broker alone)"
    )
    model_arguments(parser, is_required=False)


def run(args: argparse.Namespace) -> int:
    """Start what was asked for, and watch it until stopped; the exit status."""
    if not 0 <= args.workers <= MAX_WORKERS:
        raise InputError(f"--workers is {args.workers}; expected 0 to {MAX_WORKERS}")
    if args.workers and args.hpc is None:
        raise InputError("workers need --hpc; name f0, or start the broker alone with --workers 0")
    if args.hpc is not None:
        check_hpc(args)
    stop = threading.Event()
    on_stop_signals(stop.set)
    if args.broker is not None:
        address, url = broker_of(args)
        return _supervise(args, url, _secret(address.user, address.password), stop)
    if args.ca or args.cert or args.key or args.tenant:
        raise InputError(
            "--ca, --cert, --key and --tenant require --broker; the embedded broker has neither TLS nor tenants"
        )
    if args.workers > 1:
        raise InputError(
            f"--workers is {args.workers}, but the embedded broker cannot share requests between workers; "
            "name your own broker with --broker, or use --workers 1"
        )
    return _up_embedded(args, stop)


def _up_embedded(args: argparse.Namespace, stop: threading.Event) -> int:
    from ..broker.embedded import EmbeddedBroker
    from ..broker.listen import DEFAULT_BIND, parse_bind

    with EmbeddedBroker(*parse_bind(args.bind or DEFAULT_BIND)) as broker:
        return _supervise(args, broker.url, _secret("", ""), stop)


def _secret(user: str, password: str) -> dict[str, str]:
    """A worker's environment; it carries the password, because command lines are visible to other users."""
    return {**os.environ, "HARDCASE_MQTT_USER": user, "HARDCASE_MQTT_PASSWORD": password}


def _supervise(args: argparse.Namespace, url: str, environment: dict[str, str], stop: threading.Event) -> int:
    from ..answer.supervisor import Supervisor

    command = [sys.executable, "-m", "hardcase.cli", "cloud", "worker", *_worker_flags(args, url)]
    workers = [Supervisor(command, environment, lambda event: _relay(args.json, event)) for _ in range(args.workers)]
    try:
        for worker in workers:
            worker.start(stop.is_set)
        if not stop.is_set():
            say(args.json, "ready", {"broker": url, "workers": [w.pid for w in workers]})
        while not stop.is_set():  # not wait(): the signal handler that sets it runs on this thread
            time.sleep(POLL_S)
    finally:
        _stop_all(workers)
    say(args.json, "stopped", {"restarts": sum(w.restarts for w in workers)})
    return 0


def _worker_flags(args: argparse.Namespace, url: str) -> list[str]:
    flags = ["--until-stdin-closes", "--json", "--broker", url, "--hpc", args.hpc, "--threads", str(args.threads)]
    flags += ["--max-batch", str(args.max_batch), "--linger-ms", str(args.linger_ms)]
    for name in ("bundle", "limit_ms", "group", "tenant", "ca", "cert", "key"):
        if getattr(args, name):
            flags += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    return flags


def _stop_all(workers: list[Supervisor]) -> None:
    threads = [threading.Thread(target=worker.stop) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _relay(as_json: bool, event: dict[str, Any]) -> None:
    name = event.pop("event")
    say(as_json, name if name.startswith("worker") else f"worker-{name}", event)
