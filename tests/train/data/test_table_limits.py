# SPDX-License-Identifier: Apache-2.0
"""Small files that unpack to large tables are refused in one line before they are unpacked."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from hardcase_edge.errors import InputError
from hardcase_edge.more.batch.tables import VARIABLE, max_bytes, read_npz
from hardcase_train.columns.kinds import plain
from hardcase_train.data.table import read_table

LIMIT = 1_000_000  # bytes, in these tests
N = 100_000  # rows of two columns: 1.6 MB as float64


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(LIMIT / 1e9))


def parquet(path: Path, table: pa.Table, **options: Any) -> None:
    pa.parquet.write_table(table, path, compression="zstd", **options)


def feather(path: Path, table: pa.Table) -> None:
    pa.feather.write_feather(table, path, compression="zstd")


def numbers(n: int = N) -> pa.Table:
    return pa.table({"a": np.zeros(n), "y": np.zeros(n, np.int8)})


def same_text(n: int = 100) -> pa.Table:
    """Codes of one long text: small in the file, n times as large as texts."""
    return pa.table({"a": pa.array(["x" * 50_000] * n).dictionary_encode(), "y": np.zeros(n)})


def same(value: Any, kind: Any, n: int = 100) -> pa.Table:
    """Codes of one value of an arrow type."""
    codes = pa.DictionaryArray.from_arrays(np.zeros(n, np.int8), pa.array([value], kind))
    return pa.table({"a": codes, "y": np.zeros(n)})


def refused(path: Path, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_table(path)
    message = str(error.value)
    assert message.startswith(f"data file {path} ")
    assert said in message
    assert "\n" not in message


TOO_LARGE = f"in memory, and at most 0.001 GB are read; use fewer rows or columns, or set {VARIABLE} to more"


@pytest.mark.parametrize("make", [numbers, same_text])
@pytest.mark.parametrize("write", [parquet, feather])
def test_a_packed_table_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None], make: Callable[[], pa.Table]
) -> None:
    path = tmp_path / f"data.{write.__name__}"
    write(path, make())
    assert path.stat().st_size < LIMIT / 10
    allocated = pa.total_allocated_bytes()
    refused(path, TOO_LARGE)
    assert pa.total_allocated_bytes() - allocated < LIMIT
    monkeypatch.delenv(VARIABLE)
    assert len(read_table(path).X) == make().num_rows


@pytest.mark.parametrize("write", [parquet, feather])
def test_codes_of_long_texts_are_refused_whatever_arrow_calls_them(
    tmp_path: Path, write: Callable[[Path, pa.Table], None]
) -> None:
    path = tmp_path / f"t.{write.__name__}"
    write(path, same("x" * 50_000, pa.large_string()))
    refused(path, TOO_LARGE)


@pytest.mark.parametrize(("value", "kind"), [(b"x" * 50_000, pa.binary()), ([1] * 5_000, pa.list_(pa.int64()))])
def test_codes_of_what_no_model_reads_stay_codes(tmp_path: Path, value: Any, kind: Any) -> None:
    codes = same(value, kind)
    assert plain(codes["a"]).type == codes["a"].type
    feather(tmp_path / "t.feather", codes)
    table = read_table(tmp_path / "t.feather")
    assert table.kinds == {"a": "other", "y": "number"}
    assert table.without("a").as_features(np.ones(100, bool)).names == ("y",)


def test_a_footer_that_claims_few_rows_is_not_believed(tmp_path: Path) -> None:
    """The rows of a file are counted where its columns are, too."""
    path = tmp_path / "data.parquet"
    parquet(path, numbers(), row_group_size=N // 10)
    assert pa.parquet.read_metadata(path).num_row_groups == 10
    refused(path, TOO_LARGE)


def test_a_csv_is_refused_by_its_size_or_by_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,y\n" + "1,0\n" * (LIMIT // 4))
    refused(path, f"would take 0.001 GB {TOO_LARGE}")
    path.write_text("a" + "," * 999 + "\n" + "," * 999 + "\n" * 200)  # 1.6 kB
    assert len(read_table(path).names) > 900
    path.write_text("a,b,y\n" + ",,\n" * (LIMIT // 8))  # empty cells: a byte each in the file, eight in a table
    assert path.stat().st_size < LIMIT
    refused(path, TOO_LARGE)


def test_a_file_without_an_end_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "data.csv").symlink_to("/dev/zero")
    refused(tmp_path / "data.csv", TOO_LARGE)


def packed(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def lie(shape: tuple[int, ...]) -> bytes:
    """An array of a few bytes that claims another shape."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|i1", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + bytes(10)


def test_an_npz_is_refused_by_its_directory_or_by_its_headers(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    y = npy(np.arange(N) % 2)
    path.write_bytes(packed(X=npy(np.zeros((N, 2))), y=y))
    assert path.stat().st_size < LIMIT / 10
    refused(path, TOO_LARGE)
    path.write_bytes(
        packed(X=npy(np.zeros((N, 2), np.int8)), y=npy(np.zeros(N, np.int8)))
    )  # 8 times as large as float64
    refused(path, TOO_LARGE)
    path.write_bytes(packed(X=lie((10**12,)), y=lie((-(10**12),))))
    refused(path, TOO_LARGE)
    path.write_bytes(packed(**{f"x{k}": b"" for k in range(1001)}))
    refused(path, "holds 1001 arrays, at most 1000 are read; save fewer")
    with pytest.raises(InputError, match="holds 1001 arrays"):
        read_npz("rows", path)


def test_a_buffer_that_claims_to_unpack_to_much_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "data.feather"
    feather(path, pa.table({"a": np.zeros(1000), "y": np.zeros(1000)}))
    data = path.read_bytes()
    claim = struct.pack("<q", 8000)
    assert data.count(claim) == 2
    path.write_bytes(data.replace(claim, struct.pack("<q", 10**13), 1))
    refused(path, f"would take 1e+04 GB {TOO_LARGE}")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", "1e300"])
def test_a_limit_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(InputError, match=f"{VARIABLE} is '{text}'; expected a number of gigabytes, such as 4"):
        max_bytes()


def test_without_a_wish_the_limit_is_a_gigabyte() -> None:
    os.environ.pop(VARIABLE)
    assert max_bytes() == 10**9
