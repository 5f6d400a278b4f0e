# SPDX-License-Identifier: Apache-2.0
"""A gate of APIs: a log becomes a policy, which asks functions in its order and survives what they do."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import hardcase
from hardcase.cli import main
from hardcase.gate import calls
from hardcase.gate.answers import read_log, write_problem
from hardcase.gate.file import read_gate_file
from hardcase_edge.bundle.load import load_bundle
from hardcase_edge.errors import InputError
from tests.helpers.cli.gates import NAMES, PRICES, TRAINING, made_gate, requests, said
from tests.helpers.cloud.brokers import until

DIGITS = Path(__file__).parents[2] / "examples" / "apis" / "digits.csv"


@pytest.fixture(scope="module")
def made() -> tuple[Path, dict[str, Any]]:
    """The gate, and what the command printed."""
    return made_gate()


@pytest.fixture(scope="module")
def rows() -> tuple[dict[str, Any], ...]:
    return requests()[::4]


def functions(asked: list[str] | None = None) -> dict[str, Any]:
    def one(name: str) -> Any:
        def call(row: dict[str, str]) -> tuple[str, float]:
            if asked is not None:
                asked.append(name)
            return said(row, name)

        return call

    return {name: one(name) for name in NAMES}


def test_a_gate_is_right_more_often_than_any_api_alone_at_its_price_or_less(made) -> None:
    values = made[1]
    alone = [one["accuracy"] for one in values["alone"].values() if one["price"] <= values["test"]["cost"]]
    assert values["test"]["quality"] > max(alone)
    assert values["test"]["cost"] < PRICES["large"]
    assert values["test"]["forward_rate"] == 0
    assert values["stands_in"] is None


def test_a_gate_decides_as_its_bundle_does_and_asks_only_what_it_pays(made, rows) -> None:
    asked: list[str] = []
    gate = hardcase.Gate(made[0], functions(asked), coin_seed=3)
    device = hardcase.load(made[0] / "model.hcb", coin_seed=3)
    for row in rows:
        asked.clear()
        answer = gate.decide(row)
        expected = device.decide({name: [x for x in said(row, name) if x is not None] for name in NAMES})
        assert (answer.label, answer.confidence, answer.price) == (expected.label, expected.confidence, expected.cost)
        assert sorted(asked) == sorted(answer.asked)
        assert answer.price == pytest.approx(sum(PRICES[name] for name in asked), abs=1e-5)
        assert answer.failed == ()


def test_async_functions_and_plain_ones_give_the_same_answers(made, rows) -> None:
    plain = hardcase.Gate(made[0], functions(), coin_seed=5)
    mixed = hardcase.Gate(made[0], functions(), coin_seed=5)

    @mixed.asks("large")
    async def large(row: dict[str, str]) -> tuple[str, float]:
        await asyncio.sleep(0)
        return said(row, "large")

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


class Odd(float):
    """A number that cannot be looked at."""

    def __float__(self) -> float:
        raise ZeroDivisionError


def odd(_: object) -> Any:
    return "3", Odd(0.5)


LET_GO = threading.Event()
FAILURES = {
    "lie": (lie, "it gave str, a pair (label, confidence) is expected"),
    "nan": (nan, "its confidence is nan, a number from 0 to 1 is expected"),
    "percent": (lambda _: ("3", 87.0), "its confidence is 87.0, a number from 0 to 1 is expected"),
    "log": (lambda _: ("3", -0.2), "its confidence is -0.2, a number from 0 to 1 is expected"),
    "unknown": (lambda _: ("Three", 0.9), "gave the label 'Three', which it never gave in the log"),
    "broken": (broken, "OSError: no route"),
    "odd": (odd, "failed: ZeroDivisionError"),
    "late": (lambda _: LET_GO.wait(60), "was late"),
}


@pytest.fixture(autouse=True)
def _no_thread_comes_back_later() -> Iterator[None]:
    """The next test finds all threads of calls idle, and none that takes a place among them in its midst."""
    yield
    LET_GO.set()
    until(lambda: len(calls._Worker.idle) == calls._Worker.n)
    LET_GO.clear()


@pytest.mark.parametrize(("call", "line"), FAILURES.values(), ids=FAILURES)
def test_a_call_that_fails_is_a_broken_sensor_and_the_gate_goes_on(made, rows, call, line, caplog) -> None:
    healthy = functions()
    usual = hardcase.Gate(made[0], healthy, coin_seed=1).decide(rows[0]).asked[0]
    deadline_ms = 2_000 if "late" in line else 60_000
    gate = hardcase.Gate(made[0], healthy | {usual: call}, deadline_ms=deadline_ms, coin_seed=1)
    answer = gate.decide(rows[0])
    assert usual in answer.failed
    assert answer.label in gate.classes
    assert answer.ms < 30_000
    assert [line in message for message in caplog.messages] == [True]


def test_a_confidence_may_be_beyond_one_by_rounding(made, rows) -> None:
    over = {name: lambda row, n=name: (said(row, n)[0], 1.0000001) for name in NAMES}
    assert hardcase.Gate(made[0], over).decide(rows[0]).failed == ()


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


def test_a_request_whose_time_is_no_number_is_refused_before_anything_is_paid(made, rows) -> None:
    asked: list[str] = []
    with pytest.raises(InputError, match="within_ms is NaN"):
        hardcase.Gate(made[0], functions(asked)).decide(rows[0], within_ms=float("nan"))
    assert asked == []


@pytest.mark.parametrize("is_async", [False, True], ids=["decide", "adecide"])
@pytest.mark.parametrize(("within_ms", "n_asked"), [(1_000, 1), (0, 0)], ids=["between-two-steps", "at-once"])
def test_when_a_request_s_time_is_over_nobody_is_asked_and_nothing_is_paid(
    made, rows, within_ms, n_asked, is_async
) -> None:
    called = list[str]()

    def slow(name: str) -> Any:
        return lambda row: (called.append(name), time.sleep(1.5), said(row, name))[2]

    gate = hardcase.Gate(made[0], {name: slow(name) for name in NAMES}, fallback="a human", coin_seed=1)
    broke = hardcase.Gate(made[0], dict.fromkeys(NAMES, broken), coin_seed=1)
    wanted = broke.decide(rows[0]).asked  # one after the other
    assert len(wanted) > 1
    if is_async:
        answer = asyncio.run(gate.adecide(rows[0], within_ms=within_ms))
    else:
        answer = gate.decide(rows[0], within_ms=within_ms)
    assert tuple(called) == answer.asked == wanted[:n_asked]
    assert (answer.label, answer.failed) == ("a human", wanted)
    assert answer.price == sum(PRICES[name] for name in answer.asked)


def test_threads_of_calls_stay_and_one_that_hangs_is_left_behind(made, rows) -> None:
    idents, let_go = set[int](), threading.Event()

    def small(row: dict[str, Any]) -> Any:
        idents.add(threading.get_ident())
        return said(row, "small")

    gate = hardcase.Gate(made[0], functions() | {"small": small}, coin_seed=1)
    for row in rows:
        gate.decide(row)
    assert len(idents) == 1
    hangs = dict.fromkeys(NAMES, lambda _: let_go.wait(60))
    late = hardcase.Gate(made[0], hangs, deadline_ms=20, coin_seed=1).decide(rows[0])
    assert late.failed == late.asked != ()
    n = calls._Worker.n
    assert gate.decide(rows[0]).failed == ()
    let_go.set()
    assert calls._Worker.n <= n + 1


def test_no_more_threads_are_started_than_are_allowed(made, rows, monkeypatch, caplog) -> None:
    monkeypatch.setattr(calls, "MOST_THREADS", 0)
    monkeypatch.setattr(calls._Worker, "idle", calls.deque(maxlen=0))
    answer = hardcase.Gate(made[0], functions(), fallback="a human", coin_seed=1).decide(rows[0])
    assert (answer.label, answer.failed) == ("a human", answer.asked)
    assert "no further thread is started" in caplog.text


def test_without_a_deadline_a_call_runs_in_the_thread_of_who_asks(made, rows) -> None:
    threads = set[threading.Thread]()

    def seen(call: Any) -> Any:
        return lambda row: (threads.add(threading.current_thread()), call(row))[1]

    gate = hardcase.Gate(made[0], {name: seen(f) for name, f in functions().items()}, deadline_ms=None, coin_seed=2)
    pooled = hardcase.Gate(made[0], functions(), coin_seed=2)
    answers = [(a := gate.decide(row)).label == (b := pooled.decide(row)).label and a.asked == b.asked for row in rows]
    assert all(answers)
    assert threading.current_thread() in threads


def test_no_request_costs_more_than_its_budget(made, rows) -> None:
    gate = hardcase.Gate(made[0], functions())
    assert all(gate.decide(row, budget=5).price <= 5 for row in rows)


def test_a_gate_names_what_it_lacks_and_what_it_does_not_know(made) -> None:
    with pytest.raises(InputError, match="nothing asks"):
        hardcase.Gate(made[0]).decide({})
    with pytest.raises(InputError, match="did you mean 'small'"):
        hardcase.Gate(made[0], {"smal": lie})
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
    assert gate.apis[1].price == 10


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


def test_labels_that_are_numbers_are_categories_without_a_word(tmp_path: Path) -> None:
    lines = [f"{k % 7},1,{k % 5 + 1},2,{k % 7}" for k in range(70)]
    log = read_log(log_of(tmp_path, "a_label,a_price,b_label,b_price,truth", *lines))
    table = write_problem(log, tmp_path / "gate", "price")[1].without("truth")
    assert table.as_features(np.ones(70, dtype=bool)).notes == ()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_whole_numbers_are_the_same_labels_with_and_without_a_gap_in_their_column(tmp_path: Path, form: str) -> None:
    path, gap = tmp_path / f"calls.{form}", float("nan")
    table = {"a_label": [1.0, gap, 3.0], "a_price": [1] * 3, "b_label": [1, 2, 2], "b_price": [2] * 3}
    if form == "parquet":
        pa.parquet.write_table(pa.table(table | {"truth": [1.0, 2.0, gap]}), path)
    else:
        path.write_text("a_label,a_price,b_label,b_price,truth\n1.0,1,1,2,1.0\n,1,2,2,2.0\n3.0,1,2,2,\n")
    log = read_log(path)
    assert (log.truth, log.labels) == ([1, 2], {"a": ["1", None], "b": ["1", "2"]})


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_label_that_is_true_or_false_is_the_truth_s_text(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"calls.{form}"
    table = {"a_label": [True, None, False], "a_price": [1] * 3, "b_label": [True, False, True], "b_price": [2] * 3}
    if form == "parquet":
        pa.parquet.write_table(pa.table(table | {"truth": [True, False, True]}), path)
    else:
        path.write_text(
            "a_label,a_price,b_label,b_price,truth\nTrue,1,True,2,True\n,1,False,2,False\nFalse,1,True,2,True\n"
        )
    log = read_log(path)
    assert log.truth == ["True", "False", "True"] == log.labels["b"]
    assert log.labels["a"] == ["True", None, "False"]
    assert read_log(log_of(tmp_path, "a_label,a_price,b_label,b_price", "true,1,false,2")).truth == ["false"]


def test_labels_that_are_no_whole_numbers_are_text_as_a_gate_has_them(tmp_path: Path) -> None:
    log = read_log(log_of(tmp_path, "a_label,a_price,b_label,b_price,truth", "1,1,1.5,2,1.5", "2,1,,2,1", "1,1,1,2,"))
    assert (log.truth, log.labels) == (["1.5", "1"], {"a": ["1", "2"], "b": ["1.5", None]})


def test_the_log_of_the_example_has_four_apis_with_their_prices() -> None:
    log = read_log(DIGITS)
    assert [(api.name, api.price) for api in log.apis] == [
        ("google", 60.0), ("microsoft", 41.0), ("ibm", 25.0), ("deepspeech", 0.02),
    ]  # fmt: skip
    assert (len(log.truth), log.stands_in, log.notes) == (2000, None, ())


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
        ("a_label,a_price,b_label,b_price", "x,1e308,x,1", "'a_price' has a number above 1e+09; scale the column"),
        ("a_label,a_price,b_label,b_price", "x,0.0000004,x,1", "'a_price' has a mean of 4e-07, of which six decimals"),
        ("a_label,a_price,a_score,b_label,b_price", "x,1,87,x,1", "'a_score' holds 87, a confidence from 0 to 1"),
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


@pytest.mark.usefixtures("brief_effort")
def test_a_log_in_parquet_makes_a_gate_with_a_promise_and_one_within_a_loss(tmp_path: Path, capsys) -> None:
    log, out = tmp_path / "calls.parquet", tmp_path / "gate"
    pa.parquet.write_table(pa.Table.from_pylist(list(requests())), log)
    for wish in ("--risk 0.3 --delta 0.2", "--max-loss 0.05"):
        assert main(["gate", str(log), *wish.split(), "--out", str(out), *TRAINING]) == 0
        said, claims = json.loads(capsys.readouterr().out), load_bundle(out / "model.hcb").manifest.claims
        assert said["test"]["cost"] < 15
        assert ("promise" in claims and claims["promise"]["risk"] == 0.3) is wish.startswith("--risk")
        assert hardcase.Gate(out, functions()).decide(requests()[0]).label in ("cat", "dog")


def test_the_command_of_the_page_needs_no_folder_and_replaces_only_a_gate(made, tmp_path: Path, capsys) -> None:
    assert made[1]["out"] == "gate"
    assert (made[0] / "gate.json").is_file()
    shutil.copy(DIGITS, tmp_path / "calls.csv")
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "latch.stl").touch()
    with chdir(tmp_path):
        assert main(["gate", "calls.csv", "--budget", "5"]) == 2
    assert "gate holds 'latch.stl', which no gate has" in capsys.readouterr().err


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "thesis.txt").write_text("years", encoding="utf-8")
    assert main(["gate", str(DIGITS), "--out", str(tmp_path)]) == 2
    assert "'thesis.txt', which no gate has" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
