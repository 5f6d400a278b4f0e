# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: a page, its files, one stream of events for all watchers, and buttons for roll-outs.

Whoever has the token may see and stop; everybody else gets 401 and an empty body, whatever the path. The token comes
as ``Authorization: Bearer``, or once as ``/?token=``, which becomes a cookie that scripts cannot read and other sites
cannot send. Then the page is asked for again without the token: by a redirect where the address was typed, and by the
answer itself elsewhere, because a browser that was sent here, as by a file, does not send the cookie on a redirect.
A proxy that has logged its users in needs no token: its address is the proof, and its own pages may frame ours. All
addresses in pages are relative, because such a proxy serves them below a path of its own.
A button also needs a header that other sites cannot send. One task reads the store, once a second while somebody
watches, and all watchers get the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hardcase_edge.errors import InputError

from ..metrics.families import fleet_text
from .figures import Figures
from .labelling import parse_fields

COOKIE = "hardcase"
SHOWN = "hardcase.shown"  # key in a request's scope: what a server wants to be called when the token has been shown
LOOK_S = 1.0  # between two looks at the store
BEAT_S = 15.0  # a stream that has nothing new says that it lives
MOST_WATCHERS = 500
MOST_DIGITS = 100  # of a roll-out's number in an address; Python reads no number of more than 4,300
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PAGES = ("index.html", "label.html")
FILES = ("page.js", "page.css", "label.js", "shared.js", "uPlot.iife.min.js", "uPlot.min.css")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
}  # fmt: skip
UNFRAMED, FRAMED = "frame-ancestors 'none'", "frame-ancestors 'self'"
ALONE = "default-src 'none'; sandbox; frame-ancestors 'none'"  # what devices have sent runs nothing, wherever it opens
WISHES = ("pause", "resume", "stop")
MAX_BODY = 65_536  # bytes that a page sends
BODY_S = 5.0  # for them to come


class Feed:
    """The latest figures as bytes, and a task that renews them while somebody watches."""

    def __init__(self, figures: Figures, now: Callable[[], float]) -> None:
        self.figures, self._now = figures, now
        self.watchers = 0
        self.data = b""
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._reading = asyncio.Lock()  # one thread at a time uses the store's connection
        self._looked_at = -LOOK_S
        self._is_over = False

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            if not self.watchers:
                self._wanted.clear()
                await self._wanted.wait()
            began = time.monotonic()
            try:
                await self.renew()
            except Exception:  # the next look may succeed, and without it all pages would stand still
                logging.getLogger(__name__).exception("a look at the store failed")
            await asyncio.sleep(max(0.05, LOOK_S - (time.monotonic() - began)))

    async def fresh(self) -> None:
        """Look if nobody has looked yet, or nobody watches and the last look is over."""
        if not self.data or (not self.watchers and time.monotonic() - self._looked_at >= LOOK_S):
            await self.renew()

    async def renew(self) -> None:
        """Look once; wake the watchers if something is new."""
        self._looked_at = time.monotonic()
        data = json.dumps(await self.call(lambda: self.figures.look(self._now())), separators=(",", ":")).encode()
        if data != self.data:
            self.data = data
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def call(self, act: Callable[[], Any]) -> Any:
        """Use the store, in a thread."""
        async with self._reading:
            return await asyncio.to_thread(act)

    async def events(self) -> AsyncIterator[bytes]:
        """A watcher's stream."""
        self.watchers += 1
        self._wanted.set()
        last = b""
        try:
            while not self._is_over:
                changed = self._changed
                if self.data != last:
                    last = self.data
                    yield b"data: " + last + b"\n\n"
                try:
                    await asyncio.wait_for(changed.wait(), BEAT_S)
                except TimeoutError:
                    yield b"event: beat\ndata: 1\n\n"
        finally:
            self.watchers -= 1

    def end(self) -> None:
        """End all streams."""
        self._is_over = True
        self._changed.set()


def make_app(figures: Figures, token: str, *, ingress: str = "", now: Callable[[], float] = time.time) -> Starlette:
    """The application.

    Parameters
    ----------
    figures : of the store; the application uses it from one thread at a time
    token : what a watcher must have
    ingress : address of a proxy whose requests need no token

    Returns
    -------
    Starlette
        ``state.end_streams()`` ends the streams of all watchers.
    """
    feed, labelling = Feed(figures, now), figures.labelling
    contents = {name: files(__package__).joinpath("page", name).read_bytes() for name in (*PAGES, *FILES)}

    async def page(request: Request) -> Response:
        if "token" in request.query_params:
            is_typed = request.headers.get("sec-fetch-site") == "none"
            answer = RedirectResponse("./", 303) if is_typed else Response(headers={"Refresh": "0; url=./"})
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", max_age=30 * 86_400)
            return answer
        await feed.fresh()
        first = feed.data.replace(b"<", b"\\u003c")  # within an element of the page, where "<" could end it
        return Response(contents["index.html"].replace(b"{}", first, 1), media_type="text/html")

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            return Response(status_code=404)
        return Response(
            contents[name], media_type=TYPES[name.rpartition(".")[2]], headers={"Cache-Control": "max-age=60"}
        )

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")  # a stream would not end
        if feed.watchers >= MOST_WATCHERS:
            return Response(status_code=503)
        return StreamingResponse(feed.events(), media_type="text/event-stream")

    async def devices(request: Request) -> Response:
        query = request.query_params
        number = query.get("page", "0")
        index = int(number) if number.isascii() and number.isdigit() and len(number) < 7 else 0
        await feed.fresh()
        return _json(figures.devices(query.get("q", "")[:64], query.get("state", "")[:32], index))

    async def device(request: Request) -> Response:
        name = request.query_params.get("id", "")[:129]
        return await _guarded(feed.call(lambda: figures.device(name, now())))

    async def wish(request: Request) -> Response:
        number, word = request.path_params["id"], request.path_params["wish"]
        if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
            return Response(status_code=404)
        if word not in WISHES or request.headers.get("x-hardcase") != "1":
            return Response(status_code=403)
        answer = await _guarded(feed.call(lambda: figures.rollouts.wish(int(number), word)))
        await feed.renew()
        return answer

    async def label_page(_: Request) -> Response:
        return Response(contents["label.html"], media_type="text/html")

    async def label(request: Request) -> Response:
        acts = {"next": labelling.next, "give": labelling.give, "undo": labelling.take_back}
        act = acts.get(request.path_params["what"])
        if act is None:
            return Response(status_code=404)
        if request.headers.get("x-hardcase") != "1":
            return Response(status_code=403)
        try:
            body = await asyncio.wait_for(body_of(request, MAX_BODY), BODY_S)
        except (TimeoutError, ClientDisconnect):
            return Response(status_code=408, headers={"Connection": "close"})
        if body is None:
            return Response(status_code=413, headers={"Connection": "close"})
        return await _guarded(feed.call(lambda: act(parse_fields(body))))

    async def evidence(request: Request) -> Response:
        query = request.query_params
        numbers = [int(x) if x.isascii() and x.isdigit() and len(x) < 17 else -1
                   for x in (query.get("boot", ""), query.get("sequence", ""))]  # fmt: skip
        key = [query.get("device", "")[:257], *numbers]
        try:
            found = await feed.call(lambda: labelling.evidence(key, query.get("n", "")))
        except InputError:
            found = None
        if found is None:
            return Response(status_code=404)
        return Response(found[0], media_type=found[1], headers={"Content-Security-Policy": ALONE})

    async def metrics(request: Request) -> Response:
        try:
            text = fleet_text(await feed.call(lambda: figures.fleet(now())))
        except InputError:
            return Response(status_code=503)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(feed.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    routes = [
        Route("/", page), Route("/file/{name}", file), Route("/events", events), Route("/devices", devices),
        Route("/device", device), Route("/rollouts/{id}/{wish}", wish, methods=["POST"]),
        Route("/metrics", metrics), Route("/label", label_page), Route("/evidence", evidence),
        Route("/label/{what}", label, methods=["POST"]),
    ]  # fmt: skip
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.end_streams = feed.end
    app.add_middleware(Guard, token=token, ingress=ingress)
    return app


class Guard:
    """Lets nobody through who has not the token and is not the proxy; puts the headers of ``HEADERS`` on answers."""

    def __init__(self, app: Any, token: str, ingress: str = "") -> None:
        self._app, self._token, self._ingress = app, token.encode(), ingress

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        is_ingress = bool(self._ingress) and (scope.get("client") or [""])[0] == self._ingress

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                more = [
                    (k.lower().encode(), (v.replace(UNFRAMED, FRAMED) if is_ingress else v).encode())
                    for k, v in HEADERS.items()
                    if k.lower().encode() not in present
                ]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        request = Request(scope)
        if is_ingress or any(hmac.compare_digest(word.encode(), self._token) for word in _tokens(request)):
            scope.get(SHOWN, bool)()
            await self._app(scope, receive, send_with_headers)
        else:
            refusal = Response(status_code=401, headers={"WWW-Authenticate": "Bearer", "Connection": "close"})
            await refusal(scope, receive, send_with_headers)


def _tokens(request: Request) -> list[str]:
    """The tokens that a request shows; ``/?token=`` alone may show one in its address."""
    scheme, _, word = request.headers.get("authorization", "").partition(" ")
    words = [word] if scheme.lower() == "bearer" else []
    words += [request.cookies.get(COOKIE, "")]
    words += [request.query_params.get("token", "")] if request.url.path == "/" else []
    return [w for w in words if w]


async def body_of(request: Request, most: int) -> bytes | None:
    """What a request brings; None if it is more than so many bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            return None
    return body


async def _guarded(value: Awaitable[Any]) -> Response:
    try:
        return _json(await value)
    except InputError as error:
        return _json({"error": str(error)}, 409)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")
