# SPDX-License-Identifier: Apache-2.0
"""Drafts are compressed, damage is noticed, and a build keeps the files that wishes need within its room."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hardcase_edge.bundle.file import MAX_BUNDLE_BYTES
from hardcase_edge.errors import BundleError, InputError
from hardcase_edge.more.fronts.front import Judged
from hardcase_export.drafts.files import (
    LEAST_BYTES,
    MAX_BUILD_BYTES,
    kept_files,
    pack_draft,
    read_draft_bytes,
    room_for_policies,
)
from hardcase_export.drafts.front import Point


def test_a_draft_comes_back_and_an_older_one_is_read_as_it_is(tmp_path: Path) -> None:
    data = b"draft" * 1000
    (tmp_path / "a.safetensors.gz").write_bytes(pack_draft(data))
    (tmp_path / "a.safetensors").write_bytes(data)
    assert read_draft_bytes(tmp_path / "a.safetensors.gz") == read_draft_bytes(tmp_path / "a.safetensors") == data
    assert pack_draft(data) == pack_draft(data)
    assert len(pack_draft(data)) < 100


@pytest.mark.parametrize(
    ("file", "said"),
    [
        pytest.param(b"", "has no bytes", id="empty"),
        pytest.param(b"no gzip at all", "is damaged", id="another"),
        pytest.param(pack_draft(b"draft" * 100)[:-9], "is cut off", id="cut"),
        pytest.param(pack_draft(b"draft") + b"more", "goes on behind its end", id="longer"),
        pytest.param(gzip.compress(bytes(MAX_BUNDLE_BYTES + 1)), "unpacked", id="a-bomb"),
    ],
)
def test_a_damaged_draft_is_one_line(tmp_path: Path, file: bytes, said: str) -> None:
    (tmp_path / "a.gz").write_bytes(file)
    with pytest.raises(BundleError, match=said):
        read_draft_bytes(tmp_path / "a.gz")
    with pytest.raises(InputError, match="cannot be read"):
        read_draft_bytes(tmp_path / "b.gz")


def point(method: str, quality: float, cost: float) -> Point:
    figures = Judged(quality, cost, 0.0)
    return Point(method, {}, figures, figures, "")


POINTS = [
    point("hpc", 0.9, 100.0),
    *(point("dag", 0.7 + 0.02 * k, float(k)) for k in range(11)),
    point("static", 0.6, 5.0),
]


def test_all_files_are_kept_where_there_is_room() -> None:
    sizes = [0, *[10] * 12]
    assert kept_files(POINTS, sizes, 120) == set(range(1, 13))


def test_picks_and_the_best_of_each_method_come_first_and_the_front_is_thinned_evenly() -> None:
    sizes = [0, *[10] * 12]
    kept = kept_files(POINTS, sizes, 60)
    assert sum(sizes[k] for k in kept) <= 60
    assert {11, 12} <= kept, "the cheapest within 0.01 of f0 and the best of static"
    assert 1 in kept, "the cheapest"
    assert max(b - a for a, b in zip(sorted(kept - {12}), sorted(kept - {12})[1:], strict=False)) <= 5
    assert kept_files(POINTS, sizes, 0) == {11, 12}


def test_the_room_is_what_others_leave() -> None:
    assert room_for_policies(0) < MAX_BUILD_BYTES
    assert room_for_policies(10_000_000) == room_for_policies(0) - 10_000_000
    assert room_for_policies(100_000_000) == LEAST_BYTES
