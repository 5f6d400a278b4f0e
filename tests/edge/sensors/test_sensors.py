# SPDX-License-Identifier: Apache-2.0
"""Sensors: whatever a source does, a session gets readings or None, in time, and somebody counts."""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError, SensorError
from hardcase_edge.program.definition import Feature, Program, Sensor, Uplink
from hardcase_edge.program.window import window_features
from hardcase_edge.sensors import csv_replay as replay_module
from hardcase_edge.sensors.bank import FAILURES, Features, SensorBank, Source, Wanted, wanted_of
from hardcase_edge.sensors.csv_replay import Replay
from hardcase_edge.sensors.specs import open_bank
from tests.helpers.edge.device import make_manifest, make_program, write_replay

X = Wanted("x", ("x",), (False,))
PAIR = Wanted("pair", ("a", "b"), (False, True))
VIB = Wanted("vib", ("m", "d", "s", "r"), (False,) * 4, window=5)
SKY = {"dry": 0, "1": 1, "rain": 2}  # codes of a category, one of whose texts looks like a number
WEATHER = Wanted("weather", ("sky", "heat"), (True, False), categories=(SKY, {}))
NEEDED = Wanted("weather", ("sky", "heat"), (False, False), categories=(SKY, {}))
SKY_ALONE = Wanted("sky", ("sky",), (True,), categories=(SKY,))


PATIENT_S = 60.0  # a time limit that a busy machine keeps, where a sensor must answer


class Plain:
    """A source that calls a function."""

    is_instant = False

    def __init__(self, function=lambda sensor: 1.0):
        self.read = function

    def lacks(self, wanted):
        return ""

    def next_item(self):
        return True

    def close(self):
        pass


class Derived(float):
    """A number whose class may do anything."""


class DerivedOfNumpy(np.float64):
    """A number of numpy whose class may do anything."""


class DerivedOfText(str):
    """A text whose class may do anything, and whose letters are no readings."""

    __slots__ = ()


def read_one(function, wanted=X, timeout_s=PATIENT_S):
    """What a bank makes of one sensor: its features, and the failure counted."""
    source: Source = Plain(function)
    with SensorBank([wanted], {wanted.name: source}, timeout_s=timeout_s) as bank:
        return bank.read([0])[0], dict(bank.counters)


def raising(error):
    def function(sensor):
        raise error

    return function


@pytest.mark.parametrize(
    ("value", "wanted", "features"),
    [
        (2.5, X, [2.5]),
        (2, X, [2.0]),
        ([2.5], X, [2.5]),
        ((1, 2), PAIR, [1.0, 2.0]),
        ([1, None], PAIR, [1.0, None]),
        ([1, float("nan")], PAIR, [1.0, None]),
        ([1, 2, 4, 8, 16], VIB, list(window_features([1, 2, 4, 8, 16]))),
        (Features([1.0, 2.0, 3.0, 4.0]), VIB, [1.0, 2.0, 3.0, 4.0]),
        ([True, False], PAIR, [1, 0]),
        (17030583100112897, X, [17030583100112897]),  # a float would round it before its type does
        (np.float32(0.5), X, [0.5]),
        ([np.int16(-3), np.bool_(True)], PAIR, [-3, 1]),
        (np.array([1.5, np.nan]), PAIR, [1.5, None]),
        (array("i", [1, 2, 4, 8, 16]), VIB, list(window_features([1, 2, 4, 8, 16]))),
    ],
)
def test_a_reading_becomes_the_sensors_features(value, wanted, features):
    assert read_one(lambda sensor: value, wanted) == (features, {})


@pytest.mark.parametrize(
    ("value", "wanted", "failure"),
    [
        (None, X, "not_a_number"), (float("nan"), X, "not_a_number"), (float("inf"), X, "not_a_number"),
        (10**400, X, "not_a_number"), (object(), X, "not_a_number"), ([None, 1], PAIR, "not_a_number"),
        ([[1], [2]], PAIR, "not_a_number"), ([1, 2, None, 4, 5], VIB, "not_a_number"),
        ([1, 2, float("nan"), 4, 5], VIB, "not_a_number"), ([1e308, -1e308, 1e308, 1, 1], VIB, "not_a_number"),
        (Fraction(1, 2), X, "not_a_number"), (Derived(2.5), X, "not_a_number"),
        (DerivedOfNumpy(2.5), X, "not_a_number"), (np.timedelta64(3, "s"), X, "not_a_number"),
        (np.array(2.5), X, "not_a_number"), (["1e0"], X, "not_a_number"), ([b"0.5"], X, "not_a_number"),
        (["1_0"], X, "not_a_number"), (["\u0661"], X, "not_a_number"), ([1, 2], X, "wrong_shape"),
        ([], X, "wrong_shape"), (1.0, PAIR, "wrong_shape"), ([1, 2, 3, 4], VIB, "wrong_shape"),
        (range(10**12), VIB, "wrong_shape"), ("2.5", X, "wrong_shape"), (b"12", PAIR, "wrong_shape"),
        (memoryview(b"12"), PAIR, "wrong_shape"), (DerivedOfText("12"), PAIR, "wrong_shape"),
        (DerivedOfText("1"), X, "wrong_shape"), ({"a": 1, "b": 2}, PAIR, "wrong_shape"),
        ({1, 2}, PAIR, "wrong_shape"),
    ],
)  # fmt: skip
def test_anything_else_is_a_failed_sensor(value, wanted, failure):
    assert read_one(lambda sensor: value, wanted) == (None, {failure: 1})
    assert failure in FAILURES


@pytest.mark.parametrize("error", [ValueError("broken"), OSError(5, "I/O error"), SystemExit(1), KeyboardInterrupt()])
def test_a_sensor_that_raises_has_failed_and_the_device_goes_on(error):
    assert read_one(raising(error)) == (None, {"raised": 1})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([X, PAIR, VIB]),
)
@settings(max_examples=120)
def test_no_value_gets_through_that_is_not_features(value, wanted):
    features, failures = read_one(lambda sensor: value, wanted)
    if features is None:
        assert failures in ({"not_a_number": 1}, {"wrong_shape": 1})
    else:
        assert len(features) == len(wanted.features)
        assert all(x is not None or may for x, may in zip(features, wanted.nullable, strict=True))


def test_without_a_thread_a_sensor_has_failed_until_there_is_one(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with SensorBank([X], {"x": Plain(lambda sensor: 7.0)}, timeout_s=PATIENT_S) as bank:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            assert bank.read([0]) == {0: None}
        assert bank.pause_s > 0, "so that a loop without an interval does not spin"
        assert bank.read([0]) == {0: [7.0]}
        assert dict(bank.counters) == {"still_busy": 1}


def test_a_sensor_that_hangs_costs_its_time_limit_once_and_its_late_reading_is_dropped():
    release = threading.Event()
    values = iter([111.0, 222.0])

    def hang(sensor):
        value = next(values)
        if value == 111.0:
            release.wait(PATIENT_S)
        return value

    bank = SensorBank([X], {"x": Plain(hang)}, timeout_s=0.5)
    began = time.monotonic()
    assert bank.read([0]) == {0: None}
    assert 0.49 < time.monotonic() - began < 20.0
    bank._timeout_s = PATIENT_S
    began = time.monotonic()
    assert bank.read([0]) == {0: None}
    assert time.monotonic() - began < 20.0, "a sensor known to hang is not waited for again"
    assert dict(bank.counters) == {"timed_out": 1, "still_busy": 1}
    release.set()
    until = time.monotonic() + 30
    while (reading := bank.read([0])[0]) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert reading == [222.0], "the reading that came too late belongs to no later item"


class Slow:
    """A sequence, or a number, that hangs when it is looked at, until the test ends."""

    def __init__(self, hangs: str, release: threading.Event) -> None:
        self._hangs, self._release = hangs, release

    def _look(self, name: str) -> None:
        if name == self._hangs:
            self._release.wait(30)

    def __float__(self) -> float:
        self._look("__float__")
        return 1.0

    def __len__(self) -> int:
        self._look("__len__")
        return 1

    def __getitem__(self, k: int) -> float:
        self._look("__getitem__")
        return 1.0


@pytest.mark.parametrize("look", ["__len__", "__getitem__"])
def test_a_value_that_hangs_when_it_is_looked_at_is_a_hung_sensor(look: str):
    release = threading.Event()
    began = time.monotonic()
    assert read_one(lambda _: Slow(look, release), timeout_s=0.05) == (None, {"timed_out": 1})
    assert time.monotonic() - began < 20.0
    release.set()


def test_nobody_asks_an_object_for_its_number():
    assert read_one(lambda _: [Slow("__float__", threading.Event())]) == (None, {"not_a_number": 1})


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt(), GeneratorExit(), SensorError([])])
def test_a_value_that_raises_when_it_is_looked_at_is_a_failed_sensor(error: BaseException):
    class Raises:
        def __len__(self) -> int:
            raise error

    assert read_one(lambda _: Raises()) == (None, {"raised": 1})
    assert read_one(raising(error)) == (None, {"raised": 1})


def test_a_sensor_that_is_still_busy_asks_a_loop_without_an_interval_to_wait():
    release = threading.Event()
    with SensorBank([X], {"x": Plain(lambda _: release.wait(30))}, timeout_s=0.05) as bank:
        pauses = []
        for _ in range(3):
            assert bank.next_item()
            assert bank.read([0]) == {0: None}
            pauses.append(bank.pause_s)
        release.set()
        assert bank.next_item()
        assert (pauses, bank.pause_s) == ([0.0, 0.05, 0.05], 0.0)


def test_a_fork_that_comes_back_ends_at_once(tmp_path: Path):
    def fork(sensor: str) -> int:
        child = os.fork()
        (tmp_path / "pid").write_text(str(child)) if child else None
        return 1

    assert read_one(fork) == ([1], {})
    assert os.waitstatus_to_exitcode(os.waitpid(int((tmp_path / "pid").read_text()), 0)[1]) == 1


def test_sensors_asked_for_together_are_read_at_the_same_time():
    barrier = threading.Barrier(3, timeout=60)

    def meet(sensor):
        barrier.wait()
        return float(sensor)

    names = ["1", "2", "3"]
    bank = SensorBank([Wanted(n, (n,), (False,)) for n in names], {n: Plain(meet) for n in names}, timeout_s=PATIENT_S)
    assert bank.read([0, 1, 2]) == {0: [1.0], 1: [2.0], 2: [3.0]}


def test_there_are_never_more_threads_than_sensors_and_none_after_the_end():
    def alive():
        return [t for t in threading.enumerate() if t.name == "hardcase-call"]

    before = set(alive())
    source = Plain()
    with SensorBank([X, Wanted("y", ("y",), (False,))], {"x": source, "y": source}, timeout_s=PATIENT_S) as bank:
        for _ in range(50):
            assert bank.read([0, 1]) == {0: [1.0], 1: [1.0]}
        mine = set(alive()) - before
        assert len(mine) == 2
    for thread in mine:
        thread.join(30)
    assert not mine & set(alive())


def test_a_sensor_without_a_source_is_dead():
    bank = SensorBank([X, VIB], {"x": Plain()}, timeout_s=PATIENT_S)
    assert bank.dead == {1}
    assert bank.read([0, 1]) == {0: [1.0], 1: None}


# ---------------------------------------------------------------- categories


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        ("rain", 2.0), (" dry ", 0.0), ("1", 1.0), (np.str_("rain"), 2.0), ("Rain", None), ("", None), ("2", None),
        (1, None), (2.0, None), (True, None), (float("nan"), None), (10**400, None), (b"dry", None), (None, None),
        ([0], None), (object(), None),
    ],
)  # fmt: skip
def test_a_category_takes_its_texts_and_all_else_is_missing(reading: object, code: float | None):
    assert read_one(lambda _: (reading, 21.5), WEATHER) == ([code, 21.5], {})
    assert read_one(lambda _: (reading,), SKY_ALONE) == ([code], {})


@pytest.mark.parametrize("reading", ["Rain", "", 1, None, float("nan"), b"dry"])
def test_where_training_had_no_gap_a_reading_that_is_no_known_text_fails_its_sensor(reading: object):
    assert read_one(lambda _: (reading, 21.5), NEEDED) == (None, {"not_a_number": 1})
    assert read_one(lambda _: (" rain", 21.5), NEEDED) == ([2, 21.5], {})


def test_one_text_alone_is_the_reading_of_a_category():
    assert read_one(lambda _: "rain", SKY_ALONE) == ([2], {})
    assert read_one(lambda _: "rain", WEATHER) == (None, {"wrong_shape": 1})
    assert read_one(lambda _: "rain", X) == (None, {"wrong_shape": 1})


@pytest.mark.parametrize("text", ["21.5", b"21.5", bytearray(b"1"), "nan"])
def test_text_is_never_a_number_of_a_sensor(text: object):
    assert read_one(lambda _: ("dry", text), WEATHER) == (None, {"not_a_number": 1})
    assert read_one(lambda _: [text], X) == (None, {"not_a_number": 1})


def test_a_replay_reads_the_texts_of_categories_and_the_words_of_tables(tmp_path: Path):
    file = tmp_path / "r.csv"
    rows = ['"rain";21,5', "1;NA", "fog;TRUE", ";-3", "?;21.5", "dry;2,1,5"]
    file.write_bytes("\n".join(["sky; heat;Zürich", *(f"{row};x" for row in rows)]).encode("latin-1"))
    weather = Wanted("weather", ("sky", "heat", "Zürich"), (True, True, True), categories=(SKY, {}, {"x": 0}))
    source = Replay(file)
    assert source.lacks(weather) == ""
    bank, seen = SensorBank([weather], {"weather": source}), []
    while bank.next_item():
        seen.append(bank.read([0])[0])
    assert seen == [[2, 21.5, 0], [1, None, 0], [None, 1.0, 0], [None, -3.0, 0], [None, 21.5, 0], None]
    assert dict(bank.counters) == {"not_a_number": 1}


def test_a_bank_knows_the_categories_of_its_bundle():
    features = (Feature("i32", nullable=True), Feature("f32"))
    program = Program(features, (Sensor((0, 1), (0,)), Sensor((), (0,))), Uplink(), (), (), (), 2)
    manifest = Manifest("m", "u", ("sky", "heat"), ("weather", "none"), (0, 1), categories={"sky": ("dry", "rain")})
    assert wanted_of(program, manifest) == [
        Wanted("weather", ("sky", "heat"), (True, False), categories=({"dry": 0, "rain": 1}, {})),
        Wanted("none", (), ()),
    ]


# ---------------------------------------------------------------- replay


def replay_bank(path, *more):
    return open_bank([f"replay:{path}", *more], make_program(), make_manifest())


def test_a_replay_gives_row_after_row_and_then_ends(tmp_path: Path):
    with replay_bank(write_replay(tmp_path / "r.csv", [1.5, "", "oops", "nan", "1_0", -2])) as bank:
        seen = []
        while bank.next_item():
            seen.append(bank.read([0, 1]))
        assert [item[0] for item in seen] == [[1.5], None, None, None, None, [-2.0]]
        assert all(item[1] == list(window_features([1, 2, 3, 4, 5])) for item in seen)
        assert dict(bank.counters) == {"not_a_number": 4}
        assert not bank.next_item()


def test_a_replay_may_hold_features_instead_of_samples(tmp_path: Path):
    file = tmp_path / "r.csv"
    file.write_text('\ufeffvib_roughness, vib_mean ,x,"vib_slope",vib_deviation,other\n4,1,9,3,2,text\n,1,9,3,2,\n')
    with replay_bank(file) as bank:
        assert bank.next_item()
        assert bank.read([1, 0]) == {1: [1.0, 2.0, 3.0, 4.0], 0: [9.0]}
        assert bank.next_item()
        assert bank.read([1]) == {1: [1.0, 2.0, 3.0, None]}, "roughness may be missing"


def test_a_bad_row_fails_its_sensors_and_rows_stay_in_step(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(replay_module, "MAX_ROW", 100)
    good = "7,1,2,3,4,5"
    file = tmp_path / "r.csv"
    header = "x," + ",".join(f"vib[{k}]" for k in range(5))
    rows = [good, good + ",6", "7,1", "", '"7,1",2,3,4,5', "9" * 250 + ",1,2,3,4,5", good, "7,1,2,3,4"]
    file.write_text("\n".join([header, *rows]))
    with replay_bank(file) as bank:
        seen = []
        while bank.next_item():
            seen.append(bank.read([0])[0])
        assert seen == [[7.0], None, None, None, None, [7.0], None], "a blank line is no row"
        assert dict(bank.counters) == {"bad_row": 5}


HEAD = "x,vib_mean,vib_deviation,vib_slope,vib_roughness,note"


def test_a_quoted_cell_may_have_line_breaks_and_separators_in_the_header_too(tmp_path: Path):
    file = tmp_path / "r.csv"
    rows = [
        '1,1,1,1,1,"two\r\nlines, and ""quotes"""',
        '"2",1,1,1,1,"\n\n"',
        "",
        '3,1,1,1,1,5"',
        '4,1,1,1,1,"a"b',
        '5,1,1,1,1,"',
    ]
    file.write_bytes("\r\n".join([HEAD.replace("note", '"note;\n of one"'), *rows, '"\r\n']).encode())
    with open_bank([f"x=replay:{file}", "vib=none"], make_program(), make_manifest()) as bank:
        seen = []
        while bank.next_item():
            seen.append(bank.read([0])[0])
    assert seen == [[1.0], [2.0], [3.0], [4.0], [5.0]]
    assert column_names(Replay(file)) == [*HEAD.split(",")[:-1], "note;\n of one"]


def column_names(source: Replay) -> list[str]:
    source.close()
    return list(source._at)


def read_all(file: Path) -> None:
    with replay_bank(file) as bank:
        while bank.next_item():
            assert len(bank.read([0])) == 1


@pytest.mark.parametrize("tail", ['"7', '"' + "7\n" * 200, '"' + "7" * 500, "1,2,3,4,5,6" + "\n" + '7,"' + "8\n" * 90])
@pytest.mark.parametrize("is_header", [True, False])
def test_a_quote_that_is_not_closed_is_refused_before_the_file_is_in_memory(tmp_path, monkeypatch, tail, is_header):
    monkeypatch.setattr(replay_module, "MAX_ROW", 150)
    file = tmp_path / "r.csv"
    file.write_text(tail.replace("1,2,3,4,5,6\n", "") if is_header else f"{HEAD}\n\n{tail}")
    with pytest.raises(InputError) as error:
        read_all(file)
    first = 1 if is_header else 4 if "1,2" in tail else 3
    assert f"r.csv has a quote in the row of line {first} that is not closed " in str(error.value)
    assert "\n" not in str(error.value)


def test_two_bindings_of_one_file_share_its_rows(tmp_path: Path):
    file = write_replay(tmp_path / "r.csv", [1, 2, 3])
    with open_bank([f"x=replay:{file}", f"vib=replay:{file}"], make_program(), make_manifest()) as bank:
        xs = []
        while bank.next_item():
            xs.append(bank.read([0, 1])[0])
        assert xs == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "has no header; its first row must name features"),
        ("\n\n", "has no header; its first row must name features"),
        (
            "x,vib[0],vib[1]\n",
            "has no column 'vib[2]', which sensor vib needs; add it, name another source, or use --sensors vib=none",
        ),
        ("X,vib_mean\n", "has no column 'x', which sensor x needs"),
        ("x," + ",".join(f"vib[{k}]" for k in range(6)), "has more than the 5 samples of sensor vib"),
        ("x,x\n", "names column 'x' twice"),
    ],
)
def test_a_header_that_lacks_something_is_told_in_one_line(tmp_path: Path, text, line):
    file = tmp_path / "r.csv"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        replay_bank(file)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_any_bytes_are_a_replay_or_one_clear_error(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_bytes(b"x\n" + data)
    source = Replay(file)
    assert source.lacks(X) == ""
    bank = SensorBank([X], {"x": source})
    for _ in range(400):
        try:
            if not bank.next_item():
                break
        except InputError as error:
            assert "a quote in the row of line" in str(error)  # noqa: PT017
            break
        reading = bank.read([0])[0]
        assert reading is None or len(reading) == 1
    else:
        pytest.fail("a replay ends")


# ---------------------------------------------------------------- thermal, plug-ins, and the words for them


def make_zones(root: Path) -> Path:
    for k, (kind, text) in enumerate([("cpu-thermal", "45123\n"), ("gpu", "no number"), ("x", "-2500\n")]):
        zone = root / "sys" / "class" / "thermal" / f"thermal_zone{k}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(kind + "\n")
        (zone / "temp").write_text(text)
    return root


@pytest.mark.parametrize(
    ("spec", "reading"),
    [
        ("x=thermal:0", [45.123]), ("x=thermal:thermal_zone0", [45.123]), ("x=thermal:cpu-thermal", [45.123]),
        ("x=thermal:gpu", None), ("x=thermal:", [-2.5]), ("thermal:", [-2.5]), ("thermal", [-2.5]),
    ],
)  # fmt: skip
def test_a_thermal_zone_reads_in_degrees(tmp_path: Path, spec, reading):
    with open_bank([spec], make_program(), make_manifest(), timeout_s=PATIENT_S, root=make_zones(tmp_path)) as bank:
        assert bank.next_item()
        assert bank.dead == {1}
        assert bank.read([0]) == {0: reading}


def test_a_plug_in_serves_sensors_by_name_and_bindings_come_first(tmp_path: Path, monkeypatch):
    (tmp_path / "hardcase_test_plugin.py").write_text(
        "def read(sensor):\n    return {'x': 7, 'vib': [1, 2, 3, 4, 5]}[sensor]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with open_bank(["hardcase_test_plugin:read"], make_program(), make_manifest(), timeout_s=PATIENT_S) as bank:
        assert bank.next_item()
        assert bank.read([0, 1]) == {0: [7.0], 1: list(window_features([1, 2, 3, 4, 5]))}
    with open_bank(
        ["x=none", "hardcase_test_plugin:read"], make_program(), make_manifest(), timeout_s=PATIENT_S
    ) as bank:
        assert bank.dead == {0}
        assert bank.read([1])[1] is not None


@pytest.mark.parametrize("error", ["SystemExit(0)", "GeneratorExit", "BaseException('no')"])
def test_a_module_that_raises_anything_when_it_is_imported_is_one_line(tmp_path: Path, monkeypatch, error):
    (tmp_path / "hardcase_raises.py").write_text(f"raise {error}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InputError, match="module hardcase_raises cannot be imported: "):
        open_bank(["hardcase_raises:read"], make_program(), make_manifest())


@pytest.mark.parametrize(
    ("specs", "line"),
    [
        (["replay:/nowhere.csv"], "replay file /nowhere.csv cannot be read: No such file or directory"),
        (["replay:/"], "replay file / cannot be read: Is a directory"),
        (["nonsense"], "sensor source 'nonsense' is unknown; use replay:FILE"),
        (["replay:"], "sensor source 'replay:' is not a MODULE:FUNCTION"),
        (["vibe=thermal:0"], "'vibe=thermal:0' names no sensor of this bundle; did you mean 'vib'?"),
        (["zz=thermal:0"], "names no sensor of this bundle; it has x, vib"),
        (["x=none", "x=none"], "sensor x has two sources; give it one"),
        (["x=thermal:7"], "sensor x: there is no thermal zone '7'; this machine has: 0, 1, 2, cpu-thermal"),
        (["vib=thermal:0"], "sensor vib needs 5 samples, a channel of thermal: gives one"),
        (["thermal:gone"], "a sensor source serves no sensor: sensor x: there is no thermal zone 'gone'"),
        (["no_such_module_here:read"], "module no_such_module_here cannot be imported: ModuleNotFoundError"),
        (["json:nothing"], "module json has no function nothing"),
        (["json:decoder"], "module json has no function decoder"),
        (["os.path:join(1)"], "is not a MODULE:FUNCTION"),
    ],
)
def test_words_that_name_no_source_are_told_in_one_line(tmp_path: Path, specs, line):
    with pytest.raises(InputError) as error:
        open_bank(specs, make_program(), make_manifest(), root=make_zones(tmp_path))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a:b", "a=b", "a=b=c:d"])
def test_a_sensor_name_may_hold_an_equals_sign_or_a_colon(tmp_path: Path, name: str):
    program = Program((Feature("f32"),), (Sensor((0,), (1,)),), Uplink(), (), (), (), 0)
    manifest = Manifest(name="odd", unit="mJ", features=("f",), sensors=(name,), classes=())
    make_zones(tmp_path)
    with open_bank([f"{name}=thermal:0"], program, manifest, timeout_s=PATIENT_S, root=tmp_path) as bank:
        assert bank.read([0]) == {0: [45.123]}
