# SPDX-License-Identifier: Apache-2.0
"""A gate of APIs: a log becomes a policy, which asks functions in its order and survives what they do."""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import hardcase
from hardcase.cli import main
from hardcase.gate.answers import read_log
from hardcase.gate.file import read_gate_file
from hardcase_edge.errors import InputError

DIGITS = Path(__file__).parents[2] / "examples" / "apis" / "digits.csv"
NAMES = ("google", "microsoft", "ibm", "deepspeech")
TRAINING = ("--effort", "quick", "--method", "dag", "--jobs", "1", "--json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The gate of the example, and what the command printed."""
    out = tmp_path_factory.mktemp("gate") / "gate"
    with redirect_stdout(StringIO()) as printed:
        assert main(["gate", str(DIGITS), "--budget", "24", "--out", str(out), *TRAINING]) == 0
    return out, json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with open(DIGITS, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))[::40]


def said(row: dict[str, str], name: str) -> tuple[str, float]:
    return row[f"{name}_label"], float(row[f"{name}_confidence"])


def functions(asked: list[str] | None = None) -> dict[str, Any]:
    def one(name: str) -> Any:
        def call(row: dict[str, str]) -> tuple[str, float]:
            if asked is not None:
                asked.append(name)
            return said(row, name)

        return call

    return {name: one(name) for name in NAMES}


def test_the_gate_of_the_example_is_right_more_often_than_any_api_alone_at_less_than_the_best_ones_price(made) -> None:
    values = made[1]
    best = max(values["alone"].values(), key=lambda one: one["accuracy"])
    assert values["test"]["quality"] > best["accuracy"]
    assert values["test"]["cost"] < 0.75 * best["price"]
    assert values["test"]["forward_rate"] == 0
    assert values["stands_in"] is None


def test_a_gate_decides_as_its_bundle_does_and_asks_only_what_it_pays(made, rows) -> None:
    asked: list[str] = []
    gate = hardcase.Gate(made[0], functions(asked), coin_seed=3)
    device = hardcase.load(made[0] / "model.hcb", coin_seed=3)
    prices = {api.name: api.price for api in gate.apis}
    for row in rows:
        asked.clear()
        answer = gate.decide(row)
        expected = device.decide({name: said(row, name) for name in NAMES})
        assert (answer.label, answer.confidence, answer.price) == (expected.label, expected.confidence, expected.cost)
        assert sorted(asked) == sorted(answer.asked)
        assert answer.price == pytest.approx(sum(prices[name] for name in asked), abs=1e-5)
        assert answer.failed == ()


def test_async_functions_and_plain_ones_give_the_same_answers(made, rows) -> None:
    plain = hardcase.Gate(made[0], functions(), coin_seed=5)
    mixed = hardcase.Gate(made[0], functions(), coin_seed=5)

    @mixed.asks("microsoft")
    async def microsoft(row: dict[str, str]) -> tuple[str, float]:
        await asyncio.sleep(0)
        return said(row, "microsoft")

    async def every() -> list[Any]:
        return [await mixed.adecide(row) for row in rows]

    for a, b in zip([plain.decide(row) for row in rows], asyncio.run(every()), strict=True):
        assert (a.label, a.confidence, a.asked, a.price) == (b.label, b.confidence, b.asked, b.price)
    with pytest.raises(InputError, match="use adecide"):
        mixed.decide(rows[0])


def lie(_: object) -> Any:
    return "3"


def nan(_: object) -> Any:
    return "3", float("nan")


def broken(_: object) -> Any:
    raise OSError("no route")


@pytest.mark.parametrize("call", [lie, nan, broken, lambda _: time.sleep(5)], ids=["lie", "nan", "broken", "late"])
def test_a_call_that_fails_is_a_broken_sensor_and_the_gate_goes_on(made, rows, call) -> None:
    healthy = functions()
    usual = hardcase.Gate(made[0], healthy, coin_seed=1).decide(rows[0]).asked[0]
    gate = hardcase.Gate(made[0], healthy | {usual: call}, deadline_ms=200, coin_seed=1)
    answer = gate.decide(rows[0])
    assert usual in answer.failed
    assert answer.label in gate.classes
    assert answer.ms < 3000


def test_where_every_call_fails_the_fallback_answers_sync_and_async(made, rows) -> None:
    async def hangs(_: object) -> Any:
        await asyncio.sleep(60)

    gate = hardcase.Gate(made[0], dict.fromkeys(NAMES, broken), fallback="a human", coin_seed=1)
    first = gate.decide(rows[0])
    assert first.label == "a human"
    assert first.failed == first.asked != ()
    late = hardcase.Gate(made[0], dict.fromkeys(NAMES, hangs), deadline_ms=20, fallback="a human", coin_seed=1)
    second = asyncio.run(late.adecide(rows[0]))
    assert (second.label, second.asked) == ("a human", first.asked)
    assert hardcase.Gate(made[0], dict.fromkeys(NAMES, broken)).decide(rows[0]).label in gate.classes


def test_no_request_costs_more_than_its_budget(made, rows) -> None:
    gate = hardcase.Gate(made[0], functions())
    assert all(gate.decide(row, budget=30).price <= 30 for row in rows)


def test_a_gate_names_what_it_lacks_and_what_it_does_not_know(made) -> None:
    with pytest.raises(InputError, match="nothing asks"):
        hardcase.Gate(made[0]).decide({})
    with pytest.raises(InputError, match="did you mean 'google'"):
        hardcase.Gate(made[0], {"gogle": lie})
    with pytest.raises(InputError, match="deadline_ms is nan"):
        hardcase.Gate(made[0], deadline_ms=float("nan"))


HOSTILE = {
    "not json": b"{",
    "deep": b"[" * 100_000,
    "list": b"[]",
    "nan price": {"apis": [{"name": "a", "price": float("nan"), "ms": None}, {"name": "b", "price": 1, "ms": None}]},
    "huge price": {"apis": [{"name": "a", "price": 10**400, "ms": None}, {"name": "b", "price": 1, "ms": None}]},
    "path": {"apis": [{"name": "../a", "price": 1, "ms": None}, {"name": "b", "price": 1, "ms": None}]},
    "twice": {"apis": [{"name": "a", "price": 1, "ms": None}] * 2},
    "more keys": {"more": 1},
    "format": {"format": 2},
    "classes": {"classes": [1.5, None]},
    "bundle": {"bundle": "0" * 63},
    "other bundle": {"bundle": "0" * 64},
    "other apis": {"apis": [{"name": name, "price": 1, "ms": None} for name in "ab"]},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_gate_file_is_refused_in_one_line(made, tmp_path: Path, change) -> None:
    folder = tmp_path / "gate"
    folder.mkdir()
    shutil.copy(made[0] / "model.hcb", folder)
    own = json.loads((made[0] / "gate.json").read_text())
    (folder / "gate.json").write_bytes(change if isinstance(change, bytes) else json.dumps(own | change).encode())
    with pytest.raises(InputError, match=r"hardcase gate$") as error:
        hardcase.Gate(folder)
    assert "\n" not in str(error.value)


def test_a_gate_file_is_read_as_it_was_written(made) -> None:
    gate = read_gate_file(made[0])
    assert [api.name for api in gate.apis] == list(NAMES)
    assert gate.apis[1].price == 41


def log_of(folder: Path, header: str, *lines: str) -> Path:
    path = folder / "calls.csv"
    path.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return path


def test_columns_are_recognised_by_their_endings(tmp_path: Path) -> None:
    path = log_of(
        tmp_path,
        "id,a_pred,a_score,a_cost,a_latency_ms,B.label,B.price,Truth",
        "p,x,0.5,1,10,y,2,x", "q,y,,2,30,,2,y", "r,y,0.5,3,20,y,2,",
    )  # fmt: skip
    log = read_log(path)
    assert [(api.name, api.price, api.ms) for api in log.apis] == [("a", 2.0, 20.0), ("B", 2.0, None)]
    assert (log.truth, log.labels["B"], list(log.confidences)) == (["x", "y"], ["y", None], ["a"])
    assert log.notes == ("left out 1 rows without a truth", "left out columns of no API: id")


def test_without_truth_the_dearest_api_stands_in_and_the_log_says_so(tmp_path: Path) -> None:
    log = read_log(log_of(tmp_path, "a_label,a_price,b_label,b_price", "1,1,2,5", "1,1,1,5"))
    assert (log.stands_in, log.truth) == ("b", ["2", "1"])
    assert "the label of b, the dearest, stands in" in log.notes[0]


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        ("x,y", "1,2", "answers of 0 models"),
        ("a_label,a_price,truth", "x,1,x", "answers of 1 models"),
        ("a_label,a_price,b_label,truth", "x,1,x,x", "'b' has no price; add a column b_price"),
        ("a_label,a_price,b_price,truth", "x,1,1,x", "'b' has no label"),
        ("a_label,a_pred,a_price,b_label,b_price", "x,x,1,x,1", "both the label of 'a'"),
        ("a_label,a_price,b_label,b_price,y,truth", "x,1,x,1,x,x", "2 columns of truth"),
        ("a_label,a_price,b_label,b_price", "x,-1,x,1", "'a_price' has a negative number"),
        ("a_label,a_price,b_label,b_price", "x,much,x,1", "'a_price' holds something else than numbers"),
        ("a*_label,a*_price,b_label,b_price", "x,1,x,1", "'a*' is no name"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_line(tmp_path: Path, capsys, header, line, message) -> None:
    path = log_of(tmp_path, header, line, line)
    assert main(["gate", str(path), "--out", str(tmp_path / "gate")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.txt").write_text("years", encoding="utf-8")
    assert main(["gate", str(DIGITS), "--out", str(tmp_path)]) == 2
    assert "'thesis.txt', which no gate has" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
