# SPDX-License-Identifier: Apache-2.0
"""A large model as f0: what it is asked, what of its replies is an answer, what it costs, and who hears its key."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from hardcase.cli import main
from hardcase_cloud.answer.service import Service
from hardcase_cloud.backends import large_model
from hardcase_cloud.backends.backend import OPENAI
from hardcase_cloud.backends.chat import Case
from hardcase_cloud.backends.large_model import LargeModel, read_settings
from hardcase_edge.bundle.file import pack_bundle
from hardcase_edge.errors import InputError
from hardcase_edge.link.wire import BUSY, OK, REFUSED, request_topic, unpack_reply

from ...helpers.cloud.brokers import free_port, running_mosquitto
from ...helpers.cloud.clients import asking
from ...helpers.cloud.json_server import ChatServer, reply, serving
from ...helpers.cloud.requests import N_CLASSES, PATIENT_MS, ask, command, half_forwarding
from ...helpers.places import ROOT
from ...helpers.server import Server

SHA = "ab" * 32
KEY = "sk-very-secret-0123456789"
CASE = Case(features=("x0", "x1"), classes=("red", "green", "blue"), sha256=SHA, dtypes=("f32", "f32"))
VALUE = Case(features=("x0", "x1"), steps=4, sha256=SHA, dtypes=("f32", "f32"))


def by_sign(case: dict[str, Any]) -> Any:
    """Green where x0 is above 0, else red."""
    return reply(json.dumps({"label": "green" if (case["x0"] or 0) > 0 else "red"}))


def at(port: int, rest: str = "", case: Case = CASE, **more: Any) -> LargeModel:
    """A large model behind this port."""
    return LargeModel(f"openai+http://127.0.0.1:{port}/v1?model=m{rest}", case, **more)


@contextmanager
def modelled(says: Callable[[dict[str, Any]], Any], case: Case = CASE, **more: Any) -> Iterator[tuple[Any, Any]]:
    """A large model and the server that answers for it."""
    chat = ChatServer(says)
    with serving(chat) as port, at(port, case=case, **more) as model:
        yield model, chat


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle that forwards where x0 is above 0."""
    path = tmp_path / "model.hcb"
    path.write_bytes(pack_bundle(half_forwarding(SHA).bundle))
    return path


def served(service: Service, rows: list[tuple[Any, ...]], deadline_ms: int = PATIENT_MS) -> list[int]:
    """The statuses of the replies to these rows, in the order of their ids, each of which comes in time and once."""
    replies: dict[bytes, int] = {}
    for k, row in enumerate(rows):
        out = service.receive(request_topic(f"pi-{k}"), ask(k, row, SHA, deadline_ms), time.monotonic())
        assert out is None
    while (due := service.due(time.monotonic())) is not None:
        time.sleep(due)
        for out in service.run(time.monotonic()):
            got = unpack_reply(out.payload, bytes.fromhex(SHA), N_CLASSES)
            assert out.expires_s > 0
            assert got.id not in replies
            replies[got.id] = got.status
    return [replies[k.to_bytes(16, "big")] for k in range(len(rows))]


# ---------------------------------------------------------------- what it is asked


def test_a_large_model_is_asked_for_one_of_the_classes_with_names_and_values_of_the_readings(tmp_path):
    (tmp_path / "s.toml").write_text('task = "A lamp."\nbody = { temperature = 0 }\n')
    chat = ChatServer(by_sign)
    case = Case(
        features=("volt", "kind", "amp"), classes=("on", 0), target="lamp", dtypes=("f32", "i32", "f32"),
        ranges=((1.5, 9.0), (0.0, 1.0), (0, 10**400)), categories={"kind": ("LED", "arc")},
    )  # fmt: skip
    url = f"/v1?model=qwen3:8b&settings={tmp_path}/s.toml"
    with serving(chat) as port, LargeModel(f"openai+http://127.0.0.1:{port}{url}", case) as model:
        chat.says = lambda shown: reply('{"label": "0"}')
        assert model.answer([(21.100000381469727, 1, None)]) == [(1, 10_000)]
    (body,) = chat.bodies
    assert (body["model"], body["temperature"]) == ("qwen3:8b", 0)
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"] == {"label": {"type": "string", "enum": ["on", "0"]}}
    about, question = (message["content"] for message in body["messages"])
    assert json.loads(question) == {"volt": 21.1, "kind": "arc", "amp": None}
    for words in ("'lamp'", "'volt' was between 1.5 and 9", "'kind' is a text", "A lamp."):
        assert words in about


def test_rows_are_asked_at_once_and_no_more_than_the_settings_allow(tmp_path):
    four = threading.Barrier(4, timeout=60)

    def slowly(case: dict[str, Any]) -> Any:
        four.wait()
        time.sleep(0.1)
        return by_sign(case)

    (tmp_path / "s.toml").write_text("at_once = 4\n")
    chat = ChatServer(slowly)
    with serving(chat) as port, at(port, f"&settings={tmp_path}/s.toml") as model:
        service = Service(model)
        assert served(service, [(1.0, 0.0)] * 12) == [OK] * 12
    assert chat.most_now == 4
    assert service.counters.served == 12


def test_a_slow_row_holds_up_no_other(tmp_path):
    others_are_through = threading.Event()

    def says(case: dict[str, Any]) -> Any:
        assert case["x0"] != 5 or others_are_through.wait(60)
        return by_sign(case)

    with modelled(says) as (model, _):
        service = Service(model)
        for k, x in enumerate((5.0, 1.0, 1.0)):
            service.receive(request_topic(f"pi-{k}"), ask(k, (x, 0.0), SHA, PATIENT_MS), time.monotonic())
        order: list[str] = []
        while (due := service.due(time.monotonic())) is not None:
            time.sleep(due)
            order += [out.device for out in service.run(time.monotonic())]
            if len(order) == 2:
                others_are_through.set()
        assert sorted(order[:2]) == ["pi-1", "pi-2"]
        assert order[2] == "pi-0"


def test_a_request_that_is_sent_again_while_it_is_asked_is_asked_once():
    have_come = threading.Event()
    with modelled(lambda case: (have_come.wait(60), by_sign(case))[1]) as (model, chat):
        service = Service(model)
        request = ask(1, (1.0, 0.0), SHA, PATIENT_MS)
        replies = []
        for _ in range(3):
            service.receive(request_topic("pi"), request, time.monotonic())
            replies += service.run(time.monotonic())
        have_come.set()
        while (due := service.due(time.monotonic())) is not None:
            time.sleep(due)
            replies += service.run(time.monotonic())
        assert len(replies) == len(chat.bodies) == 1
        assert (service.counters.served, service.counters.repeated) == (1, 2)


def test_what_could_not_be_answered_in_time_is_told_so_at_once():
    with modelled(lambda case: (time.sleep(0.2), by_sign(case))[1]) as (model, _):
        service = Service(model)
        assert served(service, [(1.0, 0.0)]) == [OK]
        for k in range(8):
            service.receive(request_topic(f"a-{k}"), ask(k, (1.0, 0.0), SHA, PATIENT_MS), time.monotonic())
        service.run(time.monotonic())
        out = service.receive(request_topic("late"), ask(9, (1.0, 0.0), SHA, 230), time.monotonic())
        assert out is not None
        assert unpack_reply(out.payload, bytes.fromhex(SHA), N_CLASSES).status == BUSY


# ---------------------------------------------------------------- what is an answer

BAD: dict[str, Any] = {
    "unknown-label": reply('{"label": "violet"}'),
    "prose-around": reply('Sure! {"label": "red"}'),
    "fenced": reply('```json\n{"label": "red"}\n```'),
    "prose-alone": reply("red"),
    "refusal": reply(None, refusal="I cannot help with that."),
    "refusal-beside": reply('{"label": "red"}', refusal="no"),
    "a-list": reply('["red"]'),
    "another-key": reply('{"class": "red"}'),
    "one-more-key": reply('{"label": "red", "why": "it glows"}'),
    "a-number": reply('{"label": 0}'),
    "a-list-of-labels": reply('{"label": ["red"]}'),
    "nan": reply('{"label": NaN}'),
    "no-content": reply(None),
    "content-in-parts": reply([{"type": "text", "text": '{"label": "red"}'}]),
    "cut": {**reply('{"label": "red"}'), "choices": [
        {"message": {"content": '{"label": "red"}'}, "finish_reason": "length"}]},
    "no-choices": {"choices": []},
    "two-choices": {"choices": reply('{"label": "red"}')["choices"] * 2},
    "a-choice-of-words": {"choices": ["red"]},
    "choices-of-none": {"choices": None},
    "no-message": {"choices": [{"message": "red"}]},
    "no-json": (200, b"<html>"),
    "no-object": [1],
    "deep": (200, b"[" * 100_000),
    "deep-content": reply("[" * 100_000),
    "no-utf-8": (200, b'{"choices": "\xff"}'),
    "huge": (200, b" " * 2_000_000),
    "a-long-number": (200, b'{"usage": {"prompt_tokens": ' + b"9" * 10_000 + b"}}"),
    "a-redirect": (302, b"", {"Location": "http://127.0.0.1:1/"}),
    "an-error": (400, b'{"error": {"code": "model_not_found"}}'),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_reply_that_is_no_answer_is_refused_alone_and_counted_once(name, caplog):
    with modelled(lambda case: BAD[name] if case["x0"] > 5 else by_sign(case)) as (model, chat):
        service = Service(model)
        assert served(service, [(1.0, 0.0), (9.0, 0.0), (2.0, 0.0)]) == [OK, REFUSED, OK]
        assert (service.counters.served, service.counters.refused, service.counters.expired) == (2, 1, 0)
        assert model.figures()["asked"] == len(chat.bodies)
    (record,) = [r for r in caplog.records if r.name.startswith("hardcase_cloud")]
    assert "\n" not in record.getMessage()
    assert "glows" not in record.getMessage()


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        pytest.param('{"value": 20.8125}', (333, 0), id="a-number"),
        pytest.param('{"value": -3}', (-48, 0), id="a-whole-number"),
        pytest.param('{"value": NaN}', None, id="nan"),
        pytest.param('{"value": 1e999}', None, id="infinite"),
        pytest.param('{"value": 1' + "0" * 400 + "}", None, id="beyond-floats"),
        pytest.param('{"value": "20"}', None, id="a-text"),
        pytest.param('{"value": true}', None, id="a-truth"),
    ],
)
def test_a_value_is_a_finite_number(content, answer):
    with modelled(lambda case: reply(content), VALUE) as (model, _):
        assert model.answers([(1.0, 2.0)]) == ["failed" if answer is None else answer]


def test_classes_that_are_the_same_text_are_refused():
    with pytest.raises(InputError, match="same text"):
        Case(features=("x",), classes=("1", 1))


# ---------------------------------------------------------------- time


def test_what_fails_is_asked_again_while_the_deadline_lasts():
    answers = iter([(503, b""), (429, b"", {"Retry-After": "0.2"})])
    with modelled(lambda case: next(answers, by_sign(case))) as (model, chat):
        assert served(Service(model), [(1.0, 0.0)]) == [OK]
        assert len(chat.bodies) == 3
        assert model.figures()["asked_again"] == 2


@pytest.mark.parametrize(
    ("says", "first_pause_s", "most_asked"),
    [
        pytest.param((503, b""), 0.1, 3, id="three-times"),
        pytest.param((503, b""), 60.0, 1, id="its-deadline-ends"),
        pytest.param((429, b"", {"Retry-After": "60"}), 0.1, 1, id="told-to-come-later"),
        pytest.param((401, b""), 0.1, 1, id="a-wrong-key"),
    ],
)
def test_a_large_model_is_asked_no_more_than_the_limit_and_refused_within_the_deadline(
    says, first_pause_s, most_asked, monkeypatch
):
    monkeypatch.setattr(large_model, "FIRST_PAUSE_S", first_pause_s)
    with modelled(lambda case: says, limit_s=60.0) as (model, chat):
        began = time.monotonic()
        assert served(Service(model), [(1.0, 0.0)], 30_000) == [REFUSED]
        assert time.monotonic() - began < 30
        assert len(chat.bodies) == most_asked


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [b"-1", b"-5", b"f" * 1_000, b"f" * 70_000, b"x"], ids=lambda size: size[:3].decode())
def test_a_chunk_of_a_wrong_size_is_refused_before_much_is_read(size, caplog):
    sent = []

    def talk(peer: Any) -> None:
        if peer.recv(65_536).startswith(b"GET"):
            peer.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        peer.sendall(CHUNKED + size + b"\r\n")
        for _ in range(100):
            peer.sendall(bytes(1_000_000))
            sent.append(1)

    with Server(talk) as server, at(server.port, limit_s=2.0) as model:
        assert model.answers([(1.0, 0.0)]) == ["failed"]
    assert len(sent) < 90  # on up to three connections, each with its buffers
    assert "cannot be asked: " in caplog.text


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"], ids=["head", "body"])
def test_a_server_that_sends_a_byte_now_and_then_is_left_at_the_deadline(part, monkeypatch):
    monkeypatch.setattr(large_model, "MARGIN_S", 19.5)  # a busy machine may need some of it

    def talk(peer: Any) -> None:
        asked = peer.recv(65_536)
        if asked.startswith(b"GET"):
            peer.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        peer.sendall(part)
        while True:
            peer.sendall(b"H")
            time.sleep(0.02)

    with Server(talk) as server, at(server.port) as model:
        began = time.monotonic()
        assert served(Service(model), [(1.0, 0.0)], 20_000) == [REFUSED]
        assert time.monotonic() - began < 20


def test_a_connection_that_the_server_has_closed_costs_no_answer():
    def talk(peer: Any) -> None:  # one answer on each connection, and no word that it ends
        head = peer.recv(65_536)
        body = b"{}" if head.startswith(b"GET") else json.dumps(reply('{"label": "blue"}')).encode()
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with Server(talk) as server, at(server.port) as model:
        for _ in range(3):
            assert model.answer([(1.0, 0.0)]) == [(2, 10_000)]
        assert model.figures()["asked"] == 3


# ---------------------------------------------------------------- what it costs


def test_tokens_and_their_price_are_counted_and_lies_about_them_are_not(tmp_path):
    (tmp_path / "s.toml").write_text("input_price = 0.15\noutput_price = 0.6\n")
    usages: list[tuple[Any, Any]] = [(1000, 10), (500, 5), (-1, 5), (True, 5), ("9", 5), (10**12, 5), (None, None)]
    chat = ChatServer(lambda case: reply('{"label": "red"}', usages[int(case["x0"])]))
    with serving(chat) as port, at(port, f"&settings={tmp_path}/s.toml") as model:
        assert model.answer([(float(k), 0.0) for k in range(len(usages))]) == [(0, 10_000)] * len(usages)
    figures = model.figures()
    assert (figures["tokens_in"], figures["tokens_out"], figures["uncounted"]) == (1500, 15, 5)
    assert figures["cost_micro"] == round(1500 * 0.15 + 15 * 0.6)


def test_an_answer_that_is_refused_has_cost_its_tokens():
    with modelled(lambda case: reply("no", (70, 7))) as (model, _):
        assert served(Service(model), [(1.0, 0.0)]) == [REFUSED]
        assert (model.figures()["tokens_in"], model.figures()["tokens_out"]) == (70, 7)


def test_the_script_of_the_page_writes_the_table_of_answers_from_which_training_learns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = (ROOT / "docs" / "large-models.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    rows = [(k % 7 - 3, "" if k % 9 == 0 else k % 5, "warm" if k % 7 > 3 else "cold") for k in range(120)]
    text = "".join(f"{vibration},{load},{state}\n" for vibration, load, state in rows)
    Path("data.csv").write_text(f"vibration,load,state\n{text}")
    chat = ChatServer(lambda case: reply(json.dumps({"label": "warm" if case["vibration"] > 0 else "cold"})))
    with serving(chat) as port:
        words = [sys.executable, "-W", "error", "-c", script.replace(":11434", f":{port}")]
        made = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert "'tokens_in': 12000" in made.stdout, made.stderr
    assert {json.loads(body["messages"][1]["content"])["load"] for body in chat.bodies} == {None, 0, 1, 2, 3, 4}
    data = '[data]\nfile = "data.csv"\ntarget = "state"\n[hpc]\ntable = "legacy.csv"\n[policy]\neffort = "quick"\n'
    Path("hardcase.toml").write_text(f'{data}[cost.cloud]\nper_request = 5\n[[sensor]]\nname = "load"\ncost = 1\n')
    assert main(["train", "hardcase.toml", "--out", "build", "--method", "static"]) == 0, capsys.readouterr().err


# ---------------------------------------------------------------- settings, URL and key


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("tasks = 1", "did you mean 'task'", id="unknown"),
        pytest.param("task = 1", "task is a text", id="a-task-of-numbers"),
        pytest.param("at_once = 0", "from 1 to 256", id="none-at-once"),
        pytest.param("at_once = true", "from 1 to 256", id="truth-at-once"),
        pytest.param("input_price = nan", "price of a million tokens", id="nan"),
        pytest.param("output_price = -1", "price of a million tokens", id="a-gain"),
        pytest.param("body = { model = 1 }", "which the worker sets itself", id="ours"),
        pytest.param("body = { day = 2026-01-01 }", "cannot be JSON", id="a-date"),
        pytest.param("body = 1", "body a table", id="a-body-of-numbers"),
        pytest.param("=", "is not TOML", id="no-toml"),
    ],
)
def test_settings_that_are_none_are_one_line(tmp_path, text, said):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InputError, match=said):
        read_settings(tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        pytest.param("http://h", "is not the URL", id="no-model"),
        pytest.param("ftp://h/v1?model=m", "is not the URL", id="scheme"),
        pytest.param(f"https://{KEY}@h/v1?model=m", "is not the URL", id="key-before-host"),
        pytest.param("http://h:99999/v1?model=m", "is not the URL", id="port"),
        pytest.param("http://h..x/v1?model=m", "is not the URL", id="host"),
        pytest.param("http://h/v1?model=m&settings=%00", "null byte", id="no-name-of-a-file"),
        pytest.param("http://h/v1?key=K", "needs model=NAME", id="model-lacks"),
        pytest.param("http://h/v1?model=m&model=n", "needs model=NAME", id="two-models"),
        pytest.param("http://h/v1?model=m&api_key=K", "needs model=NAME", id="unknown"),
        pytest.param("http://h/v1?model", "no KEY=VALUE", id="no-pairs"),
        pytest.param("http://h/v1?model=a%20b", "other characters", id="model-of-words"),
        pytest.param(f"http://127.0.0.1/v1?model=m&key={KEY}", "name of an environment variable", id="key-itself"),
        pytest.param("http://127.0.0.1/v1?model=m&key=NO_SUCH_KEY", "NO_SUCH_KEY has no key", id="unset"),
        pytest.param("http://127.0.0.1/v1?model=m&key=BROKEN_KEY", "BROKEN_KEY has no key", id="two-lines"),
        pytest.param("http://example.org/v1?model=m&key=GOOD_KEY", "as plain text", id="in-the-clear"),
        pytest.param("http://127.0.0.1:1/v1?model=m&key=GOOD_KEY", "cannot be asked", id="nobody-there"),
    ],
)
def test_a_url_or_key_that_is_none_is_one_line_without_the_key(rest, said, bundle, monkeypatch, capsys):
    monkeypatch.setenv("GOOD_KEY", KEY)
    monkeypatch.setenv("BROKEN_KEY", f"{KEY}\nX: y")
    words = ["cloud", "worker", "--hpc", f"openai+{rest}", "--broker", "mqtt://127.0.0.1:1"]
    assert main([*words, "--bundle", str(bundle)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert main(words) == 2
    assert KEY not in err + capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["https", "file", "ftp", "openai+HTTPS", "foo+http", "kserve+http"])
def test_a_url_that_no_back_end_takes_is_not_repeated(scheme, bundle, tmp_path, capsys):
    url = f"{scheme}://user:{KEY}@h/v1?model=m"
    for hpc in (url, configured(tmp_path, url)):
        assert main(["cloud", "worker", "--hpc", hpc, "--broker", "mqtt://127.0.0.1:1", "--bundle", str(bundle)]) == 2
        err = capsys.readouterr().err
        assert "openai" in err or "kserve+http" in err
        assert err.count("\n") == 1
        assert KEY not in err


def test_a_server_that_repeats_the_key_is_not_repeated(monkeypatch, caplog):
    told = [
        (400, json.dumps({"error": {"code": KEY, "type": "sk_very", "message": KEY}}).encode()),
        (200, KEY.encode()),
        reply(KEY),
        reply(json.dumps({"label": KEY})),
    ]
    monkeypatch.setenv("GOOD_KEY", KEY)
    chat = ChatServer(lambda case: told[int(case["x0"])])
    with serving(chat) as port, caplog.at_level(logging.DEBUG), at(port, "&key=GOOD_KEY") as model:
        assert model.answers([(float(k), 0.0) for k in range(len(told))]) == ["failed"] * len(told)
        with pytest.raises(InputError) as raised:
            model.answer([(0.0, 0.0)])

    def echo(peer: Any) -> None:
        head = peer.recv(65_536)
        sent = head[head.index(b"Bearer") :].split(b"\r\n")[0]
        peer.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n" if head.startswith(b"GET") else sent + b"\r\n\r\n")

    with Server(echo) as server, caplog.at_level(logging.DEBUG), at(server.port, "&key=GOOD_KEY") as model:
        assert model.answers([(1.0, 0.0)]) == ["failed"]
    said = caplog.text + str(raised.value) + repr(model) + repr(vars(model)["_settings"])
    assert len(caplog.records) >= 6
    assert KEY not in said
    assert KEY[:6] not in said


def test_a_server_that_refuses_the_key_is_told_at_the_start_without_it(monkeypatch, bundle):
    monkeypatch.setenv("WRONG_KEY", "another-secret-key")
    with serving(ChatServer(by_sign, key=KEY)) as port, pytest.raises(InputError, match="refuses the key") as raised:
        OPENAI.open(f"openai+http://127.0.0.1:{port}/v1?model=m&key=WRONG_KEY", bundle, 1.0)
    assert "another" not in str(raised.value)


# ---------------------------------------------------------------- end to end


def configured(folder: Path, url: str) -> str:
    """The path of a hardcase.toml with this URL."""
    (folder / "hardcase.toml").write_text(f'[hpc]\nurl = "{url}"\n', encoding="utf-8")
    return str(folder / "hardcase.toml")


def files_with(folder: Path, secret: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_a_worker_on_a_broker_answers_by_it_and_its_key_is_nowhere(tmp_path, bundle):
    (tmp_path / "s.toml").write_text("input_price = 0.15\noutput_price = 0.6\n")
    chat = ChatServer(lambda case: (503, b"{}") if case["x1"] == 7 else by_sign(case), key=KEY)
    environment = {**os.environ, "MODEL_KEY": KEY}
    with (
        serving(chat) as port,
        running_mosquitto(tmp_path) as broker,
        command(
            "cloud", "up", "--hpc", f"openai+http://127.0.0.1:{port}/v1?model=m&key=MODEL_KEY&settings={tmp_path}/s.toml",
            "--bundle", str(bundle), "--broker", broker.url, "--json", environment=environment,
        ) as up,
    ):  # fmt: skip
        up.wait_for("ready")
        command_lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
        assert any("MODEL_KEY" in line for line in command_lines)
        assert not [line for line in command_lines if KEY in line]
        with asking(broker.url, "+") as (client, heard):
            got = {}
            for k, x1 in enumerate((0.0, 7.0, 1.0)):
                client.publish(request_topic(f"pi-{k}"), ask(k, (1.0, x1), SHA, PATIENT_MS), 1)
            for _ in range(3):
                reply_ = unpack_reply(heard.get(timeout=60).payload, bytes.fromhex(SHA), N_CLASSES)
                got[int.from_bytes(reply_.id, "big")] = (reply_.status, reply_.result)
        assert got == {0: (OK, 1), 1: (REFUSED, 0), 2: (OK, 1)}
        assert up.finish() == 0
        stopped = up.wait_for("worker-stopped")
        assert (stopped["served"], stopped["refused"], stopped["asked"]) == (2, 1, 5)
        assert (stopped["tokens_in"], stopped["cost_micro"]) == (200, round(200 * 0.15 + 10 * 0.6))
        said = json.dumps(up.events) + up.stderr()
    assert "answers status 503" in said
    assert KEY not in said
    assert files_with(tmp_path, KEY.encode()) == []


def test_a_device_is_answered_by_it_and_the_pages_and_stores_of_the_worker_have_tokens_and_no_key(tmp_path, bundle):
    (tmp_path / "data.csv").write_text("x0,x1\n1,2\n-1,2\n3,4\n")
    chat, metrics = ChatServer(by_sign, key=KEY), f"127.0.0.1:{free_port()}"
    with (
        serving(chat) as port,
        running_mosquitto(tmp_path) as broker,
        command(
            "cloud", "worker", "--hpc", configured(tmp_path, f"openai+http://127.0.0.1:{port}/v1?model=m&key=MODEL_KEY"),
            "--bundle", str(bundle), "--broker", broker.url, "--json", "--metrics", metrics,
            "--cases", f"sqlite:{tmp_path}/cases.sqlite", environment={"MODEL_KEY": KEY},
        ) as worker,
    ):  # fmt: skip
        worker.wait_for("ready")
        words = [sys.executable, "-m", "hardcase_edge.cli", "run", str(bundle), "--sensors", "replay:data.csv"]
        device = subprocess.run(
            [*words, "--count", "3", "--broker", broker.url, "--device-id", "pi-1", "--deadline-ms", str(PATIENT_MS)],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60) as response:
            page = response.read().decode()
        assert worker.finish() == 0
        said = device.stdout + device.stderr + page + json.dumps(worker.events) + worker.stderr()
    made = [json.loads(line) for line in device.stdout.splitlines()]
    assert [(d["label"], d["route"]) for d in made] == [("green", "cloud"), ("blue", "local"), ("green", "cloud")]
    assert worker.wait_for("stopped")["cases"] == 2
    assert 'hardcase_worker_tokens_total{direction="in"} 200' in page
    assert "hardcase_worker_cost_total 0" in page
    assert KEY not in said
    assert files_with(tmp_path, KEY.encode()) == []
