# SPDX-License-Identifier: Apache-2.0
"""``hardcase serve``: a gate behind HTTP, before back ends that a file names."""

from __future__ import annotations

import argparse
import gc
import os
from importlib.metadata import version
from pathlib import Path

from hardcase_edge.errors import InputError

HELP = "Serve a gate over HTTP: plain JSON, KServe v2 and the chat of OpenAI."
EXAMPLES = """\
hardcase serve gate.toml
HARDCASE_GATE_TOKEN=... hardcase serve gate.toml --bind 10.0.0.7:8091 --public"""
DEFAULT = "127.0.0.1:8091"
VARIABLE = "HARDCASE_GATE_TOKEN"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a .toml with the gate's folder and its back ends")
    parser.add_argument("--bind", default=DEFAULT, metavar="HOST:PORT", help=f"address to listen at ({DEFAULT})")
    parser.add_argument("--public", action="store_true", help="allow an address that other machines can reach")
    parser.add_argument("--trust", metavar="KEY", help="public key whose signature the bundle must carry")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    """Serve until stopped; the exit status."""
    from hardcase_cloud.commands.dashboard import check_token, listener_at, parse_bind
    from hardcase_cloud.commands.shared import log_lines, on_stop_signals, say

    host, port = parse_bind(args.bind, is_public=args.public)
    token = os.environ.get(VARIABLE)
    if token is not None:
        check_token(VARIABLE, token, "unset it, and only this machine is answered")
    elif args.public:
        raise InputError(f"other machines may ask only with a token; set {VARIABLE}")
    try:
        from hardcase_cloud.keep.dashboard.server import Server

        from ...serving.app import make_app
    except ImportError as error:
        raise InputError(f"the server needs {error.name}; pip install 'hardcase[gate]'") from error
    from ...api.gate import Gate
    from ...serving.settings import read_settings

    settings = read_settings(args.file)
    gate = Gate(
        settings.folder, deadline_ms=settings.call_ms, fallback=settings.fallback or None, trust=args.trust,
        budget_per_hour=settings.budget_per_hour, audit=settings.audit, drift=settings.drift,
        on_broken=settings.on_broken,
    )  # fmt: skip
    app = make_app(settings, gate, token, version("hardcase"))
    gate.check()
    listener, url = listener_at(host, port)
    log_lines("hardcase serve")
    server = Server(app)
    on_stop_signals(server.stop)
    gc.collect()
    gc.freeze()  # what is loaded stays: else a collection in mid-service looks at all of it
    say(args.json, "ready", {"url": url, "model": settings.name})
    server.run(sockets=[listener])
    counts = {f"{shape} {outcome}": n for (shape, outcome), n in sorted(app.state.counts.items())}
    say(args.json, "stopped", counts)
    return 0
