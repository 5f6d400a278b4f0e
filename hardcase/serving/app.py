# SPDX-License-Identifier: Apache-2.0
"""The application of a gate's server: each request is answered or refused by its deadline, and counted once.

Without a token only pages of this machine may ask: the Host must be one of loopback, and the body declared as JSON,
which a browser does not send to other sites without asking first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hardcase_cloud.backends.json_http import json_object
from hardcase_cloud.keep.dashboard.app import SHOWN, Guard, body_of
from hardcase_edge.fleet.operations.metrics import Metrics, lines

from ..api.gate import Gate
from .backends import BackEnds
from .settings import Settings
from .shapes import Asked, RefusedError, answered, asked_in

MAX_BODY = 1024 * 1024
BODY_S = 5.0  # for it to come
MOST_AT_ONCE = 256  # requests that are being decided
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


def make_app(settings: Settings, gate: Gate, token: str | None, version: str) -> Starlette:
    """The application.

    Parameters
    ----------
    gate : gets its functions here
    token : what a client must have; None: only clients of this machine are answered
    """
    backends = BackEnds(settings, gate)
    counts: Counter[tuple[str, str]] = Counter()
    metrics = Metrics(settings.name, gate.sha256, gate.unit, version)
    name, n_open = settings.name, 0

    async def decided(asked: Asked) -> Any:
        answer = await gate.adecide(asked, budget=asked.budget, within_ms=settings.deadline_ms)
        route = "degraded" if answer.failed else "local"
        metrics.decided({"route": route, "failed": answer.failed, "cost": answer.price, "latency_ms": answer.ms})
        return answer

    async def reply_to(shape: str, request: Request) -> dict[str, Any]:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError(415, "bad", "send JSON, with Content-Type: application/json")
        try:
            body = await asyncio.wait_for(body_of(request, MAX_BODY), BODY_S)
        except (TimeoutError, ClientDisconnect):
            raise RefusedError(408, "slow", f"the body did not come within {BODY_S:g} seconds") from None
        if body is None:
            raise RefusedError(413, "large", f"the body has more than {MAX_BODY} bytes")
        try:
            said = json_object(body)
            asked = asked_in(shape, said, name)
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(400, "bad", f"the body is no request of this gate: {str(error)[:200]}") from error
        answers = [await decided(asked[0])] if len(asked) == 1 else await asyncio.gather(*map(decided, asked))
        return answered(shape, answers, name, said)

    def counted(shape: str) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            nonlocal n_open
            outcome, n_open = "failed", n_open + 1
            try:
                if n_open > MOST_AT_ONCE:
                    raise RefusedError(503, "busy", f"{MOST_AT_ONCE} requests are being decided; ask again later")
                response = JSONResponse(await reply_to(shape, request))
                outcome = "answered"
            except RefusedError as error:
                outcome = error.outcome
                what: Any = {"message": str(error), "type": outcome} if shape == "openai" else str(error)
                response = JSONResponse({"error": what}, error.status, {"Connection": "close"})
            finally:
                n_open -= 1
                counts[shape, outcome] += 1
            return response

        return handle

    async def page(_: Request) -> Response:
        samples = [({"shape": shape, "outcome": outcome}, n) for (shape, outcome), n in sorted(counts.items())]
        own = "".join(lines("hardcase_gate_requests_total", "counter", "Requests by how they ended.", samples))
        return Response(metrics.text(gate.facts()) + own, media_type="text/plain; version=0.0.4; charset=utf-8")

    def fixed(value: dict[str, Any]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(_: Request) -> Response:
            return JSONResponse(value)

        return handle

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await backends.close()
        gate.close()

    tensor = {"name": "input", "datatype": "BYTES", "shape": [-1]}
    outputs = [{"name": "label", "datatype": "BYTES", "shape": [-1]}]
    outputs += [{"name": key, "datatype": "FP64", "shape": [-1]} for key in ("confidence", "price")]
    about = {"name": name, "platform": "hardcase", "versions": [], "inputs": [tensor], "outputs": outputs}
    models = {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "hardcase"}]}
    routes = [
        Route("/ask", counted("json"), methods=["POST"]), Route("/metrics", page),
        Route("/v1/chat/completions", counted("openai"), methods=["POST"]), Route("/v1/models", fixed(models)),
        Route("/v2", fixed({"name": "hardcase", "version": version, "extensions": []})),
        Route("/v2/health/live", fixed({"live": True})), Route("/v2/health/ready", fixed({"ready": True})),
        Route(f"/v2/models/{name}", fixed(about)),
        Route(f"/v2/models/{name}/ready", fixed({"name": name, "ready": True})),
        Route(f"/v2/models/{name}/infer", counted("kserve"), methods=["POST"]),
    ]  # fmt: skip
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.end_streams = lambda: None
    app.state.counts = counts
    if token is None:
        app.add_middleware(_OnlyHere)
    else:
        app.add_middleware(Guard, token=token)
    return app


class _OnlyHere:
    """Lets through what names this machine as its host, so that no page of another site asks through a browser."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if (host if host.endswith("]") else host.rpartition(":")[0] or host) not in LOCAL_HOSTS:
                await Response(status_code=421, headers={"Connection": "close"})(scope, receive, send)
                return
            scope.get(SHOWN, bool)()
        await self._app(scope, receive, send)
