# SPDX-License-Identifier: Apache-2.0
"""SenML: packs resolve as RFC 8428 says, a bad one fails its item alone, and decisions are packs that resolve."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardcase_edge.drivers.senml import pack_of_decision, resolve
from hardcase_edge.errors import InputError, SensorError
from hardcase_edge.program.window import window_features
from hardcase_edge.sensors import packs as packs_module
from hardcase_edge.sensors.bank import SensorBank, Wanted
from hardcase_edge.sensors.packs import Packs
from hardcase_edge.sensors.specs import open_bank
from tests.helpers.edge.device import make_manifest, make_program

NOW = 1.7e9
HEAT = Wanted("heat", ("roof/heat",), (False,))
SKY = Wanted("sky", ("sky", "rain"), (True, True), categories=({"dry": 0, "wet": 1}, {}))
VIB = Wanted("vib", ("m", "d", "s", "r"), (False,) * 4, window=3)


def resolved(*records: dict[str, object]) -> list[tuple[str, float, object]]:
    """Names, seconds after NOW, and values of a pack."""
    return [(m.name, m.time - NOW, m.value) for m in resolve(json.dumps(records), NOW)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"n": "a", "v": 1}], [("a", 0, 1)]),
        ([{"bn": "urn:dev:ow:10e2073a01080063:", "n": "t", "v": 1}], [("urn:dev:ow:10e2073a01080063:t", 0, 1)]),
        ([{"bn": "a", "v": 1}, {"n": "b", "v": 2}, {"bn": "c", "v": 3}], [("a", 0, 1), ("ab", 0, 2), ("c", 0, 3)]),
        ([{"n": "a", "bt": NOW + 9, "t": 1, "v": 1}, {"n": "b", "t": -3, "v": 2}], [("b", 6, 2), ("a", 10, 1)]),
        ([{"n": "a", "t": -60, "v": 1}, {"n": "b", "t": NOW - 70, "v": 2}], [("b", -70, 2), ("a", -60, 1)]),
        ([{"n": "a", "bv": 100, "v": 1}, {"n": "b", "v": 2.5}, {"n": "c", "vs": "x"}],
         [("a", 0, 101), ("b", 0, 102.5), ("c", 0, "x")]),
        ([{"n": "a", "bv": 7}, {"n": "b", "vb": True}], [("a", 0, 7), ("b", 0, 1)]),
        ([{"bn": "a/", "bu": "Cel"}, {"n": "b", "v": 1, "u": "K"}], [("a/b", 0, 1)]),
        ([{"n": "a", "s": 5}, {"n": "b", "v": 1, "s": 5, "ut": 10}], [("b", 0, 1)]),
        ([{"n": "a", "vd": "aGk"}], [("a", 0, None)]),
        ([{"bver": 5, "n": "a", "v": 1}, {"bver": 5, "n": "b", "v": 2}], [("a", 0, 1), ("b", 0, 2)]),
        ([{"n": "a", "v": 1, "color": "red"}], [("a", 0, 1)]),
        ([], []),
    ],
)  # fmt: skip
def test_a_pack_resolves_into_measurements_in_order_of_time(
    records: list[dict[str, object]], expected: list[tuple[str, float, object]]
) -> None:
    assert resolved(*records) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "1", "[1]", "[[]]", '[{"n":"a","v":1}', '[{"n":"a","v":NaN}]', '[{"n":"a","v":1e999}]',
        '[{"n":"a","v":"1"}]', '[{"n":"a","v":true}]', '[{"n":"a","v":null}]', '[{"n":"a","vb":1}]', '[{"n":1,"v":1}]',
        '[{"v":1}]', '[{"n":"","v":1}]', '[{"n":"a b","v":1}]', '[{"n":"\\u00e4","v":1}]', '[{"n":"-a","v":1}]',
        '[{"n":"a","v":1,"vs":"x"}]', '[{"n":"a","v":1,"x_":1}]', '[{"bver":11,"n":"a","v":1}]',
        '[{"bver":0,"n":"a","v":1}]', '[{"n":"a","v":1},{"bver":5,"n":"b","v":1}]', '[{"n":"a","bt":"x","v":1}]',
        '[{"n":"' + "a" * 256 + '","v":1}]', "[" * 100_000, '[{"n":"a","v":' + "9" * 5000 + "}]",
        '[{"n":"a","v":' + "9" * 400 + "}]",
    ],
)  # fmt: skip
def test_what_is_not_a_pack_is_refused_whole(text: str) -> None:
    with pytest.raises(SensorError) as error:
        resolve(text, NOW)
    assert error.value.reason == "bad_row"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "v", "bn"]), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["n", "v", "vs", "vb", "vd", "bn", "bt", "bv", "t", "s", "bver", "u", "x_"]


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4), max_size=4))
def test_any_records_are_measurements_or_refused(records: list[dict[str, object]]) -> None:
    reason, measurements = "bad_row", []
    try:
        measurements = resolve(json.dumps(records), NOW)
    except SensorError as error:
        reason = error.reason
    assert reason == "bad_row"
    assert all(m.value is None or isinstance(m.value, int | float | str) for m in measurements)
    assert [m.time for m in measurements] == sorted(m.time for m in measurements)


def bank_of(path: Path | str, *wanted: Wanted) -> SensorBank:
    source = Packs(str(path), lambda: NOW)
    assert [source.lacks(w) for w in wanted] == [""] * len(wanted)
    return SensorBank(wanted, {w.name: source for w in wanted})


def test_each_line_is_an_item_and_a_bad_one_fails_alone(tmp_path: Path) -> None:
    lines = [
        b'[{"bn":"roof/","n":"heat","v":20.5,"t":-9},{"n":"heat","v":21.5},{"n":"heat","v":0,"t":-1}]', b"",
        b"no JSON", b'[{"n":"other","v":1}]', b"\xff\xfe", b'[{"n":"roof/heat","vs":"21.5"}]',
        b'[{"n":"roof/heat","v":22}]',
    ]  # fmt: skip
    file = tmp_path / "packs"
    file.write_bytes(b"\n".join(lines))
    with bank_of(file, HEAT) as bank:
        readings = []
        while bank.next_item():
            readings.append(bank.read([0])[0])
        assert readings == [[21.5], None, None, None, None, [22]]
        assert dict(bank.counters) == {"bad_row": 2, "not_a_number": 2}
        assert not bank.next_item()


def test_categories_are_texts_and_windows_are_measurements_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "packs"
    records = [{"n": "sky", "vs": "wet"}, *({"n": "vib", "t": -t, "v": t * t} for t in (1, 3, 2))]
    file.write_text(json.dumps(records) + "\n" + json.dumps(records[:3]))
    with bank_of(file, SKY, VIB) as bank:
        assert bank.next_item()
        assert bank.read([0, 1]) == {0: [1, None], 1: list(window_features([9.0, 4.0, 1.0]))}
        assert bank.next_item()
        assert bank.read([0, 1]) == {0: [1, None], 1: None}
        assert dict(bank.counters) == {"wrong_shape": 1}


def test_a_line_that_is_too_long_is_skipped_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs_module, "MAX_LINE", 1000)
    file = tmp_path / "packs"
    good = '[{"n":"roof/heat","v":22}]\n'
    file.write_text(good + "[" + " " * 1_000_000 + "]\n" + good)
    with bank_of(file, HEAT) as bank:
        tracemalloc.start()
        readings = [bank.next_item() and bank.read([0])[0] for _ in range(3)]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert readings == [[22], None, [22]]
        assert peak < 200_000


def test_a_line_of_very_many_records_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs_module, "MAX_LINE", 60_000)
    file = tmp_path / "packs"
    file.write_text("[" + "{}," * (packs_module.MAX_LINE // 3 - 2) + "{}]\n")
    with bank_of(file, HEAT) as bank:
        tracemalloc.start()
        assert bank.next_item()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert bank.read([0]) == {0: None}
    assert peak < 40 * packs_module.MAX_LINE


def test_names_that_senml_does_not_allow_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "packs").touch()
    source = Packs(str(tmp_path / "packs"))
    said = source.lacks(Wanted("w", ("Zürich\n",), (False,)))
    source.close()
    assert said == "sensor w: 'Zürich\\n' cannot be a name in SenML; use another source"
    with pytest.raises(InputError, match="SenML file /nowhere cannot be read: No such file or directory; name another"):
        Packs("/nowhere")


def test_a_spec_names_a_file_of_packs(tmp_path: Path) -> None:
    (tmp_path / "packs").write_text('[{"n":"x","v":3},{"n":"vib","v":1}]\n')
    with open_bank([f"x=senml:{tmp_path / 'packs'}"], make_program(), make_manifest()) as bank:
        assert bank.next_item()
        assert bank.read([0]) == {0: [3]}
    with pytest.raises(InputError, match="sensor source 'senml:' is not a MODULE:FUNCTION"):
        open_bank(["senml:"], make_program(), make_manifest())


LINES = [
    {"t": NOW, "label": "high", "confidence": 0.95, "route": "local", "cost": 1.0, "sensors": ["x"], "failed": [],
     "out_of_range": [], "latency_ms": 0.5},
    {"t": NOW, "label": 3, "confidence": None, "route": "degraded", "cost": 11.5, "sensors": ["x", "vib"],
     "failed": ["vib"], "out_of_range": ["x"], "latency_ms": 8.25},
    {"t": NOW, "value": 21.5, "interval": [20.0, 23.0], "confidence": 0.5, "route": "cloud", "cost": 0,
     "sensors": [], "failed": [], "out_of_range": [], "latency_ms": 1},
    {"t": NOW, "value": -1, "interval": None, "confidence": 0.5, "route": "cloud", "cost": 0, "sensors": [],
     "failed": [], "out_of_range": [], "latency_ms": 1},
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_decision_is_a_pack_that_resolves_to_it(line: dict[str, object]) -> None:
    pack = pack_of_decision(line, "pi-1")
    values = {name.removeprefix("hardcase/pi-1/"): (time, value) for name, time, value in resolved(*pack)}
    assert {time for time, _ in values.values()} == {0.0}
    numbers = {k: v for k, (_, v) in values.items()}
    answer = {"label": line["label"]} if "label" in line else {"value": line["value"]}
    interval = line.get("interval")
    ends = dict(zip(("interval_low", "interval_high"), interval, strict=True)) if isinstance(interval, list) else {}
    confidence = {} if line["confidence"] is None else {"confidence": line["confidence"]}
    counts = {key: len(line[key]) for key in ("sensors", "failed", "out_of_range")}  # type: ignore[arg-type]
    latency = {"latency": line["latency_ms"] / 1000}  # type: ignore[operator]
    assert numbers == answer | ends | confidence | {"route": line["route"], "cost": line["cost"]} | counts | latency


def test_standard_input_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    source = Packs(f"/dev/fd/{reading}", lambda: NOW)
    assert source.lacks(HEAT) == ""
    with SensorBank([HEAT], {"heat": source}) as bank:
        os.write(writing, b'[{"n":"roof/heat","v":1}]\n')
        assert bank.next_item()
        assert bank.read([0]) == {0: [1]}
        os.close(writing)
        assert not bank.next_item()
    os.close(reading)
