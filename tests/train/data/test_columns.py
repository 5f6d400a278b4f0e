# SPDX-License-Identifier: Apache-2.0
"""What training makes of columns that are not numbers: dropped, coded, left out, and told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hardcase.measuring.labelled_rows import labelled_rows
from hardcase_edge.bundle.manifest import Manifest
from hardcase_edge.errors import InputError
from hardcase_edge.program.definition import Feature, Program, Uplink
from hardcase_train.hpc.fit import imputed
from hardcase_train.settings.config import Config, SensorConfig
from hardcase_train.tasks.task import Task, make_task
from tests.helpers.train.problems import write_csv

N = 60
NOTHING = Program((), (), Uplink(), (), (), (), 2)  # of a bundle without windows


def table(folder: Path) -> Path:
    """A category whose last text is in no training row, dates, a boolean, names of rows, two raw columns."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "id": [f"P{k}" for k in range(N)],
        "sky": ["dry", "rain", None] * 16 + ["fog"] * 12,
        "when": [f"2024-03-{1 + k % 9:02d} 0{k % 7}:30" for k in range(N)],
        "on": ["true", "false"] * 30,
        "raw.a": rng.normal(size=N).round(3),
        "raw.b": rng.normal(size=N).round(3),
        "heat": rng.normal(size=N).round(3),
        "y": ["u", "v", "v"] * 20,
    }
    return write_csv(folder / "data.csv", columns)


def task(folder: Path, **more: Any) -> Task:
    config = Config(file=table(folder), target="y", split="time", **more)
    return make_task(config, model=imputed(LogisticRegression()))


def test_texts_of_training_rows_without_gaps_are_a_feature_that_may_not_be_missing(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"sky": ["dry", "rain", "rain"] * 16 + ["fog", ""] * 6, "heat": range(N), "y": "uvv" * 20}
    config = Config(file=write_csv(tmp_path / "data.csv", columns), target="y", split="time")
    made = make_task(config, model=imputed(LogisticRegression()))
    assert made.problem.features == (Feature("i32"), Feature("i32"))
    assert np.isnan(made.problem.test.X[:, 0]).all()  # fog, and gaps


def test_texts_of_training_rows_with_gaps_are_a_nullable_feature_of_codes(tmp_path: Path) -> None:
    made = task(tmp_path, drop=("id", "raw.*"))
    assert made.features == made.sensors == ("sky", "on", "heat")
    assert made.table.categories == {"sky": ("dry", "rain")}
    assert made.problem.features == (Feature("i32", nullable=True), Feature("i32"), Feature("f32"))
    assert made.problem.train.X[:3, 0] == pytest.approx([0, 1, np.nan], nan_ok=True)
    assert np.isnan(made.problem.test.X[:, 0]).all()  # fog


def test_dates_are_left_out_with_a_note_or_become_parts_that_sensors_may_name(tmp_path: Path) -> None:
    assert task(tmp_path, drop=("id",)).table.notes == (
        "left out 'when', which holds dates; [data] dates = \"parts\" makes features of them",
    )
    sensors = (SensorConfig(name="clock", features=("when.*",), cost=2.0),)
    made = task(tmp_path, drop=("id", "raw.*", "when.month"), dates="parts", sensors=sensors)
    assert made.features == ("sky", "when.day", "when.weekday", "when.hour", "on", "heat")
    assert made.sensors == ("clock", "sky", "on", "heat")
    assert made.problem.train.X[8, 1:4].tolist() == [9, 5, 1]


@pytest.mark.parametrize(
    ("drop", "said"),
    [
        pytest.param(
            ("ids",), "[data] drop names 'ids', which is not a column of the data; did you mean 'id'?", id="near"
        ),
        pytest.param(
            ("zz*",), "[data] drop names 'zz*', which is not a column of the data; columns are id, sky", id="none"
        ),
        pytest.param(("when.day",), "[data] drop names 'when.day', which is not a column", id="a-part-of-no-date"),
        pytest.param(("*",), "the data has no column besides the target that a model could read", id="all"),
    ],
)
def test_what_cannot_be_dropped_is_told(tmp_path: Path, drop: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        task(tmp_path, drop=drop)


def test_a_sensor_of_columns_that_are_dropped_is_told(tmp_path: Path) -> None:
    for drop, features in ((("id", "heat"), ("heat",)), (("id", "raw.*", "he*"), ("heat",))):
        with pytest.raises(InputError, match=r"sensor 's' names 'heat', which \[data\] drop names; take out either"):
            task(tmp_path, drop=drop, sensors=(SensorConfig(name="s", features=features, cost=1.0),))


@pytest.mark.parametrize("label", ["1.0", "true"])
def test_labels_of_text_are_text_in_a_table_where_all_of_them_look_like_numbers(tmp_path: Path, label: str) -> None:
    manifest = Manifest("m", "u", ("a",), ("a",), (label, "none"), "y")
    path = write_csv(tmp_path / "more.csv", {"a": [5, 6], "y": [label] * 2})
    assert labelled_rows(path, manifest, NOTHING)[1].tolist() == [0, 0]


def test_numbers_that_are_not_written_as_numbers_are_told(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "level": ["-" if k % 9 == 0 else k % 9 for k in range(N)],
        "load": [f"{k % 9}.5%" for k in range(N)],
        "size": ["36", "38", "40", "42", "large"] * 12,
        "room": [f"R{k % 9}" for k in range(N)],
        "y": ["u", "v", "v"] * 20,
    }
    config = Config(file=write_csv(tmp_path / "data.csv", columns), target="y")
    assert make_task(config, model=imputed(LogisticRegression())).table.notes == (
        "took the 9 texts of 'level' for a category; most are numbers, and '-' is not: if it stands for "
        "a missing value, leave such cells empty",
        "took the 9 texts of 'load' for a category; they look like numbers, and '0.5%' is not written as one",
    )


def test_a_users_table_is_read_by_the_manifests_categories_and_dates(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "more.csv", {"y": [0, 1, 0], "zip": ["07", "8", "9"], "t": ["2024-03-05"] * 3})
    manifest = Manifest("m", "u", ("t.day", "zip"), ("t", "zip"), (0, 1), "y", categories={"zip": ("07", "9")})
    X, y, _ = labelled_rows(path, manifest, NOTHING)
    np.testing.assert_array_equal(X, [[5, 0], [5, np.nan], [5, 1]])
    assert y.tolist() == [0, 1, 0]
    np.savez(tmp_path / "codes.npz", X=[[5, 1], [5, 2]], feature_names=["t.day", "zip"], y=[0, 1])
    np.testing.assert_array_equal(labelled_rows(tmp_path / "codes.npz", manifest, NOTHING)[0], [[5, 1], [5, np.nan]])
    for columns, said in (
        ({"y": [0, 1], "t": ["2024-03-05"] * 2}, "lacks 1 of the bundle's features, such as 'zip'; add the columns"),
        (
            {"y": [0, 1], "zip": [1, 2], "t.day": ["a", "b"]},
            "holds no numbers in 1 of the bundle's features, such as 't.day'",
        ),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            labelled_rows(write_csv(tmp_path / "bad.csv", columns), manifest, NOTHING)
