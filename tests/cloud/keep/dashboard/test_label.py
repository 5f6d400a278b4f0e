# SPDX-License-Identifier: Apache-2.0
"""The page to label: what waits, no two alike, labels that are on the disk before it says so, and what devices send."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hardcase_cloud.keep.dashboard.app import MAX_BODY
from hardcase_cloud.keep.dashboard.bundles import Feature, Known
from hardcase_cloud.keep.dashboard.figures import Figures
from hardcase_cloud.keep.dashboard.judged import Errors, needed
from hardcase_cloud.keep.metrics.families import fleet_text
from hardcase_cloud.keep.records.cases import case_of
from hardcase_cloud.keep.records.database import Database
from hardcase_cloud.keep.records.incoming import Incoming
from hardcase_cloud.keep.records.labels import Labels
from hardcase_edge.base.betting import log_wealth
from tests.cloud.keep.dashboard.test_app import IN, ask
from tests.edge.outbox.test_evidence import WAV, png

NOW = 1_790_000_000.0
BUNDLE, HPC = "ab" * 32, "cd" * 32
KNOWN = Known(
    BUNDLE, "pumps", ("calm", "shaky", "broken"), HPC,
    (Feature("flow", (), 0.0, 9.0), Feature("oil", ("clear", "dark"))), 0.9,
)  # fmt: skip


def audit(device: str, sequence: int, label: Any = "calm", **more: Any) -> Incoming:
    fields = {"bundle": BUNDLE, "label": label, "readings": [2.5, 1], **more}
    return Incoming(device, 1, sequence, "audit", json.dumps(fields), BUNDLE)


class Page:
    """A store, and what a page asks the dashboard of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.sqlite"
        self.database = Database(self.path)
        self.figures = Figures(self.database, None, [KNOWN])

    def keep(self, *records: Incoming, at: float = NOW) -> None:
        """Records that have come at a time."""
        self.database.keep(records, at)

    def ask(self, what: str, **fields: Any) -> Any:
        """What the server answers to the page."""
        status, _, body = ask(
            self.figures, f"/label/{what}", method="POST", headers={**IN, "X-Hardcase": "1"},
            body=json.dumps(fields).encode(),
        )  # fmt: skip
        assert status in (200, 409)
        return json.loads(body)

    def keys(self, passed: Any = (), **fields: Any) -> list[Any]:
        """Of all cases that the page shows if a person passes each of them over, the device and the sequence."""
        found, after, passed = [], None, list(passed)
        while (case := self.ask("next", after=after, passed=passed, **fields)["case"]) is not None:
            found.append((case["key"][0], case["key"][2]))
            passed.append([case["key"][0], case["time"]])
            after = case["place"]
        return found

    def labels(self) -> list[Any]:
        """What another connection reads in the file."""
        other = Database(self.path)
        rows = other.read("SELECT device, boot, sequence, source, label FROM labels")
        other.close()
        return rows


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    made = Page(tmp_path)
    yield made
    made.database.close()


def test_audits_and_forwarded_cases_wait_the_newest_first_with_names_and_hidden_answers(page: Page) -> None:
    page.keep(audit("d1", 1, f0={"label": "broken", "confidence": 0.8}))
    page.keep(case_of("d2", bytes(16), HPC, [7.0, None], 1, 1.0), at=NOW + 5)
    page.keep(Incoming("d1", 1, 2, "decision", json.dumps({"label": "calm"})), at=NOW + 9)
    told = page.ask("next")
    assert told["case"]["key"] == ["d2", 0, 0]
    assert (told["case"]["kind"], told["case"]["own"], told["case"]["f0"]) == ("case", None, "shaky")
    assert told["case"]["readings"] == [["flow", 7.0, 0.0, 9.0], ["oil", None, None, None]]
    told = page.ask("next", after=told["case"]["place"])
    assert (told["case"]["own"], told["case"]["f0"], told["case"]["kind"]) == ("calm", "broken", "audit")
    assert told["case"]["readings"] == [["flow", 2.5, 0.0, 9.0], ["oil", "dark", None, None]]
    assert told["case"]["classes"] == ["calm", "shaky", "broken"]
    assert told["case"]["bundle"] == f"pumps {BUNDLE[:12]}"
    assert page.ask("next", after=told["case"]["place"])["case"] is None
    assert page.keys(kind="audit") == [("d1", 1)]


def test_a_label_is_in_the_file_when_the_page_hears_of_it_and_can_be_taken_back(page: Page) -> None:
    page.keep(audit("d1", 1), audit("d1", 2))
    key = page.ask("next")["case"]["key"]
    assert page.ask("give", key=key, label="broken") == {"kept": "broken"}
    assert page.labels() == [("d1", 1, 2, "person", "broken")]
    assert page.keys() == [("d1", 1)]
    assert page.ask("undo", key=key, label="calm")["error"].startswith("somebody has labelled this case anew")
    assert page.ask("undo", key=key, label="broken")["case"]["key"] == key
    assert page.labels() == []
    assert page.keys() == [("d1", 2), ("d1", 1)]


def test_no_two_of_one_device_are_shown_within_the_chosen_seconds(page: Page) -> None:
    """Neither after a label nor after a case that was passed over; the device's own time counts where it knows it."""
    for k in range(6):
        page.keep(audit("d1", 1 + k, t=NOW + 20 * k), audit("d2", 1 + k), at=NOW + 20 * k)
    page.keep(audit("d1", 9, t=NOW + 101), at=NOW + 5_000)  # from an outbox, much later
    first = page.ask("next", apart_s=50)["case"]
    assert first["key"] == ["d1", 1, 9]
    page.ask("give", key=first["key"], label="calm")
    assert page.keys(apart_s=50, passed=[["d2", NOW + 100]]) == [("d2", 3), ("d1", 3)]
    assert len(page.keys(apart_s=0)) == 12


def test_many_cases_that_are_alike_are_looked_through_in_several_questions(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardcase_cloud.keep.dashboard.waiting.PAGE", 2)
    monkeypatch.setattr("hardcase_cloud.keep.dashboard.waiting.MOST_PAGES", 2)
    for k in range(9):
        page.keep(audit("d1", 1 + k), at=NOW + k)
    page.keep(audit("d2", 1), at=NOW - 1)
    told = page.ask("next", apart_s=60, passed=[["d1", NOW + 4]])
    n = 1
    while told["go_on"]:
        told, n = page.ask("next", after=told["go_on"], apart_s=60, passed=[["d1", NOW + 4]]), n + 1
    assert (told["case"]["key"], n) == (["d2", 1, 1], 3)


def test_the_counter_says_how_many_right_labels_show_the_promise(page: Page) -> None:
    page.keep(*[audit("d1", k) for k in range(1, 21)])
    for k in range(1, 11):
        page.ask("give", key=["d1", 1, k], label="calm" if k > 1 else "broken")
    progress = page.ask("next")["progress"]
    assert (progress["n"], progress["wrong"], progress["at_most"], progress["is_promise"]) == (10, 1, 0.1, True)
    more = progress["needed"]
    assert log_wealth(10 + more, 9 + more, 0.9) >= 2.9957 > log_wealth(9 + more, 8 + more, 0.9)
    assert page.ask("next", at_most=0.01)["progress"]["needed"] > more
    assert needed(Errors(10**6, 10**6), 0.01) is None


def test_the_error_rate_by_people_stands_beside_agreement_with_f0(page: Page) -> None:
    """f0 agrees with all of them, and half of them are wrong."""
    assert page.figures.look(NOW)["errors"]["all"]["n"] == 0
    page.keep(*[audit("d1" if k < 15 else "d2", k) for k in range(1, 21)])
    labels = Labels(page.figures.rollouts.database)
    rows = labels.unlabelled("f0", 50)
    labels.label([(row, "calm", True) for row in rows], "f0", NOW)
    for k in range(1, 21):
        page.ask("give", key=["d1" if k < 15 else "d2", 1, k], label="calm" if k % 2 else "broken")
    look = page.figures.look(NOW)
    assert look["agreement"][0]["agreed"] == look["agreement"][0]["n"] == 20
    assert 'hardcase_fleet_people_labels{answer="wrong"} 10' in fleet_text(page.figures.fleet(NOW))
    errors = look["errors"]
    assert (errors["all"]["n"], errors["all"]["wrong"]) == (20, 10)
    assert errors["all"]["low"] < 0.5 < errors["all"]["high"] < 1
    assert errors["bundles"] == [[f"pumps {BUNDLE[:12]}", errors["all"]]]
    assert page.figures.device("d2", NOW)["errors"]["n"] == 6
    page.keep(case_of("d2", bytes(16), HPC, [7.0, None], 1, 1.0))
    page.ask("give", key=["d2", 0, 0], label="calm")
    assert page.figures.look(NOW)["errors"]["by_f0"]["wrong"] == 1
    page.ask("undo", key=["d1", 1, 2], label="broken")
    assert page.figures.look(NOW)["errors"]["all"]["wrong"] == 9
    page.database.remove(NOW + 1)
    assert page.figures.look(NOW)["errors"]["all"]["n"] == 19  # what was judged stays known


def test_without_a_bundle_readings_have_numbers_and_the_classes_are_those_that_were_seen(tmp_path: Path) -> None:
    page = Page(tmp_path)
    page.figures = Figures(page.database)
    page.keep(audit("d1", 1, bundle="ee" * 32))
    assert page.ask("next")["case"] is None  # no class is known
    page.keep(Incoming("d1", 1, 2, "decision", "{}", "ee" * 32, "local", "calm", 1.0))
    case = page.ask("next")["case"]
    assert (case["readings"][0], case["classes"], case["has_names"]) == (
        ["reading 1", 2.5, None, None], ["calm"], False,
    )  # fmt: skip
    page.database.close()


HOSTILE: list[dict[str, Any]] = [
    {"label": "\ud800<img src=x>" * 99}, {"label": {"a": 1}}, {"label": None}, {"label": True}, {"labels": ["a"]},
    {"readings": "x"}, {"readings": [[1], {"a": 2}, "\u202e" * 999, 1e301, True]}, {"readings": [0] * 9_000},
    {"f0": 7}, {"f0": {"label": ["x"]}}, {"bundle": 5}, {"bundle": "\ud800"}, {"t": "now"}, {"t": 1e400}, {"t": True},
]  # fmt: skip


@pytest.mark.parametrize("more", HOSTILE, ids=lambda more: str(more)[:30])
def test_whatever_a_device_sends_the_page_goes_on(page: Page, more: dict[str, Any]) -> None:
    page.keep(audit("d0", 1))
    page.keep(audit("d1", 1, **more), at=NOW + 1)
    assert ("d0", 1) in page.keys(apart_s=5, passed=[["d9", 10**400]])
    for case in (page.ask("next")["case"],):
        text = json.dumps(case)
        assert len(text) < 200_000
        assert not {"\u202e", "\ud800"} & set("".join(str(row) for row in case["readings"]) + str(case["own"]))


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("next", {"after": [1, "d"]}), ("next", {"after": "x"}), ("next", {"apart_s": -1}), ("next", {"apart_s": "1"}),
        ("next", {"kind": "decision"}), ("next", {"kind": []}), ("next", {"at_most": 0}), ("next", {"at_most": 2}),
        ("next", {"passed": [["d", 1]] * 201}), ("next", {"passed": 5}), ("next", {"after": [1e400, "d", 1, 1]}),
        ("give", {}), ("give", {"key": ["d1", 1, 1]}), ("give", {"key": ["d1", 1, 1], "label": "dead"}),
        ("give", {"key": ["d1", 1, 99], "label": "calm"}), ("give", {"key": ["d1", 1, 2**60], "label": "calm"}),
        ("give", {"key": ["d\0", 1, 1], "label": "calm"}), ("give", {"key": ["d1", 1, 2], "label": "calm"}),
        ("undo", {"key": ["d1", 1, 1]}), ("undo", {"key": ["d1", 1, 1], "label": "calm"}),
    ],
)  # fmt: skip
def test_what_a_page_should_not_send_is_one_line_and_keeps_nothing(page: Page, what: str, fields: Any) -> None:
    page.keep(audit("d1", 1), Incoming("d1", 1, 2, "decision", json.dumps({"label": "calm"})))
    assert ";" in page.ask(what, **fields)["error"]
    assert page.labels() == []


def test_a_label_needs_a_header_that_other_sites_cannot_send_and_a_small_object(page: Page) -> None:
    page.keep(audit("d1", 1))
    body = json.dumps({"key": ["d1", 1, 1], "label": "calm"}).encode()
    headers = {**IN, "X-Hardcase": "1"}
    assert ask(page.figures, "/label/give", method="POST", headers=IN, body=body)[0] == 403
    assert ask(page.figures, "/label/give", headers=headers)[0] == 405
    assert ask(page.figures, "/label/dance", method="POST", headers=headers, body=body)[0] == 404
    assert ask(page.figures, "/label/give", method="POST", headers=headers, body=b" " * (MAX_BODY + 1))[0] == 413
    for bad in (b"[]", b"{", b"[" * 60_000, b"\xff"):
        assert ask(page.figures, "/label/give", method="POST", headers=headers, body=bad)[0] == 409
    assert page.labels() == []
    status, head, text = ask(page.figures, "/label", headers=IN)
    assert (status, "script-src 'self'" in head["content-security-policy"], b"label.js" in text) == (200, True, True)


def test_a_picture_is_served_alone_by_its_bytes_and_nothing_else_is(page: Page) -> None:
    fields = {
        "cam": b64encode(png()).decode(),
        "bad": b64encode(b"<svg onload=x>").decode(),
        "mic": b64encode(WAV).decode(),
    }
    page.keep(audit("d1", 1, evidence=fields))
    page.keep(case_of("d2", bytes(16), HPC, [1.0, 2.0], 1, 1.0))
    assert page.ask("next", kind="audit")["case"]["evidence"] == [["cam", "image/png"], ["mic", "audio/wav"]]

    def get(query: str, **headers: str) -> Any:
        return ask(page.figures, f"/evidence?{query}", headers=headers or IN)

    for n, (data, kind) in enumerate([(png(), "image/png"), (WAV, "audio/wav")]):
        status, head, body = get(f"device=d1&boot=1&sequence=1&n={n}")
        assert (status, body, head["content-type"], head["x-content-type-options"]) == (200, data, kind, "nosniff")
        assert head["content-security-policy"].startswith("default-src 'none'; sandbox")
    one = "device=d1&boot=1&sequence=1"
    others = [
        "device=d1&boot=x&sequence=1&n=0", "device=d2&boot=0&sequence=0&n=0", "device=d1%00&boot=1&sequence=1&n=0",
    ]  # fmt: skip
    for query in ("", f"{one}&n=2", f"{one}&n=-1", *others):
        assert get(query)[0] == 404
    assert get("device=d1&boot=1&sequence=1&n=0", Authorization="Bearer no")[::2] == (401, b"")
