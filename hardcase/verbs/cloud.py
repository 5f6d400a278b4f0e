# SPDX-License-Identifier: Apache-2.0
"""``hardcase cloud``: a broker and its worker (``up``), workers alone, and the commands of ``services``."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hardcase_edge.errors import InputError

from ..services import acl, check_broker, dashboard, enrol, label, offer, rollout, store
from ..services.engines import broker_of, open_model
from ..services.events import log_lines, on_stop_signals, say
from ..services.flags import broker_argument, number, positive, tenant_argument, tls_arguments
from . import audits, retrain

if TYPE_CHECKING:
    from hardcase_cloud.answer.asking import Answerer
    from hardcase_cloud.answer.supervisor import Supervisor

__all__ = ["EXAMPLES", "HELP", "TERMS", "arguments", "run"]

HELP = "Answer forwarded cases and keep decisions: start a broker, a worker or a store, or set up your own broker."
EXAMPLES = """\
hardcase cloud up --hpc build/hpc.onnx              # on this machine, to try it
hardcase cloud worker --hpc build/hpc.onnx --broker mqtts://broker.example:8883 --ca ca.pem
hardcase cloud store --store sqlite:decisions.sqlite --broker mqtts://broker.example:8884 --ca ca.pem
hardcase cloud offer model.hcb --metadata fleet --device pump-7 --broker mqtts://broker.example:8884 --ca ca.pem
hardcase cloud acl --broker mosquitto --devices devices.txt --out /etc/mosquitto/hardcase   # for a broker of yours"""
TERMS = "broker: the MQTT server between devices and workers; worker: a process that runs f0, the large model"
MAX_WORKERS = 64
POLL_S = 0.2
STANDSTILL_S = 30.0  # a worker whose loop has not gone on for so long ends itself
STUCK = 75  # exit status of a worker that another process must replace: EX_TEMPFAIL of sysexits.h


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of all commands."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _up_arguments(commands.add_parser("up", help="Start a broker (unless one is named) and workers."))
    _worker_arguments(commands.add_parser("worker", help="Answer the requests of devices at a broker."))
    services = {
        "store": store, "label": label, "rollout": rollout, "dashboard": dashboard, "enrol": enrol, "acl": acl,
        "offer": offer, "check-broker": check_broker, "retrain": retrain, "audits": audits,
    }  # fmt: skip
    for name, service in services.items():
        service.arguments(commands.add_parser(name, help=service.HELP, description=service.HELP))


def run(args: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _model_arguments(command: argparse.ArgumentParser) -> None:
    parser = command.add_argument_group("the model")
    parser.add_argument(
        "--hpc",
        required=True,
        metavar="MODEL",
        help="hpc.onnx of hardcase train, your own Python module:function, or kserve+http://host/v2/models/NAME",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        help="with module:function: a bundle that forwards to it, which defines the contents of requests",
    )
    parser.add_argument(
        "--limit-ms",
        type=_limit,
        metavar="MS",
        help="with module:function: how long one call may take before its thread is abandoned (default 700)",
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


def _up_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--broker", metavar="URL", help="mqtt[s]://host:port of your broker (default: the embedded one)")
    where.add_argument(
        "--bind", metavar="HOST:PORT", help="loopback address of the embedded broker (default 127.0.0.1:1883)"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="number of worker processes (0: the broker alone)"
    )
    _model_arguments(parser)
    parser.set_defaults(act=_up)


def _worker_arguments(parser: argparse.ArgumentParser) -> None:
    broker_argument(parser)
    parser.add_argument("--count", type=positive, metavar="N", help="exit after this many answers")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus' metrics at this loopback address")
    parser.add_argument("--cases", metavar="URL", help="keep answered requests in this store, for cloud retrain")
    parser.add_argument("--cases-share", default="100%", metavar="SHARE", help="share of the requests to keep (100%%)")
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="exit when the parent process exits (used by cloud up)"
    )
    _model_arguments(parser)
    parser.set_defaults(act=_worker)


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


# ---------------------------------------------------------------- worker


def _worker(args: argparse.Namespace) -> int:
    from hardcase_cloud.answer.service import Service, ServiceConfig
    from hardcase_cloud.answer.supervisor import Watchdog
    from hardcase_cloud.answer.worker import Worker, default_group
    from hardcase_cloud.keep.metrics.families import worker_text
    from hardcase_edge.fleet.operations.scrape import Page

    from ..services.cases import open_cases

    address = broker_of(args)
    hpc = _open_hpc(args)
    cases = open_cases(args.cases, args.cases_share, hpc.sha256)
    config = ServiceConfig(max_batch=args.max_batch, linger_ms=args.linger_ms)
    service = Service(hpc, config, on_answer=None if cases is None else cases.add)
    watchdog = Watchdog(_standstill_s(args))
    group = args.group or default_group(hpc.sha256, address.password)
    worker = Worker(service, address, group, on_step=watchdog.feed, tenant=args.tenant)
    on_stop_signals(worker.stop)
    if args.until_stdin_closes:
        threading.Thread(target=_when_stdin_closes, args=(worker.stop,), daemon=True).start()
    connection_log = logging.getLogger("hardcase_cloud.mqtt.attempts")
    connection_log.addHandler(logging.NullHandler())  # connection errors at start are raised; do not log them too

    def counters() -> dict[str, int]:
        return {**worker.counters(), **({} if cases is None else cases.figures())}

    page = None if args.metrics is None else Page(args.metrics, lambda: worker_text(counters()))
    worker.start()
    log_lines()
    ready = {"broker": address.url, "mqtt": worker.protocol, "hpc": hpc.sha256, "pid": os.getpid()}
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
    _check_hpc(args)
    return open_model(args.hpc, args.bundle, limit_s=_limit_s(args), threads=args.threads)


def _limit_s(args: argparse.Namespace) -> float:
    """The longest time of one call of a function; 0 for a model, whose runs are not timed."""
    if args.bundle is None:
        return 0.0
    from hardcase_cloud.answer.function import LIMIT_S

    return LIMIT_S if args.limit_ms is None else float(args.limit_ms) / 1000


def _standstill_s(args: argparse.Namespace) -> float:
    """How long the loop may stand still: a batch that fails is asked again row by row."""
    return max(STANDSTILL_S, (int(args.max_batch) + 2) * _limit_s(args))


def _check_hpc(args: argparse.Namespace) -> None:
    """Check that --bundle is given with a function, and that it and --limit-ms are only then."""
    from hardcase_cloud.answer.backends import backend_of
    from hardcase_edge.sensors.plugin import is_function_name

    backend = backend_of(args.hpc)
    is_function = backend is not None or is_function_name(args.hpc)
    if is_function and args.bundle is None:
        what = "a function" if backend is None else backend.what
        raise InputError(f"--hpc {args.hpc} is {what}; name a bundle that forwards to it with --bundle model.hcb")
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


# ---------------------------------------------------------------- up


def _up(args: argparse.Namespace) -> int:
    if not 0 <= args.workers <= MAX_WORKERS:
        raise InputError(f"--workers is {args.workers}; expected 0 to {MAX_WORKERS}")
    _check_hpc(args)
    stop = threading.Event()
    on_stop_signals(stop.set)
    if args.broker is not None:
        address = broker_of(args)
        return _supervise(args, address.url, _secret(address.user, address.password), stop)
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
    from hardcase_cloud.broker.embedded import EmbeddedBroker
    from hardcase_cloud.broker.listen import DEFAULT_BIND, parse_bind

    with EmbeddedBroker(*parse_bind(args.bind or DEFAULT_BIND)) as broker:
        return _supervise(args, broker.url, _secret("", ""), stop)


def _secret(user: str, password: str) -> dict[str, str]:
    """A worker's environment; it carries the password, because command lines are visible to other users."""
    return {**os.environ, "HARDCASE_MQTT_USER": user, "HARDCASE_MQTT_PASSWORD": password}


def _supervise(args: argparse.Namespace, url: str, environment: dict[str, str], stop: threading.Event) -> int:
    from hardcase_cloud.answer.supervisor import Supervisor

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
