# SPDX-License-Identifier: Apache-2.0
"""A gate behind HTTP: three shapes for clients, three for back ends, and back ends that are killed, slow or lie."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from hardcase.api.gate import Gate
from hardcase.cli import main
from hardcase.serving import app as app_module
from hardcase.serving import backends
from hardcase.serving.app import MAX_BODY, make_app
from hardcase.serving.backends import MAX_ANSWER
from hardcase.serving.settings import read_settings
from hardcase.serving.shapes import Asked, heard
from hardcase_cloud.keep.dashboard.server import Server
from hardcase_edge.errors import InputError
from tests.helpers.cli.gates import NAMES, made_gate, requests, said

KEY = "sk-a-secret-that-nobody-may-see"
SHAPES = {"small": "json", "large": "openai", "old": "kserve"}
Reply = Callable[[str, dict[str, Any]], bytes | float]  # a back end's answer, or seconds of silence


def truthful(name: str, body: dict[str, Any]) -> bytes:
    """What the log says of this request, in the shape of the back end."""
    if name == "small":
        label, confidence = said(requests()[int(body["input"])], name)
        return json.dumps({"label": label, "confidence": confidence, "price": 0.5}).encode()
    if name == "old":
        label, _ = said(requests()[int(body["inputs"][0]["data"][0])], name)
        return json.dumps({"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1], "data": [label]}]}).encode()
    label, confidence = said(requests()[int(body["messages"][-1]["content"])], name)
    tokens = {"content": [{"token": label, "logprob": math.log(confidence or 1)}]}
    return json.dumps({"choices": [{"message": {"content": f" {label.title()}."}, "logprobs": tokens}]}).encode()


class Back:
    """A server of loopback for all three back ends, which answers as ``reply`` says."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.seen, self.port = reply, list[tuple[str, dict[str, str]]](), 0
        self.writers: set[asyncio.StreamWriter] = set()
        self.listener: Any = None

    def kill(self) -> None:
        """Nobody listens any more, and every connection is reset."""
        self.listener.close()
        for writer in self.writers:
            writer.transport.abort()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                name = first.split()[1][1:]
                self.seen.append((name, headers))
                said = self.reply(name, body)
                if isinstance(said, float):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
                    for _ in range(int(said / 0.02)):  # a byte at a time
                        writer.write(b" ")
                        await writer.drain()
                        await asyncio.sleep(0.02)
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()


PATIENT = (50_000, 60_000)  # milliseconds of a call and of a request, which a busy machine keeps
SHORT = (1_500, 2_500)  # and where a back end is slower than that


def file_of(folder: Path, port: int, more: str = "", limits: tuple[int, int] = (300, 500)) -> Path:
    path, (call_ms, deadline_ms) = folder / "gate.toml", limits
    path.write_text(
        f'name = "pets"\nfolder = {json.dumps(str(made_gate()[0]))}\ncall_ms = {call_ms}\n'
        f"deadline_ms = {deadline_ms}\n{more}\n"
        + "".join(
            f'[apis.{name}]\nurl = "http://127.0.0.1:{port}/{name}"\nshape = "{SHAPES[name]}"\nkey_env = "PETS_KEY"\n'
            for name in NAMES
        ),
        encoding="utf-8",
    )
    return path


@asynccontextmanager
async def served(
    folder: Path, reply: Reply, token: str | None = None, limits: tuple[int, int] = PATIENT
) -> AsyncIterator[tuple[Any, Any, Back]]:
    """A client of a running server, its application and its back end."""
    back = Back(reply)
    listener = await asyncio.start_server(back.talk, "127.0.0.1", 0)
    back.listener, back.port = listener, listener.sockets[0].getsockname()[1]
    settings = read_settings(file_of(folder, back.port, limits=limits))
    gate = Gate(settings.folder, deadline_ms=settings.call_ms, coin_seed=1)
    app = make_app(settings, gate, token, "0.1.0")
    own = socket.create_server(("127.0.0.1", 0))
    server = Server(app)
    task = asyncio.create_task(server.serve(sockets=[own]))
    while not server.started:
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{own.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client:
        yield client, app, back
    server.stop()
    await task
    listener.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_KEY", KEY)


async def every_shape(client: Any, k: int) -> list[Any]:
    """The labels that the same input gets by three shapes."""
    plain = (await client.post("/ask", json={"input": str(k)})).json()
    tensor = {"name": "input", "shape": [1], "datatype": "BYTES", "data": [str(k)]}
    kserve = (await client.post("/v2/models/pets/infer", json={"id": "7", "inputs": [tensor]})).json()
    messages = [{"role": "user", "content": str(k)}]
    chat = (await client.post("/v1/chat/completions", json={"model": "pets", "messages": messages})).json()
    assert kserve["id"] == "7"
    assert plain["price"] <= 15
    return [plain["label"], kserve["outputs"][0]["data"][0], chat["choices"][0]["message"]["content"]]


def test_a_client_gets_the_gate_s_answer_in_its_own_shape_from_back_ends_of_every_shape(tmp_path: Path) -> None:
    direct = Gate(made_gate()[0], {name: lambda k, n=name: said(requests()[k], n) for name in NAMES}, coin_seed=1)

    async def go() -> None:
        async with served(tmp_path, truthful) as (client, app, back):
            for k in range(12):
                labels = await every_shape(client, k)
                possible = {direct.decide(k).label for _ in range(12)}  # of the two policies that a coin mixes
                assert set(labels) <= possible
            names = {name for name, _ in back.seen}
            assert len(names) >= 2
            assert all(headers["authorization"] == f"Bearer {KEY}" for _, headers in back.seen)
            assert app.state.counts == {(shape, "answered"): 12 for shape in ("json", "kserve", "openai")}
            rows = {"name": "input", "shape": [3], "datatype": "BYTES", "data": ["1", "2", "3"]}
            three = (await client.post("/v2/models/pets/infer", json={"inputs": [rows]})).json()
            assert [len(output["data"]) for output in three["outputs"]] == [3, 3, 3]
            assert (await client.get("/v2/health/ready")).status_code == 200
            assert (await client.get("/v2/models/pets")).json()["outputs"][0]["name"] == "label"
            assert (await client.get("/v1/models")).json()["data"][0]["id"] == "pets"
            page = (await client.get("/metrics")).text
            assert 'hardcase_gate_requests_total{shape="kserve",outcome="answered"} 13' in page
            assert 'hardcase_decisions_total{route="local"} 39' in page

    asyncio.run(go())


LIES: dict[str, Reply] = {
    "no JSON": lambda *_: b"<html>",
    "a list": lambda *_: b"[]",
    "wrong keys": lambda *_: b'{"answer": "cat"}',
    "deep": lambda *_: b'{"label":' + b"[" * 100_000,
    "NaN price": lambda *_: b'{"label": "cat", "confidence": 0.5, "price": NaN}',
    "negative price": lambda *_: b'{"label": "cat", "confidence": 0.5, "price": -1}',
    "infinite confidence": lambda *_: b'{"label": "cat", "confidence": 1e999}',
    "percent": lambda *_: b'{"label": "cat", "confidence": 87}',
    "no class": lambda *_: b'{"label": "horse", "confidence": 0.5}',
    "no chat": lambda *_: b'{"choices": [], "outputs": {}}',
    "huge": lambda *_: b" " * (MAX_ANSWER + 1),
    "slow drip": lambda *_: 60.0,
}


@pytest.mark.parametrize("reply", LIES.values(), ids=LIES)
def test_what_back_ends_lie_is_answered_by_the_deadline_counted_once_and_tells_no_key(
    tmp_path: Path, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        async with served(tmp_path, reply, limits=SHORT) as (client, app, _):
            began = time.monotonic()
            answer = (await client.post("/ask", json={"input": "1"})).json()
            assert time.monotonic() - began < 2.5 + 20  # the deadline, on a busy machine
            assert answer["failed"] == answer["asked"] != []
            assert app.state.counts == {("json", "answered"): 1}
            page = (await client.get("/metrics")).text
            assert 'hardcase_decisions_total{route="degraded"} 1' in page
            assert KEY not in page + json.dumps(answer)

    asyncio.run(go())
    assert KEY not in caplog.text
    assert caplog.records


def test_a_back_end_that_is_killed_between_two_requests_costs_no_request(tmp_path: Path) -> None:
    async def go() -> None:
        async with served(tmp_path, truthful) as (client, app, back):

            async def one(k: int) -> dict[str, Any]:
                return (await client.post("/ask", json={"input": str(k % 100)})).json()

            before = [await one(k) for k in range(5)]
            back.reply = lambda *_: (_ for _ in ()).throw(ConnectionResetError)
            during = await asyncio.gather(*(one(k) for k in range(40)))
            back.reply = truthful
            after = [await one(k) for k in range(5)]
            assert all(not answer["failed"] for answer in [*before, *after])
            assert all(answer["failed"] for answer in during)
            assert app.state.counts == {("json", "answered"): 50}

    asyncio.run(go())


def test_a_back_end_that_is_killed_while_it_is_asked_and_stays_away_costs_no_request(tmp_path: Path) -> None:
    async def go() -> None:
        async with served(tmp_path, lambda *_: 60.0, limits=SHORT) as (client, app, back):
            waiting = asyncio.gather(*(client.post("/ask", json={"input": str(k)}) for k in range(20)))
            while len(back.writers) < 5:
                await asyncio.sleep(0.01)
            back.kill()
            after = [await client.post("/ask", json={"input": "1"}) for _ in range(3)]
            for answer in [*(await waiting), *after]:
                assert answer.status_code == 200
                assert answer.json()["failed"] == answer.json()["asked"] != []
            assert app.state.counts == {("json", "answered"): 23}

    asyncio.run(go())


def test_a_request_too_many_and_a_body_that_does_not_come_are_refused_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "MOST_AT_ONCE", 4)
    monkeypatch.setattr(app_module, "BODY_S", 0.2)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(4)

    async def go() -> None:
        async with served(tmp_path, lambda *_: 60.0, limits=SHORT) as (client, app, _):
            sent = await asyncio.gather(*(client.post("/ask", json={"input": "1"}) for _ in range(12)))
            n_busy = sum(answer.status_code == 503 for answer in sent)
            assert {answer.status_code for answer in sent} == {200, 503}
            slow = await client.post("/ask", content=never(), headers={"Content-Type": "application/json"})
            assert slow.status_code == 408
            assert app.state.counts == {
                ("json", "answered"): 12 - n_busy,
                ("json", "busy"): n_busy,
                ("json", "slow"): 1,
            }

    asyncio.run(go())


def test_a_body_of_tiny_chunks_is_refused_before_it_has_come_and_one_of_usual_chunks_is_not(tmp_path: Path) -> None:
    head = b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    async def usual() -> AsyncIterator[bytes]:
        yield b'{"input": "1"'
        for _ in range(2_000):
            yield b" " * 200
        yield b"}"

    async def go() -> None:
        async with served(tmp_path, truthful) as (client, app, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
            writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 2_000)  # and no end
            said = await asyncio.wait_for(reader.read(), 60)
            assert said.startswith(b"HTTP/1.1 400 ")
            assert b"chunks" in said
            writer.close()
            json = {"Content-Type": "application/json"}
            assert (await client.post("/ask", content=usual(), headers=json)).status_code == 200
            assert app.state.counts == {("json", "answered"): 1, ("json", "slow"): 1}

    asyncio.run(go())


BAD = {
    "no JSON": (b"{", 400),
    "NaN": (b'{"input": NaN}', 400),
    "a number that no float holds": (b'{"input": 1e999}', 400),
    "no input": (b'{"model": "pets"}', 400),
    "deep": (b'{"input":' + b"[" * 100_000, 400),
    "other keys": (b'{"input": 1, "more": 2}', 400),
    "negative budget": (b'{"input": "1", "budget": -1}', 400),
    "half a character": (
        b'{"id": "\\ud800", "inputs": [{"shape": [1], "datatype": "BYTES", "data": ["1"]}]}',
        400,
    ),
    "large": (b'{"input": "' + b"x" * MAX_BODY + b'"}', 413),
}


@pytest.mark.parametrize(("body", "status"), BAD.values(), ids=BAD)
def test_a_request_that_cannot_be_used_is_refused_in_words_and_counted_once(tmp_path: Path, body, status) -> None:
    async def go() -> None:
        async with served(tmp_path, truthful) as (client, app, back):
            for path in ("/ask", "/v1/chat/completions", "/v2/models/pets/infer"):
                sent = await client.post(path, content=body, headers={"Content-Type": "application/json"})
                assert sent.status_code == (status if path == "/ask" or status == 413 else 400)
                assert sent.json()["error"]
                assert "gate: '" not in str(sent.json()["error"])  # a bare word, of a key that is missing
            assert sum(app.state.counts.values()) == 3
            assert not back.seen

    asyncio.run(go())


def test_nobody_asks_without_the_token_and_no_page_of_another_site_through_a_browser(tmp_path: Path) -> None:
    async def go() -> None:
        token = "a-token-of-many-letters"
        async with served(tmp_path, truthful, token) as (client, app, _):
            asked = {"json": {"input": "1"}}
            assert (await client.post("/ask", **asked)).status_code == 401
            assert (await client.get("/metrics")).status_code == 401
            assert (await client.post("/ask", headers={"Authorization": f"Bearer {token}"}, **asked)).status_code == 200
            assert app.state.counts == {("json", "answered"): 1}
        async with served(tmp_path, truthful) as (client, app, back):
            rebound = await client.post("/ask", json={"input": "1"}, headers={"Host": "evil.example"})
            assert rebound.status_code == 421
            simple = await client.post("/ask", content=b'{"input": "1"}', headers={"Content-Type": "text/plain"})
            assert simple.status_code == 415
            assert not back.seen

    asyncio.run(go())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('shape = "json"', 'shape = "soap"'), "shape is 'soap'"),
        (("call_ms = 300", "call_ms = nan"), "call_ms is no number"),
        (("call_ms = 300", "cal_ms = 300"), "did you mean 'call_ms'"),
        (("http://127.0.0.1", "http://8.8.8.8"), "unencrypted; use https://"),
        (("http://", "http://user:word@"), "no user or key in it"),
        (
            ("http://127.0.0.1", "https://b\u00fccher..example"),
            "url is no address of a back end: Invalid IDNA hostname",
        ),
        (("PETS_KEY", "NOBODY_S_KEY"), "NOBODY_S_KEY is not set"),
        (('name = "pets"', 'name = "../pets"'), "is none"),
        (("[apis.small]", "[api"), "is not TOML"),
        (("call_ms = 300", 'drift = "often"'), "drift is 'often'; expected watch or act"),
        (("call_ms = 300", 'on_broken = "forward"'), "on_broken forward needs audit"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, capsys, change, message) -> None:
    path = file_of(tmp_path, 9)
    path.write_text(path.read_text().replace(*change))
    assert main(["serve", str(path)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert KEY not in err


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} ", "clef-secr\u00e8te"])
def test_a_key_that_no_header_holds_is_refused_and_not_printed(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=r"the key in PETS_KEY has a space, a line end or a letter") as caught:
        read_settings(file_of(tmp_path, 9), {"PETS_KEY": key})
    assert key.strip() not in str(caught.value)


def test_other_machines_need_a_token(tmp_path: Path, capsys, monkeypatch) -> None:
    path = str(file_of(tmp_path, 9))
    monkeypatch.delenv("HARDCASE_GATE_TOKEN", raising=False)
    assert main(["serve", path, "--bind", "0.0.0.0:0"]) == 2
    assert main(["serve", path, "--bind", "0.0.0.0:0", "--public"]) == 2
    monkeypatch.setenv("HARDCASE_GATE_TOKEN", "short")
    assert main(["serve", path]) == 2
    lines = capsys.readouterr().err.splitlines()
    for words, line in zip(("add --public", "only with a token", "5 characters"), lines, strict=True):
        assert words in line


def test_probabilities_of_kserve_are_a_label_and_a_confidence() -> None:
    output = {"name": "p", "datatype": "FP64", "shape": [1, 2], "data": [0.2, 0.8]}
    labels = {"cat": "cat", "dog": "dog"}
    assert heard("kserve", {"outputs": [output]}, labels, ["cat", "dog"]) == ("dog", 0.8, None)
    with pytest.raises(ValueError, match="probabilities of 3"):
        heard("kserve", {"outputs": [output]}, labels, ["cat", "dog", "cow"])


@pytest.mark.parametrize("said", ["CAT", "cat", "'Cat'.", "U.S.", '"u.s."'])
def test_a_label_is_that_of_the_log_whatever_its_case_and_its_points(tmp_path: Path, monkeypatch, said: str) -> None:
    async def exchange(transport: object, request: object) -> bytes:
        return json.dumps({"label": said}).encode()

    monkeypatch.setattr(backends, "_exchange", exchange)
    functions: dict[str, Any] = {}
    gate: Any = SimpleNamespace(
        classes=("cat", "dog"),
        labels_of=lambda name: ("CAT", "DOG", "U.S.", "cat", "dog"),  # those of the log, and the classes
        asks=lambda name: lambda call: functions.setdefault(name, call),
    )
    backends.BackEnds(read_settings(file_of(tmp_path, 9)), gate)
    label, _, _ = asyncio.run(functions["small"](Asked("a picture")))
    assert label == ("CAT" if "c" in said.lower() else "U.S.")


def test_a_gate_whose_back_end_is_not_named_does_not_start(tmp_path: Path, capsys) -> None:
    path = file_of(tmp_path, 9)
    path.write_text(path.read_text().partition("[apis.large]")[0])
    assert main(["serve", str(path)]) == 2
    assert "nothing asks" in capsys.readouterr().err
    with pytest.raises(InputError, match="did you mean 'small'"):
        Gate(made_gate()[0]).asks("smal")
