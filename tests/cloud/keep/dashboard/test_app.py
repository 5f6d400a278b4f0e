# SPDX-License-Identifier: Apache-2.0
"""The dashboard's server: nothing without the token, figures that are right, buttons, and a store that goes away."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from hardcase_cloud.keep.dashboard import app as module
from hardcase_cloud.keep.dashboard.app import make_app
from hardcase_cloud.keep.dashboard.figures import Figures
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import Devices, Seen
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_cloud.keep.records.rollouts import Rollouts
from hardcase_cloud.rollout.waves.machine import Rollout
from hardcase_cloud.rollout.waves.plan import Plan
from hardcase_edge.errors import InputError

TOKEN = "a-token-of-24-characters"
NOW = 1_800_000_000.0
BUNDLE = {"sha256": "cd" * 32, "name": "one", "bytes": 5, "root": 1, "targets": 2, "manifest": "{}"}
PATHS = [
    "/", "/events", "/devices", "/device?id=a", "/metrics", "/file/page.js", "/nothing", "/rollouts/1/stop", "/label",
    "/label/next", "/label/give", "/?token=wrong",
]  # fmt: skip
Answer = tuple[int, dict[str, str], bytes]


def decision(device: str, sequence: int, route: str, **more: Any) -> Incoming:
    fields = {"bundle": "cd" * 32, "route": route, "cost": 2.0, "label": "x", "confidence": 0.9, **more}
    return Incoming(device, 1, sequence, "decision", json.dumps(fields), "cd" * 32, route, "x", 2.0)


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    database = Database(f"sqlite:{tmp_path / 'd.sqlite'}")
    facts = {"asked": 10, "local": 7}
    seen = [Seen(f"d{k}", is_online=k != 3, bundle="cd" * 32, state="good", facts=json.dumps(facts)) for k in range(60)]
    failed = {"store": {"state": "good", "failed": {"sha256": "x"}}}
    loading = {"update": {"state": "loading", "have": 1, "of": 2}}
    Devices(database).saw(
        [
            *seen,
            Seen("e1", is_online=True, facts=json.dumps(failed)),
            Seen("e2", is_online=True, facts=json.dumps(loading)),
        ],
        NOW,
    )
    database.keep(
        [decision("d1", 1, "local"), decision("d1", 2, "cloud"), decision("d1", 3, "local", label=[1], cost="x")], NOW
    )
    database.keep([Incoming("d1", 1, 9, "audit", json.dumps({"bundle": "cd" * 32, "label": "x"}), "cd" * 32)], NOW)
    Labels(database).label([(row, "x", True) for row in Labels(database).unlabelled("f0", 5)], "f0", NOW)
    machine = Rollout(Plan(canary=1, budget=3.0, cost_limit=9.0), "cd" * 32, ["d1", "d2"], NOW).to_json()
    Rollouts(database).begin(BUNDLE, "/x.hcb", "", "pumps</script>", machine, ["d1", "d2"], NOW)
    yield Figures(database)
    database.close()


def ask(
    figures: Figures,
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    ingress: str = "",
) -> Answer:
    """One request to the application, without a server."""
    return asyncio.run(
        _ask(make_app(figures, TOKEN, ingress=ingress, now=lambda: NOW), path, method, headers or {}, body)
    )


async def _ask(app: Any, path: str, method: str, headers: dict[str, str], body: bytes) -> Answer:
    sent: list[Any] = []
    bodies = [body] if body else []
    location, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": location, "raw_path": location.encode(),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()], "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip

    async def receive() -> Any:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        if not sent or sent[-1].get("more_body"):
            await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    head = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], head, b"".join(m.get("body", b"") for m in sent[1:])


IN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_there_is_not_a_byte(figures: Figures, path: str, method: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer x"},
        {"Cookie": "hardcase=x"},
        {"X-Hardcase": "1"},
        {"Authorization": TOKEN},
    ):
        status, head, body = ask(figures, path, method=method, headers=headers)
        assert (status, body) == (401, b"")
        assert head["content-length"] == "0"
    assert [r.wish for r in figures.rollouts.rollouts()] == [""]


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_cannot_read(figures: Figures) -> None:
    status, head, body = ask(figures, f"/?token={TOKEN}", headers={"Sec-Fetch-Site": "none"})
    assert (status, head["location"], body) == (303, "./", b"")
    status, head, body = ask(figures, f"/?token={TOKEN}")
    assert (status, head["refresh"], body) == (200, "0; url=./", b"")
    assert {"HttpOnly", "SameSite=strict"} <= set(head["set-cookie"].split("; "))
    cookie = head["set-cookie"].partition(";")[0]
    assert ask(figures, "/", headers={"Cookie": cookie})[0] == 200
    assert ask(figures, f"/devices?token={TOKEN}")[0] == 401


def test_the_page_has_the_figures_and_nothing_ends_its_data(figures: Figures) -> None:
    status, head, body = ask(figures, "/", headers=IN)
    text = body.decode()
    assert (status, "script-src 'self'" in head["content-security-policy"], "https://" in text) == (200, True, False)
    data = json.loads(text.partition('application/json">')[2].partition("</script>")[0])
    assert data["fleet"]["states"] == [["offline", 1], ["rolled back", 1], ["loading", 1], ["good", 59]]
    assert [data["minutes"][key][-1] for key in ("decisions", "forwarded", "cost")] == [3, 0.3333, 2.0]
    assert data["agreement"][0]["agreed"] == data["agreement"][0]["n"] == 1
    assert data["rollouts"][0]["group"] == "pumps</script>"
    assert (data["rollouts"][0]["budget"], data["rollouts"][0]["devices"][0]) == (3.0, ["waiting", 2])
    assert data["store"]["trouble"] == ""


def test_devices_are_found_and_those_that_need_a_look_come_first(figures: Figures) -> None:
    ask(figures, "/", headers=IN)

    def rows(query: str) -> tuple[int, list[str]]:
        found = json.loads(ask(figures, f"/devices?{query}", headers=IN)[2])
        return found["n"], [row[0] for row in found["rows"]]

    assert rows("")[1][:3] == ["d3", "e1", "e2"]
    assert (rows("")[0], len(rows("")[1]), len(rows("page=1")[1])) == (62, 50, 12)
    assert rows("q=e") == (2, ["e1", "e2"])
    assert rows("state=offline") == (1, ["d3"])
    assert rows("page=x")[0] == rows("page=99999999999")[0] == 62


def test_the_list_is_right_though_nobody_watches_and_asks_not_for_capitals(figures: Figures) -> None:
    found = json.loads(ask(figures, "/devices?q=E1", headers=IN)[2])
    assert (found["n"], found["rows"][0][:2]) == (1, ["e1", "rolled back"])
    Devices(figures.rollouts.database).saw([Seen("e1", is_online=False)], NOW)
    assert json.loads(ask(figures, "/devices?q=e1", headers=IN)[2])["rows"][0][1] == "offline"


def test_what_devices_say_after_the_clock_was_set_back_is_shown(figures: Figures) -> None:
    assert figures.look(NOW)["fleet"]["online"] == 61
    Devices(figures._database).saw([Seen("d1", is_online=False)], NOW - 3_600)
    assert [figures.look(NOW - 3_600 + s)["fleet"]["online"] for s in (30, 60)] == [60, 60]


def test_the_head_of_a_stream_ends(figures: Figures) -> None:
    status, head, body = ask(figures, "/events", method="HEAD", headers=IN)
    assert (status, head["content-type"].partition(";")[0], body) == (200, "text/event-stream", b"")


def test_one_device_has_its_last_hour_whatever_it_sent(figures: Figures) -> None:
    found = json.loads(ask(figures, "/device?id=d1", headers=IN)[2])
    assert [row[1:] for row in found["rows"]] == [
        ["local", 2.0, 0.9, "x"], ["cloud", 2.0, 0.9, "x"], ["local", "x", 0.9, None],
    ]  # fmt: skip
    assert json.loads(ask(figures, "/device?id=nobody", headers=IN)[2])["rows"] == []


def test_a_device_has_its_facts_its_groups_and_the_reason_of_a_failed_update(figures: Figures) -> None:
    facts = {
        "runtime": "0.1.0", "sensors": {"timed_out": 3, "read": 0}, "outbox": {"waiting": 12, "sent": 5},
        "certificate": {"ends": NOW + 86_400}, "drift": {"suspects": {"CE": {}}},
        "store": {"state": "good", "failed": {"sha256": "ef" * 32, "release": "1.3", "reason": "slow"}},
    }  # fmt: skip
    devices = Devices(figures.rollouts.database)
    devices.saw([Seen("a1", is_online=True, bundle="cd" * 32, state="good", facts=json.dumps(facts))], NOW)
    devices.saw([Seen("a2", is_online=True, state="none", facts='{"store": {"why": "none passed"}}')], NOW)
    devices.set_group("pumps", ["a1"])
    shown = json.loads(ask(figures, "/device?id=a1", headers=IN)[2])["facts"]
    assert (shown["bundle"], shown["groups"], shown["runtime"]) == (f"one 1.2 {'cd' * 6}", ["pumps"], "0.1.0")
    assert (shown["sensors"], shown["outbox"], shown["ends"]) == ([["timed_out", 3]], [["waiting", 12]], NOW + 86_400)
    assert (shown["failed"]["reason"], shown["failed"]["release"], shown["suspects"]) == ("slow", "1.3", ["CE"])
    found = json.loads(ask(figures, "/devices?q=a", headers=IN)[2])["rows"]
    assert [(row[0], row[1], row[-1]) for row in found] == [
        ("a2", "no bundle", "none passed"), ("a1", "rolled back", "slow"),
    ]  # fmt: skip
    assert json.loads(ask(figures, "/devices?state=online", headers=IN)[2])["n"] == 63
    assert (
        json.loads(ask(figures, "/", headers=IN)[2].decode().partition('json">')[2].partition("</script")[0])["fleet"][
            "online"
        ]
        == 63
    )


@pytest.mark.parametrize(
    "facts",
    [
        "[", "[]", "7", '{"store": 5, "update": [], "drift": "x"}', '{"store": {"failed": {"reason": {"a": 1}}}}',
        '{"sensors": {"x": 1e999, "y": "z"}, "outbox": [1]}', '{"certificate": {"ends": "soon"}, "runtime": 3}',
        '{"runtime": "\\ud800\\u202e", "store": {"state": [1], "failed": {"reason": "' + "x" * 5_000 + '"}}}',
    ],
)  # fmt: skip
def test_odd_facts_of_a_device_are_nothing(figures: Figures, facts: str) -> None:
    Devices(figures.rollouts.database).saw([Seen("a1", is_online=True, facts=facts)], NOW)
    status, _, body = ask(figures, "/device?id=a1", headers=IN)
    assert (status, len(body) < 2_000, b"ud800" in body or b"u202e" in body) == (200, True, False)
    assert json.loads(ask(figures, "/devices?q=a1", headers=IN)[2])["n"] == 1


def test_a_button_needs_a_header_that_other_sites_cannot_send(figures: Figures) -> None:
    assert ask(figures, "/rollouts/1/stop", method="POST", headers=IN)[0] == 403
    assert ask(figures, "/rollouts/1/dance", method="POST", headers={**IN, "X-Hardcase": "1"})[0] == 403
    assert ask(figures, "/rollouts/1/stop", headers={**IN, "X-Hardcase": "1"})[0] == 405
    assert ask(figures, "/rollouts/1/stop", method="POST", headers={**IN, "X-Hardcase": "1"})[0] == 200
    assert figures.rollouts.rollout(1).wish == "stop"
    status, _, body = ask(figures, "/rollouts/9/stop", method="POST", headers={**IN, "X-Hardcase": "1"})
    assert (status, "there is no roll-out 9" in json.loads(body)["error"]) == (409, True)


@pytest.mark.parametrize("number", [str(2**63), "9" * 20, "9" * 100, "0"])
def test_a_button_of_a_number_that_no_roll_out_can_have_says_so(figures: Figures, number: str) -> None:
    answer = ask(figures, f"/rollouts/{number}/stop", method="POST", headers={**IN, "X-Hardcase": "1"})
    assert (answer[0], f"there is no roll-out {number};" in json.loads(answer[2])["error"]) == (409, True)


@pytest.mark.parametrize("number", ["9" * 5000, "x", "-1", "\u0663", "1.5"])
def test_a_button_of_what_is_no_number_is_not_there(figures: Figures, number: str) -> None:
    assert ask(figures, f"/rollouts/{number}/stop", method="POST", headers={**IN, "X-Hardcase": "1"})[0] == 404


def test_all_watchers_get_what_changes(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)

    async def watch() -> list[list[Any]]:
        feed = module.Feed(figures, lambda: NOW)
        task = asyncio.create_task(feed.run())
        streams = [feed.events() for _ in range(5)]
        first = [json.loads((await anext(s))[6:]) for s in streams]
        Devices(figures.rollouts.database).saw([Seen("d3", is_online=True)], NOW)
        second = [json.loads((await anext(s))[6:]) for s in streams]
        for s in streams:
            await s.aclose()  # type: ignore[attr-defined]
        task.cancel()
        assert feed.watchers == 0
        return [[f["fleet"]["states"][0] for f in some] for some in (first, second)]

    assert asyncio.run(watch()) == [[["offline", 1]] * 5, [["rolled back", 1]] * 5]


def test_a_look_that_fails_is_not_the_last(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    monkeypatch.setattr(module, "BEAT_S", 0.5)
    looks = [{"x": {1}}, {"x": 1}, {"x": 2}]  # what JSON has not, and then what it has
    monkeypatch.setattr(figures, "look", lambda now: looks.pop(0) if len(looks) > 1 else looks[0])

    async def watch() -> list[bytes]:
        feed = module.Feed(figures, lambda: NOW)
        task = asyncio.create_task(feed.run())
        stream = feed.events()
        said = [await anext(stream)]
        while said[-1] != b'data: {"x":2}\n\n':  # a slow look may let a beat come before
            said.append(await anext(stream))
        said.append(await anext(stream))
        await stream.aclose()  # type: ignore[attr-defined]
        task.cancel()
        return said

    assert asyncio.run(watch())[-2:] == [b'data: {"x":2}\n\n', b"event: beat\ndata: 1\n\n"]


def test_a_store_that_goes_away_is_said_with_the_time_and_the_old_figures_stay(
    figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = figures.look(NOW)

    def away(*_: object, **__: object) -> None:
        raise InputError("the store is away")

    run = figures._database.dialect.run
    monkeypatch.setattr(figures._database.dialect, "run", away)
    after = [figures.look(NOW + k) for k in (5, 6)][1]
    assert (after["store"]["trouble"], after["store"]["since"]) == ("the store is away", NOW + 5)
    assert after["fleet"] == before["fleet"]
    assert ask(figures, "/metrics", headers=IN)[0] == 503
    assert ask(figures, "/device?id=a", headers=IN)[0] == 409
    monkeypatch.setattr(figures._database.dialect, "run", run)
    assert figures.look(NOW + 7)["store"]["trouble"] == ""


def test_a_mistake_in_the_figures_is_told_on_the_page_and_the_old_figures_stay(
    figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = figures.look(NOW)
    monkeypatch.setattr(figures, "_look", lambda _: {}["fleet"])
    after = figures.look(NOW + 5)
    assert after["store"]["trouble"].startswith("KeyError: ")
    assert after["fleet"] == before["fleet"]


def test_metrics_have_every_state_of_every_roll_out(figures: Figures) -> None:
    status, _, body = ask(figures, "/metrics", headers=IN)
    lines = body.decode().splitlines()
    assert status == 200
    assert 'hardcase_fleet_devices{state="offline"} 1' in lines
    assert 'hardcase_fleet_decisions_total{route="cloud"} 1' in lines
    assert len([line for line in lines if line.startswith("hardcase_rollout_instances{")]) == 10


def test_a_roll_out_that_has_just_begun_is_not_one_that_nobody_has_served_since_1970(figures: Figures) -> None:
    assert [figures.fleet(NOW + s).rollouts[0].unserved_s for s in (3, 400)] == [3, 400]
    assert [figures.look(NOW + s)["rollouts"][0]["is_served"] for s in (3, 400)] == [True, False]


def test_a_proxy_needs_no_token_by_its_address_alone_and_may_frame_the_page(figures: Figures) -> None:
    def answer(ingress: str, **headers: str) -> tuple[int, str]:
        status, head, _ = ask(figures, "/", headers=headers, ingress=ingress)
        return status, head["content-security-policy"].rpartition("frame-ancestors ")[2]

    assert answer("127.0.0.1") == (200, "'self'")
    forged = {
        "X-Forwarded-For": "172.30.32.2", "X-Ingress-Path": "/api/hassio_ingress/x", "Forwarded": "for=172.30.32.2",
    }  # fmt: skip
    assert answer("172.30.32.2", **forged) == (401, "'none'")
    assert answer("", **IN) == (200, "'none'")


@pytest.mark.parametrize("name", ["index.html", "label.html", "page.js", "label.js", "shared.js"])
def test_every_address_in_a_page_is_relative(name: str) -> None:
    text = files("hardcase_cloud.keep.dashboard").joinpath("page", name).read_text()
    attributes, calls = (
        r"(?:href|src|action)=[\"']/",
        r"(?:fetch|EventSource|open)\([\"'`]/|(?:src|location)\s*=\s*[\"'`]/",
    )
    assert re.findall(f"{attributes}|{calls}", text) == []
