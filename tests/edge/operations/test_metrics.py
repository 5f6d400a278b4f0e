# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format, read by a strict reader; the page that serves it, and the file for node_exporter."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress

import pytest

from hardcase_edge.cli import main
from hardcase_edge.errors import InputError
from hardcase_edge.fleet.operations.metrics import BUCKETS_S, Metrics, lines
from hardcase_edge.fleet.operations.scrape import MAX_REQUEST_BYTES, TIMEOUT_S, Page, checked_file, write_file
from tests.helpers.edge.device import EASY, HARD, make_bundle_bytes, write_replay

NAME = r"[a-z][a-z0-9_]*"
LABEL = rf'{NAME}="(?:[^"\\\n]|\\[\\n"])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.e+-]+|\+Inf|NaN)")
UNITS = (
    "_seconds", "_bytes", "_info", "_total", "_records", "_connected", "_number", "_ratio", "_price", "_per_hour",
    "_ahead",
)  # fmt: skip


def read(text):
    """The samples of a page by name and labels, or an error where Prometheus or its linter would complain."""
    samples, families, family, kind = {}, set(), "", ""
    lines = text.split("\n")
    assert lines.pop() == "", "the page ends with a line's end"
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in families, "a family stands in one place"
            families.add(family)
            assert line.endswith(".")
            kind = re.fullmatch(rf"# TYPE {family} (counter|gauge|histogram)", lines[number + 1])[1]
            assert family.endswith(UNITS)
            assert (kind == "counter") == family.endswith("_total")
        elif not line.startswith("# TYPE "):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in {family + suffix for suffix in suffixes}
            assert (name, labels) not in samples
            samples[name, labels] = float(value)
    return samples


def record(**changes):
    return {"latency_ms": 3.0, "route": "local", "failed": [], "cost": 1.5, **changes}


def test_the_page_says_what_was_decided():
    clock = [100.0]
    metrics = Metrics('a"b\\c\nd', "ab" * 32, "mJ", "1.2", now=lambda: clock[0])
    metrics.decided(record())
    metrics.decided(record(route="cloud", latency_ms=BUCKETS_S[0] * 1000, cost=100))
    metrics.decided(record(route="degraded", latency_ms=60_000, failed=["x", "y"]))
    clock[0] += 7
    status = {
        "bundle": "ab" * 32, "asked": 3, "unwritten": 2, "sensors": {"raised": 4}, "link": {"sent": 5}, "connected": 1,
        "store": {"slot": "a", "state": "good", "release": None}, "boot": 9, "outbox": {"waiting": 8},
    }  # fmt: skip
    text = metrics.text(status, memory_bytes=1 << 24, suppressed=6)
    if shutil.which("promtool"):  # Debian: prometheus
        linted = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
    page = read(text)
    assert page["hardcase_bundle_info", rf'name="a\"b\\c\nd",sha256="{"ab" * 32}",unit="mJ"'] == 1
    expected = {
        ("hardcase_uptime_seconds", None): 7,
        ("hardcase_resident_memory_bytes", None): 1 << 24,
        ("hardcase_decisions_total", 'route="local"'): 1,
        ("hardcase_decisions_total", 'route="cloud"'): 1,
        ("hardcase_decisions_total", 'route="degraded"'): 1,
        ("hardcase_decision_latency_seconds_bucket", 'le="0.001"'): 1,
        ("hardcase_decision_latency_seconds_bucket", 'le="0.005"'): 2,
        ("hardcase_decision_latency_seconds_bucket", 'le="10.0"'): 2,
        ("hardcase_decision_latency_seconds_bucket", 'le="+Inf"'): 3,
        ("hardcase_decision_latency_seconds_count", None): 3,
        ("hardcase_decision_latency_seconds_sum", None): 60.004,
        ("hardcase_decision_cost_total", 'unit="mJ"'): 103,
        ("hardcase_sensor_failures_total", 'sensor="x"'): 1,
        ("hardcase_sensor_failures_total", 'sensor="y"'): 1,
        ("hardcase_records_unwritten_total", None): 2,
        ("hardcase_sensor_errors_total", 'kind="raised"'): 4,
        ("hardcase_link_connected", None): 1,
        ("hardcase_link_events_total", 'event="sent"'): 5,
        ("hardcase_store_slot_info", 'slot="a",state="good",release=""'): 1,
        ("hardcase_outbox_waiting_records", None): 8,
        ("hardcase_boot_number", None): 9,
        ("hardcase_log_lines_suppressed_total", None): 6,
    }
    assert {key: page[key] for key in expected} == expected


def test_a_bundle_of_another_unit_begins_its_cost_anew():
    metrics = Metrics("a", "0", "mJ", "1")
    metrics.decided(record())
    metrics.loaded("b", "1", "mJ")
    assert read(metrics.text({}))["hardcase_decision_cost_total", 'unit="mJ"'] == 1.5
    metrics.loaded("c", "2", "EUR")
    assert read(metrics.text({}))["hardcase_decision_cost_total", 'unit="EUR"'] == 0


# ---------------------------------------------------------------- the page


@contextmanager
def serving(text=lambda: "x 1\n", timeout_s=60.0):
    """A page that waits for a client so long: a busy machine is none that dawdles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hardcase_edge.fleet.operations.scrape.TIMEOUT_S", timeout_s)
        page = Page("127.0.0.1:0", text)
        try:
            yield page
        finally:
            page.close()


def ask(port, request):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(request)
        answer = b""
        try:
            while part := sock.recv(65_536):
                answer += part
        except ConnectionResetError:
            pass  # it hung up before it read all
        return answer


def test_the_metrics_server_answers_one_page_and_refuses_the_rest():
    with serving() as page:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics?a=b", timeout=60) as answer:
            assert (answer.read(), answer.headers["Content-Type"]) == (
                b"x 1\n",
                "text/plain; version=0.0.4; charset=utf-8",
            )
        for request, status in [
            (b"GET / HTTP/1.1\r\n\r\n", b"404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
            (b"GET /metrics\r\n\r\n", b"405"),
            (b"\0\xff\r\n\r\n", b"405"),
        ]:
            assert ask(page.port, request).split(b" ")[1] == status
        assert ask(page.port, b"HEAD /metrics HTTP/1.0\r\n\r\n").endswith(b"close\r\n\r\n")
        assert ask(page.port, b"x" * 2 * MAX_REQUEST_BYTES) == b""
        assert ask(page.port, b"GET /metrics HTTP/1.1\r\n\r\n").endswith(b"x 1\n"), "it goes on"


def test_a_page_that_cannot_be_made_costs_one_answer():
    answers = iter([ValueError(), "x 2\n"])

    def text():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with serving(text) as page:
        assert ask(page.port, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        assert ask(page.port, b"GET /metrics HTTP/1.1\r\n\r\n").endswith(b"x 2\n")


def test_a_client_that_dawdles_keeps_the_page_for_two_seconds_at_most():
    assert TIMEOUT_S == 2.0
    with serving(timeout_s=2.0) as page, socket.create_connection(("127.0.0.1", page.port)) as slow:

        def send():
            with suppress(OSError):  # the page hangs up
                while slow.send(b"G"):
                    time.sleep(0.03)

        dawdle = threading.Thread(target=send)
        dawdle.start()
        began = time.monotonic()
        assert ask(page.port, b"GET /metrics HTTP/1.1\r\n\r\n").endswith(b"x 1\n")
        assert time.monotonic() - began < 30.0
        dawdle.join(30)
        assert not dawdle.is_alive()


@pytest.mark.parametrize(
    "address", ["", "9101", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "host:1", "::1:x", "1.2.3:4"]
)
def test_an_address_that_is_none_is_told(address):
    with pytest.raises(InputError, match=r"use 127\.0\.0\.1:9101"):
        Page(address, str)


def test_a_page_for_all_needs_a_flag_and_a_port_in_use_is_told():
    with pytest.raises(InputError, match=r"can be reached from other machines.*--metrics-public"):
        Page("0.0.0.0:0", str)
    Page("0.0.0.0:0", str, is_public=True).close()
    Page("localhost:0", str).close()
    with serving() as page, pytest.raises(InputError, match="name another port"):
        Page(f"127.0.0.1:{page.port}", str)


# ---------------------------------------------------------------- the file


def test_a_file_is_replaced_as_a_whole_and_only_under_a_name_that_is_read(tmp_path):
    path = checked_file(str(tmp_path / "hardcase.prom"))
    assert write_file(path, "x 1\n") == ""
    assert write_file(path, "x 2\n") == ""
    assert [p.name for p in tmp_path.iterdir()] == ["hardcase.prom"]
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("x 2\n", 0o644)
    (tmp_path / "folder.prom").mkdir()
    assert "Is a directory" in write_file(tmp_path / "folder.prom", "x 3\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.prom", "hardcase.prom"], "nothing is left over"
    assert "Not a directory" in write_file(path / "x.prom", "x 4\n"), "its folder has gone meanwhile"
    for name in ("metrics", "x.txt", ".prom"):
        with pytest.raises(InputError, match=r"does not end with \.prom"):
            checked_file(str(tmp_path / name))
    with pytest.raises(InputError, match="does not exist; make it"):
        checked_file(str(tmp_path / "no" / "x.prom"))


def test_the_figures_of_another_program_are_not_replaced(tmp_path):
    ours, others = tmp_path / "hardcase.prom", tmp_path / "raid.prom"
    ours.write_text("".join(lines("hardcase_build_info", "gauge", "The version.", [({}, 1)])))
    assert checked_file(str(ours)) == ours
    others.write_text("# HELP raid_disks Disks.\nraid_disks 4\n")
    with pytest.raises(InputError, match=r"raid\.prom exists and is not a file of hardcase's figures; name another"):
        checked_file(str(others))


def test_a_run_writes_its_figures(tmp_path):
    (tmp_path / "toy.hcb").write_bytes(make_bundle_bytes())
    replay = write_replay(tmp_path / "r.csv", [EASY, HARD, "broken"])
    path = tmp_path / "hardcase.prom"
    words = ["run", str(tmp_path / "toy.hcb"), "--sensors", f"replay:{replay}", "--metrics-file", str(path)]
    assert main([*words, "--metrics", "127.0.0.1:0"]) == 0
    page = read(path.read_text())
    assert page["hardcase_decisions_total", 'route="local"'] == 1
    assert page["hardcase_decisions_total", 'route="degraded"'] == 2, "the last figures are there, too"
    assert page["hardcase_sensor_failures_total", 'sensor="x"'] == 1
    assert ("hardcase_link_connected", None) not in page
    assert main([*words[:-1], "x.txt"]) == 2


def test_the_page_says_how_a_running_budget_stands():
    metrics = Metrics("x", "ab" * 32, "mJ", "1.2")
    budget = {"price": 1.5, "held": 2, "stretch": 3.0, "spent": 30.0, "plan_per_hour": 60.0, "ahead": -1.0}
    page = read(metrics.text({"bundle": "ab" * 32, "budget": budget}))
    unit = 'unit="mJ"'
    assert [page["hardcase_budget_price", None], page["hardcase_budget_plan_per_hour", unit]] == [1.5, 60]
    assert [page["hardcase_budget_spent_total", unit], page["hardcase_budget_ahead", unit]] == [30, -1]
    assert [page["hardcase_budget_stretch_ratio", None], page["hardcase_budget_held_total", None]] == [3, 2]
