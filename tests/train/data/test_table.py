# SPDX-License-Identifier: Apache-2.0
"""Tables of every kind become numbers and labels; what cannot is told in one line, and nothing is ever unpickled."""

from __future__ import annotations

import io
import pickle
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardcase_edge.errors import InputError
from hardcase_edge.program.window import window_features
from hardcase_edge.sensors.csv_replay import Replay
from hardcase_train.columns import files, own_process
from hardcase_train.columns.kinds import NUMBER, OTHER, TEXT
from hardcase_train.columns.own_process import read_here
from hardcase_train.data.dtypes import declared, rounded_to_dtypes
from hardcase_train.data.table import read_table
from hardcase_train.tasks.target import target_classes, target_labels


def csv(folder, text):
    path = folder / "data.csv"
    path.write_text(text)
    return path


def npz(folder, **arrays):
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def parquet(folder, columns):
    path = folder / "data.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


def refused(path, said):
    with pytest.raises(InputError, match=said) as found:
        read_table(path)
    assert str(path) in str(found.value)


# ---------------------------------------------------------------- what is read


def test_a_csv_has_numbers_and_labels(tmp_path):
    t = read_table(csv(tmp_path, "a,b,on,y\n1,0.5,true,good\n-0,,false,bad\n3,inf,true,good\n"))
    assert t.names == ("a", "b", "on")
    assert t.texts == ("y",)
    assert t.X.tolist()[0] == [1.0, 0.5, 1.0]
    assert np.isnan(t.X[1:, 1]).all()
    assert not np.signbit(t.X[1, 0])
    assert t.labels["y"].tolist() == ["good", "bad", "good"]
    assert t.labels["a"].tolist() == [1, 0, 3]
    assert len(t.sha256) == 64


def test_a_column_may_change_from_whole_numbers_to_fractions_late_in_a_long_file(tmp_path):
    rows = "1,2\n" * 400_000 + "1.5,2\n"
    t = read_table(csv(tmp_path, f"a,b\n{rows}"))
    assert t.X[-1].tolist() == [1.5, 2.0]
    assert len(t.X) == 400_001


def test_whole_numbers_beyond_doubles_are_the_nearest_double_and_exact_labels(tmp_path):
    t = read_table(csv(tmp_path, f"a,b\n{2**53 + 1},1\n{2**53 + 3},2\n"))
    assert t.X[:, 0].tolist() == [float(2**53), float(2**53 + 4)]
    assert t.labels["a"].tolist() == [2**53 + 1, 2**53 + 3]


def test_a_column_of_nothing_but_missing_values_is_a_column(tmp_path):
    t = read_table(csv(tmp_path, "a,none\n1,\n2,\n"))
    assert t.names == ("a", "none")
    assert np.isnan(t.X[:, 1]).all()


def test_words_for_missing_are_missing_labels_too(tmp_path):
    t = read_table(csv(tmp_path, "a,y\n1,good\n2,NaN\n3,bad\n"))
    with pytest.raises(InputError, match="'y' is missing in 1 rows, first in row 2"):
        target_labels(t, "y")


def test_parquet_of_every_type_of_number(tmp_path):
    columns = {
        "i8": pa.array([1, None, 3], pa.int8()),
        "u64": pa.array([1, 2, 2**64 - 1], pa.uint64()),
        "f32": pa.array([0.1, None, float("inf")], pa.float32()),
        "flag": pa.array([True, None, False]),
        "money": pa.array([1, 2, None], pa.decimal128(10, 2)),
        "kind": pa.array(["x", "y", None]).dictionary_encode(),
        "text": pa.array(["p", "q", "r"], pa.large_string()),
    }
    t = read_table(parquet(tmp_path, columns))
    assert t.names == ("i8", "u64", "f32", "flag", "money")
    assert np.isnan(t.X).tolist() == [[0, 0, 0, 0, 0], [1, 0, 1, 1, 0], [0, 0, 1, 0, 1]]
    assert t.X[2, 1] == 2.0**64
    assert t.labels["kind"].tolist() == ["x", "y", None]
    assert t.texts == ("kind", "text")


def test_dates_and_lists_are_no_numbers(tmp_path):
    when = pa.array([1, 2], pa.timestamp("s"))
    t = read_table(parquet(tmp_path, {"when": when, "list": pa.array([[1], [2]]), "a": pa.array([1, 2])}))
    assert t.names == ("a",)
    assert t.texts == ("when", "list")
    assert list(t.labels) == ["when", "a"]
    assert t.labels["when"].tolist() == ["1970-01-01T00:00:01", "1970-01-01T00:00:02"]


CELLS = "name,n,on,when\nZürich,1.5,true,2024-03-01 06:30\nBern,,FALSE,2024-03-02 07:00\n?,-2,True,NA\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        pytest.param(CELLS, "utf-8", id="commas"),
        pytest.param(CELLS, "utf-8-sig", id="byte-order-mark"),
        pytest.param(CELLS, "latin-1", id="latin-1"),
        pytest.param(CELLS.replace(",", ";").replace("1.5", "1,5"), "utf-8", id="semicolons-and-decimal-commas"),
        pytest.param(CELLS.replace(",", ";"), "latin-1", id="semicolons-and-decimal-points"),
        pytest.param(CELLS.replace(",", "\t"), "utf-8", id="tabs"),
        pytest.param(CELLS.replace(",", ", "), "utf-8", id="spaces"),
        pytest.param(CELLS.replace("2024-03-0", "2024/03/0"), "utf-8", id="slashes-in-dates"),
        pytest.param(CELLS.replace("2024-03-01", "01.03.2024").replace("2024-03-02", "02.03.2024"), "utf-8", id="dots"),
        pytest.param(CELLS.replace("Bern", '"Bern"').replace("Z", '"Z').replace("h,", 'h",'), "utf-8", id="quotes"),
        pytest.param(CELLS.replace("\n", "\r\n"), "utf-8", id="carriage-returns"),
    ],
)
def test_a_csv_may_be_written_in_many_ways(tmp_path, text, encoding):
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode(encoding))
    t = read_table(path).as_features(np.array([True, True, True]), "parts")
    assert t.names == ("name", "n", "on", "when.month", "when.day", "when.weekday", "when.hour")
    assert t.categories == {"name": ("Bern", "Zürich")}
    nan = np.nan
    expected = [[1, 1.5, 1, 3, 1, 4, 6], [0, nan, 0, 3, 2, 5, 7], [nan, -2, 1, nan, nan, nan, nan]]
    np.testing.assert_array_equal(t.X, expected)
    assert t.notes == (("data.csv is not UTF-8 and was read as Latin-1",) if encoding == "latin-1" else ())


@pytest.mark.parametrize("suffix", ["feather", "arrow", "parquet"])
def test_feather_is_read_as_parquet_is(tmp_path, suffix):
    columns = pa.table({"a": [1.5, None], "kind": pa.array(["x", "y"]).dictionary_encode(), "on": [True, False]})
    path = tmp_path / f"data.{suffix}"
    (pa.parquet.write_table if suffix == "parquet" else pa.feather.write_feather)(columns, path)
    t = read_table(path)
    assert dict(t.kinds) == {"a": "number", "kind": "text", "on": "boolean"}
    assert t.labels["kind"].tolist() == ["x", "y"]


def test_a_column_without_a_name_is_called_by_its_place(tmp_path):
    assert read_table(csv(tmp_path, ",a,\n0,1,2\n")).names == ("column 1", "a", "column 3")


# ---------------------------------------------------------------- features


def test_texts_of_the_training_rows_become_codes_in_their_order(tmp_path):
    t = read_table(csv(tmp_path, "x,city,y\n1,Rome,a\n2, Oslo ,b\n3,,a\n4,Bern,b\n5,Oslo,a\n"))
    coded = t.without("y").as_features(np.array([True, True, True, False, True]))
    assert coded.names == ("x", "city")
    assert coded.categories == {"city": ("Oslo", "Rome")}
    assert coded.X[:, 1] == pytest.approx([1, 0, np.nan, np.nan, 0], nan_ok=True)
    (_, city) = declared(coded.X, np.ones(5, bool), categories={1})
    assert (city.dtype, city.nullable) == ("i32", True)
    (_, city) = declared(coded.X, np.array([True, True, False, False, True]), categories={1})
    assert (city.dtype, city.nullable) == ("i32", False), "a gap or an unknown text behind the training rows is none"


def test_a_replay_reads_the_rows_and_texts_that_training_has_read(tmp_path: Path):
    """Arrow reads the table for training, csv reads it for a device."""
    file, rng = tmp_path / "r.csv", Random(3)
    pieces = ["a", "b", " ", ",", ";", '""', "\n", "\r\n", "\n\n", "1", "ä"]
    texts = ["".join(rng.choices(pieces, k=rng.randrange(6))) + "x" for _ in range(200)]
    file.write_bytes("\n".join(['n,"the\ntext"', *(f'{k},"{text}"' for k, text in enumerate(texts))]).encode())
    table = read_table(file)
    assert (table.names, table.labels["the\ntext"].tolist()) == (("n",), [t.replace('""', '"') for t in texts])
    source, seen = Replay(file), []
    while source.next_item():
        seen.append((source.cell("n"), source.cell("the\ntext")))
    assert seen == [(str(k), text.replace('""', '"')) for k, text in enumerate(texts)]


def test_a_text_that_looks_like_a_number_stays_text_where_it_is_asked_for(tmp_path):
    path = csv(tmp_path, "zip,y\n007,1\n12,2\n")
    assert read_table(path).X[0, 0] == 7
    assert read_table(path, as_text=("zip",)).labels["zip"].tolist() == ["007", "12"]


@pytest.mark.parametrize("cells", [("1,5E-3", "-2,5e2"), ("+1,5", ",25"), (" 1,5", "1 ")])
def test_a_decimal_comma_is_one_in_any_number(tmp_path, cells):
    table = read_table(csv(tmp_path, "a;y\n{};u\n{};v\n".format(*cells)))
    assert table.X[:, 0].tolist() == [float(cell.replace(",", ".")) for cell in cells]


def test_a_file_without_a_header_is_told(tmp_path):
    note = "data.csv seems to have no header: its first row, which names the columns, is numbers"
    assert read_table(csv(tmp_path, "1.5,2\n2.5,3\n")).notes == (note,)
    assert read_table(csv(tmp_path, "2020,y\n2.5,3\n")).notes == ()


def test_decimals_are_labels_as_other_numbers_are(tmp_path):
    column = pa.array([Decimal("1.0"), Decimal("2.5"), None])
    assert read_table(parquet(tmp_path, {"y": column})).labels["y"].tolist() == [1.0, 2.5, None]


def test_dates_are_left_out_with_a_word_unless_their_parts_are_wanted(tmp_path):
    t = read_table(csv(tmp_path, "x,day,at,y\n1,2024-02-29,10:45,a\n2,2023-12-25,23:00,b\n"))
    rows = np.array([True, True])
    assert t.as_features(rows).notes == tuple(
        f'left out {name!r}, which holds dates; [data] dates = "parts" makes features of them' for name in ("day", "at")
    )
    parts = t.without("y").as_features(rows, "parts")
    assert parts.names == ("x", "day.month", "day.day", "day.weekday", "at.hour")
    assert parts.X.tolist() == [[1, 2, 29, 3, 10], [2, 12, 25, 0, 23]]
    clash = read_table(csv(tmp_path, "day.month,day\n1,2024-02-29\n2,2023-12-25\n"))
    with pytest.raises(InputError, match=r"'day' would be 'day.month', which is a column; rename one"):
        clash.as_features(rows, "parts")


def test_all_columns_that_no_model_can_read_are_named_at_once(tmp_path):
    n = 201
    columns = {
        "x": range(n),
        "list": [[k] for k in range(n)],
        "id": [f"P{k}" for k in range(n)],
        "long": ["w" * 201] * n,
    }
    t = read_table(parquet(tmp_path, {name: pa.array(values) for name, values in columns.items()}))
    with pytest.raises(InputError) as error:
        t.as_features(np.ones(n, bool))
    assert str(error.value) == (
        "no model can read these columns: 'list' (neither numbers nor text), 'id' (text with 201 different values, at "
        "most 200 can be coded), 'long' (text of 201 characters, at most 200 can be coded); name them in [data] drop, "
        "or code them"
    )
    assert t.without("list", "id", "long").as_features(np.ones(n, bool)).names == ("x",)
    with pytest.raises(InputError, match="no column besides the target that a model could read"):
        t.without(*columns).as_features(np.ones(n, bool))


def test_more_text_than_a_bundle_holds_is_refused(tmp_path):
    n = 400
    columns = {f"c{k}": [f"{row % 200:03d}{'w' * 197}" for row in range(n)] for k in range(3)}
    with pytest.raises(InputError, match="the texts of 3 columns have 120000 characters, a bundle holds 100000"):
        read_table(parquet(tmp_path, columns)).as_features(np.ones(n, bool))


def test_an_npz_of_features(tmp_path):
    t = read_table(npz(tmp_path, X=np.array([[1, 2], [3, 4]]), feature_names=["a", "b"], y=["u", "v"], scale=0.5))
    assert t.names == ("a", "b")
    assert t.X.tolist() == [[0.5, 1.0], [1.5, 2.0]]
    assert t.labels["y"].tolist() == ["u", "v"]
    unnamed = read_table(npz(tmp_path, X=np.zeros((2, 3), dtype=bool), y=np.array([b"u", b"v"])))
    assert unnamed.names == ("x0", "x1", "x2")
    assert unnamed.labels["y"].tolist() == ["u", "v"]


def test_an_npz_of_windows_has_the_features_that_the_device_computes(tmp_path):
    X = np.random.default_rng(0).normal(size=(3, 2, 7)).astype(np.float32)
    X[1, 1, 3] = np.nan
    t = read_table(npz(tmp_path, X=X, sensor_names=["p", "q"], Y=[[0, 1], [1, 1], [0, 2]], target_names=["m", "n"]))
    assert t.names[:5] == ("p.mean", "p.deviation", "p.slope", "p.roughness", "q.mean")
    assert tuple(t.X[2, 4:]) == window_features(X[2, 1].tolist())
    assert np.isnan(t.X[1, 4:]).all()
    assert t.windows == {"p": 7, "q": 7}
    assert t.labels["n"].tolist() == [1, 1, 2]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "is empty", id="no-bytes"),
        pytest.param("\n", "not a readable .csv table", id="a-blank-line"),
        pytest.param("a,b,y\n", "has no rows", id="header-only"),
        pytest.param("a,a\n1,2\n", "column 'a' twice", id="a-column-twice"),
        pytest.param("y,a,y\nu,1,v\n", "column 'y' twice", id="a-text-column-twice"),
        pytest.param(f"{'n' * 201}\n1\n", "a name of 201 characters", id="a-long-name"),
        pytest.param("a,b\n1,2,3\n", "Expected 2 columns, got 3", id="a-row-too-long"),
        pytest.param("a,b\n1,\0\n", "is not a text file in UTF-8 or Latin-1", id="a-zero-byte"),
    ],
)
def test_a_csv_that_is_no_table_is_refused(tmp_path, text, said):
    refused(csv(tmp_path, text), said)


def test_a_file_that_is_not_there_or_of_another_kind_is_refused(tmp_path):
    refused(tmp_path / "none.csv", "cannot be read: No such file")
    refused(tmp_path / "table.xlsx", "not of a known format; use .csv, .parquet, .feather, .arrow, .npz")
    (tmp_path / "folder.csv").mkdir()
    refused(tmp_path / "folder.csv", "cannot be read")
    for suffix in ("parquet", "npz", "csv", "feather"):
        path = tmp_path / f"noise.{suffix}"
        path.write_bytes(bytes(range(256)) * 4)
        refused(path, re.escape(str(path)))


def read_or_refuse(path):
    """Every value of the table, or one line."""
    try:
        t = read_table(path)
        return [t.X.tolist(), *(t.labels[name].tolist() for name in t.labels)]
    except InputError as error:
        return str(error)


@given(st.binary(max_size=200) | st.text('a1,;\t"\r\n. -é', max_size=200).map(str.encode))
@settings(max_examples=80)
def test_any_bytes_are_a_csv_table_or_one_line(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(data)
    found = read_or_refuse(path)
    assert isinstance(found, list) or "\n" not in found


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_a_damaged_feather_file_is_a_table_or_one_line(tmp_path, compression, monkeypatch):
    monkeypatch.setattr(files, "read_apart", read_here)  # 300 processes would take a minute
    columns = {"a": [1.5, None] * 9, "s": ["x", "yy"] * 9, "c": pa.array(["u", "v"] * 9).dictionary_encode()}
    path = tmp_path / "data.feather"
    pa.feather.write_feather(pa.table(columns), path, compression=compression)
    good, rng = path.read_bytes(), np.random.default_rng(0)
    refusals = 0
    for _ in range(150):
        data = bytearray(good)
        data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data[: rng.integers(len(data))] if rng.random() < 0.2 else data)
        refusals += isinstance(read_or_refuse(path), str)
    assert 50 < refusals < 150


def aborting(path):
    """A Parquet file whose footer says another number of levels than its column has: pyarrow ends its process."""
    pa.parquet.write_table(pa.table({"a": [1.0, None, 3.0, 4.0] * 10, "y": ["a", "b"] * 20}), path)
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    places = [k for k in range(footer, len(data) - 8) if data[k] == 0x26 and max(data[k + 1 : k + 3]) < 0x80]
    for place in places:  # a list of two numbers of 64 bits becomes a list of one, of the same bytes
        bad = data.copy()
        bad[place], bad[place + 1] = 0x16, bad[place + 1] | 0x80
        path.write_bytes(bad)
        script = "import sys, pyarrow.parquet as p; p.ParquetFile(sys.argv[1]).metadata.row_group(0).column(0)"
        if subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=False).returncode == -6:
            return True
    return False


def test_a_file_that_ends_its_reader_is_one_line(tmp_path, monkeypatch, capfd):
    path = tmp_path / "data.parquet"
    if not aborting(path):  # pyarrow has been mended: any reader that aborts
        fake = tmp_path / "fake" / "pyarrow" / "parquet.py"
        fake.parent.mkdir(parents=True)
        fake.write_text("import os\nos.abort()\n")
        (fake.parent / "__init__.py").write_text("")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    said = read_or_refuse(path)
    assert said.endswith("it ended its reader (signal 6); write it again with another program")
    assert capfd.readouterr() == ("", "")


def test_a_reader_that_a_signal_ends_once_reads_again(tmp_path, monkeypatch):
    """A machine short of memory may end any process; a good file is not refused for it."""
    path, run, statuses = parquet(tmp_path, {"a": [1.0, 2.0]}), subprocess.run, []

    def once(*args, **others):
        done = run(*args, **others)
        statuses.append(done.returncode)
        return subprocess.CompletedProcess(done.args, -6 if len(statuses) == 1 else done.returncode)

    monkeypatch.setattr(own_process.subprocess, "run", once)
    assert "ended its reader" not in str(read_or_refuse(path))
    assert statuses == [0, 0]


def test_a_file_that_holds_its_reader_up_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(own_process, "TIMEOUT_S", 0.01)
    assert "its reader was stopped after 0.01 s" in read_or_refuse(parquet(tmp_path, {"a": [1.0, 2.0]}))


def test_the_reader_imports_nothing_from_the_folder_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "pyarrow.py").write_text("import os\nos.abort()\n")
    monkeypatch.chdir(tmp_path)
    assert read_table(parquet(tmp_path, {"a": [1.0, 2.0]})).X.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_what_nothing_reads_is_not_unpacked_and_stays_a_column(tmp_path, suffix):
    columns = {
        "when": pa.array([[1], [2, 3], None]), "a.b": [1.0, 2.0, None], "raw": [b"x", b"y", b"z"], "a": ["u", "v", "u"],
        "pair": [{"p": 1}, {"p": 2}, None],
    }  # fmt: skip
    path = tmp_path / f"data.{suffix}"
    (pa.parquet.write_table if suffix == "parquet" else pa.feather.write_feather)(pa.table(columns), path)
    t = read_table(path)
    assert t.kinds == {"when": OTHER, "a.b": NUMBER, "raw": OTHER, "a": TEXT, "pair": OTHER}
    assert t.labels["a"].tolist() == ["u", "v", "u"]
    assert t.X[:2].tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        pytest.param({"Z": np.zeros((2, 2))}, "no array X", id="no-X"),
        pytest.param({"X": np.zeros(3)}, "no array X of shape", id="one-dimension"),
        pytest.param({"X": np.zeros((2, 2, 2, 2))}, "no array X of shape", id="four-dimensions"),
        pytest.param({"X": np.array([["a"]])}, "no array X", id="text-in-X"),
        pytest.param({"X": np.zeros((2, 2), complex)}, "no array X", id="complex-X"),
        pytest.param({"X": np.zeros((2, 3, 4))}, "no sensor_names", id="windows-without-names"),
        pytest.param(
            {"X": np.zeros((2, 3, 4)), "sensor_names": ["a"]}, "sensor_names has 1 entries, 3", id="few-names"
        ),
        pytest.param({"X": np.zeros((2, 1, 1)), "sensor_names": ["a"]}, "at least 2 are needed", id="short-windows"),
        pytest.param({"X": np.zeros((2, 2)), "feature_names": ["a"]}, "feature_names has 1 entries, 2", id="one-name"),
        pytest.param(
            {"X": np.zeros((2, 2)), "feature_names": [["a", "b"], ["c", "d"]]},
            "feature_names has 4 entries, 2",
            id="a-table-of-names",
        ),
        pytest.param({"X": np.zeros((2, 2)), "feature_names": ["a", "a"]}, "'a' twice", id="a-name-twice"),
        pytest.param({"X": np.zeros((2, 2)), "y": [1]}, "y has 1 entries, 2", id="few-labels"),
        pytest.param({"X": np.zeros((1, 2)), "y": np.array([1j])}, "y is of type complex128", id="complex-labels"),
        pytest.param({"X": np.zeros((2, 1)), "Y": np.zeros((2, 2)), "target_names": ["m"]}, "1 entries", id="targets"),
        pytest.param({"X": np.zeros((0, 2))}, "has no rows", id="no-rows"),
    ],
)
def test_an_npz_that_is_no_table_is_refused(tmp_path, arrays, said):
    refused(npz(tmp_path, **arrays), said)


class Bomb:
    """Says so if it is ever unpickled."""

    fired = False

    def __reduce__(self):
        return (setattr, (Bomb, "fired", True))


@pytest.mark.parametrize("where", ["X", "y", "feature_names", "extra"])
def test_objects_in_an_npz_are_refused_without_unpickling(tmp_path, monkeypatch, where):
    arrays = {"X": np.zeros((1, 1)), where: np.array([[Bomb()]] if where == "X" else [Bomb()], dtype=object)}
    path = npz(tmp_path, **arrays)

    def never(*_, **__):
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    refused(path, "Object arrays cannot be loaded")
    assert not Bomb.fired


@pytest.mark.parametrize("suffix", ["npz", "parquet", "csv"])
def test_a_bare_pickle_is_refused_without_unpickling(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(pickle.dumps([Bomb(), 1]))
    refused(path, str(path))
    assert not Bomb.fired


def test_a_single_array_is_no_npz(tmp_path):
    path = tmp_path / "data.npz"
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 2)))
    path.write_bytes(buffer.getvalue())
    refused(path, "is not an .npz archive")


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        pytest.param(["b", "a", "b "], ("a", "b"), id="text-is-stripped"),
        pytest.param([3, 1, 3], (1, 3), id="whole-numbers"),
        pytest.param([3.0, 1.5, 3.0], (1.5, 3), id="fractions"),
        pytest.param(["true", "false", "true"], (0, 1), id="true-and-false"),
    ],
)
def test_classes_are_the_sorted_labels(tmp_path, cells, classes):
    t = read_table(csv(tmp_path, "x,y\n" + "".join(f"0,{c}\n" for c in cells)))
    y, found = target_classes(t, "y")
    assert found == classes
    assert found[y[0]] == max(classes)
    assert all(type(c) in (int, float, str) for c in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("x,y\n1,a\n2,a\n", "has 1 classes; 2 to 200", id="one-class"),
        pytest.param("x,y\n" + "".join(f"0,{k}\n" for k in range(201)), "has 201 classes", id="too-many"),
        pytest.param("x,y\n1,a\n2,\n3,b\n", "missing in 1 rows, first in row 2", id="an-empty-cell"),
        pytest.param("x,y\n1,1\n2,nan\n3,\n", "missing in 2 rows", id="not-a-number"),
        pytest.param("x,z\n1,1\n2,2\n", "is not a column of the data; columns are x, z", id="no-such-column"),
        pytest.param("x,y\n1,\n2,\n", "missing in 2 rows", id="nothing-at-all"),
    ],
)
def test_a_target_that_cannot_be_one_is_refused(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        target_classes(read_table(csv(tmp_path, text)), "y")


# ---------------------------------------------------------------- declared types


@pytest.mark.parametrize(
    ("values", "dtype", "nullable"),
    [
        pytest.param([1, 2, -3], "i32", False, id="whole"),
        pytest.param([1, 2, np.nan], "i32", True, id="whole-with-gaps"),
        pytest.param([1, 2, 2**31], "f32", False, id="too-large-for-i32"),
        pytest.param([0.5, 1e-3, 2], "f32", False, id="fractions"),
        pytest.param([1e300, 1, 0.5], "f64", False, id="too-large-for-f32"),
        pytest.param([1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3], "f64", False, id="too-fine-for-f32"),
        pytest.param([np.nan] * 3, "f32", True, id="nothing"),
        pytest.param([0.1, 0.1, 0.1], "f32", False, id="constant"),
    ],
)
def test_a_features_type_holds_its_values(values, dtype, nullable):
    X = np.array(values, dtype=float)[:, None]
    (feature,) = declared(X, np.ones(len(X), dtype=bool))
    assert (feature.dtype, feature.nullable) == (dtype, nullable)
    kept = rounded_to_dtypes(X, (feature,))
    assert kept == pytest.approx(X, rel=1e-6, nan_ok=True)


def test_a_feature_missing_in_no_training_row_is_not_nullable():
    X = np.array([[1.0], [2.0], [np.nan]])
    (feature,) = declared(X, np.array([True, True, False]))
    assert not feature.nullable
