# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser: 10,000 devices are painted, a device that is killed is seen without a reload, and a
page that stays open keeps what its reader has begun, and says what is old.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from hardcase_cloud.commands import dashboard as services
from hardcase_cloud.keep.dashboard.bundles import Feature, Known
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.devices import Devices, Seen
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.keeper import Keeper
from hardcase_cloud.keep.records.rollouts import Rollouts
from hardcase_cloud.rollout.waves.machine import Rollout
from hardcase_cloud.rollout.waves.plan import Plan
from hardcase_edge.link.address import parse_address
from tests.edge.outbox.test_evidence import WAV, png
from tests.helpers.cli.browser import BROWSER, Browser
from tests.helpers.cloud import brokers, dashboard
from tests.helpers.cloud.brokers import Broker, running_mosquitto, until
from tests.helpers.cloud.raw_mqtt import connect, publish
from tests.helpers.tools import need
from tests.system.test_browser import look_at

TOKEN = "a-token-of-24-characters"
N = 10_000
STATES = (
    "Object.fromEntries([...document.querySelectorAll('#states tbody tr')]"
    ".map((row) => [...row.cells].map((cell) => cell.textContent)))"
)


@contextmanager
def serving(url: str, *bundles: Known) -> Iterator[str]:
    """The dashboard of a store on a thread: its address, with the token."""
    with dashboard.serving(url, TOKEN, *bundles) as (host, port):
        yield f"http://{host}:{port}/?token={TOKEN}"


def storing(url: str, broker: Broker) -> AbstractContextManager[None]:
    """The store's process, on a thread."""
    return brokers.serving(Keeper(Database(url), parse_address(broker.url), note=print))


def device(broker: Broker) -> socket.socket:
    """A device that is online; its end without a word is told by the broker."""
    topic = "hardcase/v1/pump-1/status"
    line = socket.create_connection((broker.host, broker.port))
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed as by a kill
    line.sendall(connect("pump-1", will=(topic, b'{"state": "offline"}')))
    line.sendall(publish(topic, b'{"state": "online"}', retain=True))
    return line


def test_ten_thousand_devices_are_painted_and_a_killed_one_is_seen_at_once(tmp_path: Path) -> None:
    need(BROWSER)
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    database = Database(url)
    devices = Devices(database)
    devices.saw([Seen(f"d{k}", is_online=True, state="good") for k in range(N)], time.time())
    with (
        running_mosquitto(tmp_path) as broker, storing(url, broker), serving(url) as page, Browser(tmp_path) as browser,
    ):  # fmt: skip
        line = device(broker)
        until(lambda: database.read("SELECT count(*) FROM devices") == [(N + 1,)])
        browser.open(page)
        browser.until("document.documentElement.dataset.paint")
        assert browser.evaluate(STATES) == {"good": "10,001"}
        assert browser.evaluate("document.body.scrollWidth <= innerWidth")
        (tmp_path / "shot.png").write_bytes(browser.screenshot(900, 900))
        assert look_at(tmp_path / "shot.png")[1] > 60  # text is drawn, with soft edges
        line.close()
        browser.until(f"{STATES}.offline == '1'", 30)
        assert browser.evaluate(STATES) == {"good": "10,000", "offline": "1"}
    database.close()


def test_the_page_of_a_token_leads_to_the_dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(BROWSER)
    with serving(f"sqlite:{tmp_path / 's.sqlite'}") as page, Browser(tmp_path) as browser:
        way = services.way_in(page.partition("?")[0], TOKEN, is_given=False, as_json=True)
        monkeypatch.setattr(services, "private_folder", lambda: nullcontext(tmp_path))
        with way:
            [file] = tmp_path.glob("*.html")
            browser.call("Page.navigate", url=file.as_uri())
            browser.until("location.protocol == 'http:' && document.getElementById('states') != null")
            assert browser.evaluate("location.search") == ""


BUNDLE = {"sha256": "cd" * 32, "name": "one", "bytes": 5, "root": 1, "targets": 2, "manifest": "{}"}
DARK = [{"name": "prefers-color-scheme", "value": "dark"}]


def text(browser: Browser, id_: str) -> str:
    """What an element says."""
    return str(browser.evaluate(f"document.getElementById('{id_}').textContent"))


def test_an_open_page_keeps_a_first_press_and_a_refusal_and_says_what_is_old(tmp_path: Path) -> None:
    need(BROWSER)
    url, now = f"sqlite:{tmp_path / 's.sqlite'}", time.time()
    database = Database(url)
    Devices(database).saw([Seen("d0", is_online=False)], now - 3 * 86_400)
    Devices(database).saw([Seen("d1", is_online=True)], now)
    database.keep([Incoming("d1", 1, k, "decision", "{}", "cd" * 32, "local", "x", 2.0) for k in range(1, 9)], now)
    machine = Rollout(Plan(canary=1), "cd" * 32, ["d0", "d1"], now).to_json()
    Rollouts(database).begin(BUNDLE, "/x.hcb", "", "pumps", machine, ["d0", "d1"], now)
    with Browser(tmp_path) as browser:
        with serving(url) as page:
            browser.open(page)
            browser.until("document.querySelectorAll('canvas').length == 2")
            seen = "document.querySelector('#devices tbody tr')?.cells[2].textContent"
            browser.until(f"{seen}?.includes('{time.localtime(now - 3 * 86_400).tm_year}')")  # not only the hour
            browser.screenshot(320, 900)
            browser.until("document.body.scrollWidth <= innerWidth")

            ink = "plots.forward.chart.axes[0].stroke()"
            before = browser.evaluate(ink)
            browser.call("Emulation.setEmulatedMedia", features=DARK)
            browser.until(f"{ink} != '{before}'")

            browser.evaluate("document.getElementById('stop-1').click()")
            browser.evaluate("void ask(9, 'stop')")
            browser.until("document.getElementById('refused').textContent.includes('no roll-out 9')")
            Rollouts(database).save(1, machine, {"d1": ("trial", now, "")}, now)
            browser.until("document.getElementById('rollouts').textContent.includes('1 trial')")
            assert "no roll-out 9" in text(browser, "refused")
            assert text(browser, "stop-1") == "press again to stop roll-out 1"
            browser.evaluate("document.getElementById('stop-1').click()")
            until(lambda: Rollouts(database).rollout(1).wish == "stop")
            browser.until("document.getElementById('rollouts').textContent.includes('Asked for: stop')")
            assert browser.evaluate("!document.querySelector('#now[aria-live], #now[role]')")  # it changes often
        browser.until("document.getElementById('lost').textContent.includes('does not answer')")
        browser.evaluate("void search()")
        browser.until("document.getElementById('found').textContent.includes('does not answer')")
    database.close()


HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
KNOWN = Known("ab" * 32, HOSTILE, ("calm", HOSTILE, *"cde"), "cd" * 32, (Feature("flow", (), 0.0, 9.0),))


def audit(k: int, label: str) -> Incoming:
    """An audit, with its answer of f0."""
    fields = {"bundle": KNOWN.sha256, "label": label, "readings": [float(k)], "f0": {"label": "e"}}
    fields["evidence"] = {"cam": b64encode(png()).decode(), "mic": b64encode(WAV).decode()}
    return Incoming(f"d{k}", 1, 1, "audit", json.dumps(fields), KNOWN.sha256)


def test_cases_are_labelled_by_keys_and_what_devices_send_runs_nowhere(tmp_path: Path) -> None:
    need(BROWSER)
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    database = Database(url)
    for k in range(1, 5):
        database.keep([audit(k, HOSTILE if k == 4 else "calm")], 1_790_000_000.0 + k)
    with serving(url, KNOWN) as page, Browser(tmp_path) as browser:

        def press(key: str) -> None:
            for kind in ("keyDown", "keyUp"):
                browser.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

        def at(device: str) -> None:
            browser.until(f"!isBusy && document.getElementById('case-text').textContent.startsWith('{device},')")

        def labels() -> dict[str, str]:
            return dict(database.read("SELECT device, label FROM labels WHERE source = 'person'"))

        browser.open(page)
        browser.until("document.getElementById('errors').textContent == 'No labels by people yet.'")
        browser.open(page.partition("?")[0] + "label")
        at("d4")
        cells = "[...document.querySelectorAll('#readings tbody tr > *')].map((cell) => cell.textContent)"
        assert browser.evaluate(cells) == ["flow", "4", "0 to 9"]
        browser.until("document.querySelector('#evidence img').naturalWidth == 1")
        assert browser.evaluate("document.querySelector('#evidence audio').getAttribute('aria-label')") == "mic"
        assert text(browser, "answers-text") == ""
        press("a")
        assert text(browser, "answers-text") == f"The device answered {HOSTILE}; f0 answered e."
        press("1")
        at("d3")
        assert (labels(), text(browser, "answers-text")) == ({"d4": "calm"}, "")
        press("s")
        at("d2")
        press("2")
        at("d1")
        assert labels() == {"d4": "calm", "d2": HOSTILE}
        press("9")  # of no class
        press("u")
        at("d2")
        assert labels() == {"d4": "calm"}
        assert "1 answers of bundle" in text(browser, "needed")
        assert "1 were wrong" in text(browser, "needed")
        press("3")
        at("d1")
        press("5")
        browser.until("document.getElementById('h-case').textContent == 'No case waits.'")
        assert labels() == {"d4": "calm", "d2": "c", "d1": "e"}
        assert browser.evaluate("document.title") == "hardcase labels"
        browser.evaluate("document.querySelector('#which button').click()")
        at("d3")
        browser.screenshot(320, 900)
        browser.until("document.body.scrollWidth <= innerWidth")
        browser.open(page)
        browser.until("document.getElementById('errors').textContent == '100.0 %'")
        assert browser.evaluate("document.title") == "hardcase fleet"
        size = "parseFloat(getComputedStyle(document.getElementById('{}')).fontSize)"
        assert browser.evaluate(f"{size.format('errors')} > 2 * {size.format('agreement')}")
    database.close()


def test_of_many_classes_one_is_found_by_its_letters(tmp_path: Path) -> None:
    need(BROWSER)
    url = f"sqlite:{tmp_path / 's.sqlite'}"
    database = Database(url)
    database.keep([audit(1, "species 7")], 1_790_000_000.0)
    known = replace(KNOWN, classes=tuple(f"species {k}" for k in range(500)))
    with serving(url, known) as page, Browser(tmp_path) as browser:
        browser.open(page)
        browser.open(page.partition("?")[0] + "label")
        browser.until("document.querySelectorAll('#classes button').length == 60")
        browser.evaluate("document.getElementById('find').focus()")
        browser.call("Input.insertText", text="species 49")
        browser.until("document.querySelectorAll('#classes button').length == 11")
        browser.call("Input.insertText", text="7")
        browser.until("document.querySelectorAll('#classes button').length == 1")
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Enter")
        browser.until("document.getElementById('said').textContent == 'Kept: d1 is species 497.'")
        assert database.read("SELECT label FROM labels") == [("species 497",)]
    database.close()
