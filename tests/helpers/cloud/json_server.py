# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on loopback that answers what a test says, and one that speaks chat completions as large models do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, Any, Any], Any]  # of path, headers and body


class Handler(BaseHTTPRequestHandler):
    """Answers what its server was told to: JSON, or status and bytes, or these and more headers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out at once

    def _say(self, body: Any) -> None:
        answer = self.server.answer(self.path, self.headers, body)  # type: ignore[attr-defined]
        status, data, *more = answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(more[0] if more else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._say(None)

    def do_POST(self) -> None:
        self._say(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """A server on loopback; yields its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False  # a client keeps its connection
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client may hang up
    server.answer = answer  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(content: Any, tokens: tuple[Any, Any] = (100, 5), **message: Any) -> dict[str, Any]:
    """A reply of chat completions with this content."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


@dataclass
class ChatServer:
    """A large model: ``says`` answers the readings of a case; it keeps what it was asked.

    >>> model = ChatServer(lambda case: reply('{"label": "red"}'))
    >>> model("/v1/chat/completions", {}, {"messages": [{}, {"content": "{}"}]})["usage"]
    {'prompt_tokens': 100, 'completion_tokens': 5}
    """

    says: Callable[[dict[str, Any]], Any]
    key: str = ""
    bodies: list[Any] = field(default_factory=list)
    n_now: int = 0
    most_now: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, path: str, headers: Any, body: Any) -> Any:
        if self.key and headers.get("Authorization") != f"Bearer {self.key}":
            told = f"the key {headers.get('Authorization')} is wrong"
            return 401, json.dumps({"error": {"message": told, "code": "invalid_api_key"}}).encode()
        if path == "/v1/models":
            return {"object": "list", "data": []}
        assert path == "/v1/chat/completions", path
        with self.lock:
            self.bodies.append(body)
            self.n_now += 1
            self.most_now = max(self.most_now, self.n_now)
        try:
            return self.says(json.loads(body["messages"][1]["content"]))
        finally:
            with self.lock:
                self.n_now -= 1
